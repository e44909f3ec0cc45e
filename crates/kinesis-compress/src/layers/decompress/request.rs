use kinesis_core::{Record, RecordBatch};

use crate::{Decompressor, RecordDecompressError};

/// What [`DecompressLayer`](crate::DecompressLayer) works on: a record, or a batch of them.
///
/// Implement it for a request type of your own to use the layer there.
pub trait DecompressRequest: Sized {
    /// The same request with its payloads decompressed.
    ///
    /// # Errors
    /// [`RecordDecompressError`] for the first payload that does not decompress.
    fn decompress(self, decompressor: &Decompressor) -> Result<Self, RecordDecompressError>;
}

impl DecompressRequest for Record {
    fn decompress(self, decompressor: &Decompressor) -> Result<Self, RecordDecompressError> {
        let limit = decompressor.max_output_bytes();
        within(self, decompressor, limit)
    }
}

impl DecompressRequest for RecordBatch {
    fn decompress(self, decompressor: &Decompressor) -> Result<Self, RecordDecompressError> {
        if !self.records().iter().any(|record| decompressor.recognises(record.data())) {
            return Ok(self);
        }
        let mut room = decompressor.max_batch_output_bytes();
        let mut records = Vec::with_capacity(self.len());
        for record in self.records() {
            let record = within(record.clone(), decompressor, room)?;
            // Payloads that were passed on count too: a little strict, and simple.
            room = room.saturating_sub(record.data().len());
            records.push(record);
        }
        Ok(self.with_records(records))
    }
}

/// The record with a payload of at most `limit` bytes.
fn within(
    record: Record,
    decompressor: &Decompressor,
    limit: usize,
) -> Result<Record, RecordDecompressError> {
    match decompressor.try_decompress(record.data(), limit) {
        Ok(Some(plain)) => Ok(record.with_data(plain)),
        Ok(None) => Ok(record),
        Err(source) => Err(RecordDecompressError::new(&record, source)),
    }
}
