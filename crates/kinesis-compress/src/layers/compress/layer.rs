use tower_layer::Layer;

use super::Compress;
use crate::Compressor;

/// Compresses the payloads of [`OutboundRecord`](kinesis_core::OutboundRecord)s or
/// [`OutboundBatch`](kinesis_core::OutboundBatch)es, one by one, before the inner service sends them.
///
/// Compression is done in `call` on the caller's thread. It happens before whatever the inner service does, so put
/// size limits inside.
///
/// ```
/// use kinesis_compress::{Compression, CompressLayer, Compressor};
/// use kinesis_core::{BoxError, OutboundRecord};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # tokio_test::block_on(async {
/// let sender = service_fn(|record: OutboundRecord| async move { Ok::<_, BoxError>(record.data.len()) });
/// let mut service = CompressLayer::new(Compressor::new(Compression::Gzip)?).layer(sender);
/// let sent = service.ready().await?.call(OutboundRecord::new("key", "a".repeat(5000))).await?;
/// assert!(sent < 100);
/// # Ok::<_, BoxError>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CompressLayer {
    compressor: Compressor,
}

impl CompressLayer {
    /// A layer over this compressor.
    #[must_use]
    pub const fn new(compressor: Compressor) -> Self {
        Self { compressor }
    }
}

impl<S> Layer<S> for CompressLayer {
    type Service = Compress<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Compress::new(inner, self.compressor.clone())
    }
}
