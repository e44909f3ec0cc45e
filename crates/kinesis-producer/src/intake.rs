//! What happens to a record on the caller's task: it is checked and, where that is possible before others join it,
//! compressed.

use kinesis_core::OutboundRecord;
use kinesis_kpl::check_same_key;

use crate::ProducerConfig;
use crate::encoding::Encoding;
use crate::error::PutError;
use crate::receipt::{Pending, Receipt};

/// `put_batch` lets other tasks run after compressing so many bytes, which takes a few milliseconds.
const BYTES_PER_TURN: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Intake {
    encoding: Option<Encoding>,
    /// Payloads of records that are larger than this are compressed here: they never share an aggregate that is
    /// compressed as a whole.
    encode_above: usize,
    max_record_bytes: usize,
    max_input_bytes: usize,
    same_key: bool,
}

impl Intake {
    pub(crate) fn new(config: &ProducerConfig, encoding: Option<Encoding>) -> Self {
        Self {
            encoding,
            encode_above: if config.encodes_each() { 0 } else { config.aggregate_bytes },
            max_record_bytes: config.max_record_bytes,
            max_input_bytes: config.input_limit(),
            same_key: config.partition_key_safety,
        }
    }

    /// Checks what can be told at a glance.
    pub(crate) fn check(&self, record: &OutboundRecord) -> Result<(), PutError> {
        if !record.partition_key.is_valid() {
            return Err(PutError::InvalidKey { chars: record.partition_key.as_str().chars().count() });
        }
        let (size, limit) = (record.wire_len(), self.max_input_bytes);
        match (size <= limit, &self.encoding) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(PutError::InputTooLarge { size, limit }),
            (false, None) => Err(PutError::TooLarge { size, limit }),
        }
    }

    pub(crate) fn check_batch(&self, records: &[OutboundRecord]) -> Result<(), PutError> {
        for (index, record) in records.iter().enumerate() {
            self.check(record).map_err(|error| in_batch(index, error))?;
        }
        if self.same_key {
            check_same_key(records.iter().map(|record| record.partition_key.as_str()))
                .map_err(|mismatch| PutError::PartitionKeyMismatch { index: mismatch.position })?;
        }
        Ok(())
    }

    /// Compresses a checked record where it is to be, and checks what is left of it.
    pub(crate) fn take(&self, record: OutboundRecord) -> Result<(Pending, Receipt), PutError> {
        let encoding = self.encoding.as_ref().filter(|_| record.wire_len() > self.encode_above);
        let encoded = encoding.and_then(|encoding| encoding.encode(&record.data));
        let (input, limit) = (record.wire_len(), self.max_record_bytes);
        let size = encoded.as_ref().map_or(input, |data| data.len() + record.partition_key.byte_len());
        if size > limit {
            return Err(PutError::TooLargeCompressed { input, size, limit });
        }
        Ok(Pending::new(record, encoded))
    }

    /// Like [`take`](Self::take), for all of them or none. Cancel-safe: what is dropped was not put.
    pub(crate) async fn take_batch(
        &self,
        records: Vec<OutboundRecord>,
    ) -> Result<(Vec<Pending>, Vec<Receipt>), PutError> {
        let (mut batch, mut receipts) =
            (Vec::with_capacity(records.len()), Vec::with_capacity(records.len()));
        let mut bytes = 0;
        for (index, record) in records.into_iter().enumerate() {
            bytes += record.data.len();
            let (pending, receipt) = self.take(record).map_err(|error| in_batch(index, error))?;
            batch.push(pending);
            receipts.push(receipt);
            if self.encoding.is_some() && bytes > BYTES_PER_TURN {
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok((batch, receipts))
    }
}

fn in_batch(index: usize, error: PutError) -> PutError {
    PutError::InvalidRecord { index, source: Box::new(error) }
}
