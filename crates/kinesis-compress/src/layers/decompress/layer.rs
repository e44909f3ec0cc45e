use tower_layer::Layer;

use super::Decompress;
use crate::Decompressor;

/// Gives a handler of [`Record`](kinesis_core::Record)s or [`RecordBatch`](kinesis_core::RecordBatch)es their
/// payloads decompressed.
///
/// For programs that read without the consumer's engine, and for payloads that were compressed one by one. The
/// engine's own decoder list comes before de-aggregation, which a layer cannot: it is what reads aggregates that
/// were compressed as a whole.
///
/// Payloads that are not compressed pass as they are. When a payload does not decompress, the inner service is not
/// called, and the error is a permanent [`HandlerError`](kinesis_core::processing::HandlerError) over a
/// [`RecordDecompressError`](crate::RecordDecompressError), which names shard and position. Of a batch nothing
/// has been processed then. Decompression is done in `call` on the caller's thread: up to some ten milliseconds for
/// the largest payloads.
///
/// ```
/// use kinesis_compress::{Compression, Compressor, DecompressLayer};
/// use kinesis_core::{BoxError, Record, RecordBatch};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # tokio_test::block_on(async {
/// let handler = service_fn(|batch: RecordBatch| async move {
///     Ok::<_, BoxError>(batch.records().iter().map(|record| record.data().len()).collect::<Vec<_>>())
/// });
/// let mut service = DecompressLayer::auto().layer(handler);
///
/// let packed = Compressor::new(Compression::Gzip)?.compress(&"a".repeat(5000).into())?;
/// let batch = RecordBatch::for_test(vec![Record::for_test(1, "k", packed), Record::for_test(2, "k", "plain")]);
/// let lengths = service.ready().await?.call(batch).await?;
/// assert_eq!(lengths, [5000, 5]);
/// # Ok::<_, BoxError>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DecompressLayer {
    decompressor: Decompressor,
}

impl DecompressLayer {
    /// A layer over this decompressor.
    #[must_use]
    pub const fn new(decompressor: Decompressor) -> Self {
        Self { decompressor }
    }

    /// A layer that looks for every format that is compiled in, with the default limit.
    #[must_use]
    pub fn auto() -> Self {
        Self::new(Decompressor::auto())
    }
}

impl<S> Layer<S> for DecompressLayer {
    type Service = Decompress<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Decompress::new(inner, self.decompressor.clone())
    }
}
