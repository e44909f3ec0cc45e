//! Compression of what goes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kinesis_core::payload::PayloadEncoder;
use kinesis_core::{ConfigError, error_chain};

use crate::ProducerConfig;

/// Compresses payloads, and leaves those alone that would not shrink. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct Encoding(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    encoder: Box<dyn PayloadEncoder>,
    /// The first failure is warned about.
    failed: AtomicBool,
}

impl Encoding {
    #[allow(dead_code, reason = "the formats are features")]
    pub(crate) fn new(encoder: impl PayloadEncoder) -> Self {
        Self(Arc::new(Shared { encoder: Box::new(encoder), failed: AtomicBool::new(false) }))
    }

    /// The payload as it is to be sent, or `None` when that is how it is: it does not shrink, or the encoder failed,
    /// which is no reason to lose it. Readers tell by the magic number.
    pub(crate) fn encode(&self, payload: &Bytes) -> Option<Bytes> {
        match self.0.encoder.encode(payload) {
            // An encoder hands back what it leaves alone.
            Ok(encoded) => (encoded.as_ptr() != payload.as_ptr()).then_some(encoded),
            Err(error) => {
                if !self.0.failed.swap(true, Ordering::Relaxed) {
                    let error = error_chain(&error);
                    tracing::warn!(error, "a payload was not compressed and is sent as it is");
                }
                None
            }
        }
    }
}

/// The encoder that the configuration asks for.
pub(crate) fn encoder(config: &ProducerConfig) -> Result<Option<Encoding>, ConfigError> {
    #[cfg(feature = "compress")]
    if let Some(format) = config.compression {
        use kinesis_compress::{Compressor, Incompressible};
        let compressor = Compressor::new(format)
            .map_err(|error| ConfigError::new("compression", error.to_string()))?
            .incompressible(Incompressible::PassOn)
            .level(config.compression_level)
            .map_err(|error| ConfigError::new("compression_level", error.to_string()))?;
        return Ok(Some(Encoding::new(compressor)));
    }
    // Without the feature nobody asks for it.
    let _ = config;
    Ok(None)
}
