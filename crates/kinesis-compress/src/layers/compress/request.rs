use kinesis_core::{OutboundBatch, OutboundRecord};

use crate::{CompressError, Compressor};

/// What [`CompressLayer`](crate::CompressLayer) works on: a record to be sent, or a batch of them.
///
/// Implement it for a request type of your own to use the layer there.
pub trait CompressRequest: Sized {
    /// The same request with its payloads compressed.
    ///
    /// # Errors
    /// [`CompressError`] for the first payload that cannot be compressed.
    fn compress(self, compressor: &Compressor) -> Result<Self, CompressError>;
}

impl CompressRequest for OutboundRecord {
    fn compress(mut self, compressor: &Compressor) -> Result<Self, CompressError> {
        self.data = compressor.compress(&self.data)?;
        Ok(self)
    }
}

impl CompressRequest for OutboundBatch {
    fn compress(mut self, compressor: &Compressor) -> Result<Self, CompressError> {
        for record in &mut self.records {
            record.data = compressor.compress(&record.data)?;
        }
        Ok(self)
    }
}
