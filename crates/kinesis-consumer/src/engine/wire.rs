//! The wire stage: Kinesis records to user records, before a handler sees them.

use std::sync::Arc;

use kinesis_core::payload::{DecodeError, Decoded, PayloadDecoder};
use kinesis_core::source::SourceRecord;
use kinesis_core::{Position, Record, ShardRef};

/// Turns what the service returned into user records with their final positions.
#[derive(Debug, Clone)]
pub(crate) struct WireStage {
    decoders: Arc<[Arc<dyn PayloadDecoder>]>,
    max_decoded_bytes: usize,
}

/// A user record, and what it was on the wire.
#[derive(Debug)]
pub(crate) struct WireRecord {
    pub(crate) record: Record,
    /// Payload bytes on the wire.
    pub(crate) wire_bytes: u64,
    /// Set when the payload could not be decoded; the record then has the bytes as they came.
    pub(crate) failure: Option<DecodeError>,
}

impl WireStage {
    pub(crate) fn new(decoders: Vec<Arc<dyn PayloadDecoder>>, max_decoded_bytes: usize) -> Self {
        Self { decoders: decoders.into(), max_decoded_bytes }
    }

    /// Decodes one Kinesis record.
    pub(crate) fn decode(&self, source: &ShardRef, raw: SourceRecord) -> WireRecord {
        let wire_bytes = raw.data.len() as u64;
        let mut data = raw.data.clone();
        let mut failure = None;
        for decoder in self.decoders.iter() {
            match decoder.decode(&data, self.max_decoded_bytes) {
                Ok(Decoded::Changed(decoded)) => data = decoded,
                Ok(_) => {}
                Err(error) => {
                    failure = Some(error);
                    data = raw.data;
                    break;
                }
            }
        }
        let record = Record::builder(source.clone(), Position::from(raw.sequence), data)
            .partition_key(raw.partition_key)
            .arrived_at(raw.arrived_at)
            .encryption(raw.encryption)
            .build();
        WireRecord { record, wire_bytes, failure }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kinesis_core::{ShardId, StreamRef};

    use super::*;

    /// Strips a one-byte header, of its own letter only.
    #[derive(Debug)]
    struct Strip(u8);

    impl PayloadDecoder for Strip {
        fn name(&self) -> &'static str {
            "strip"
        }

        fn decode(&self, payload: &Bytes, limit: usize) -> Result<Decoded, DecodeError> {
            match payload.first() {
                Some(first) if *first == self.0 && payload.len() - 1 > limit => {
                    Err(DecodeError::limit_exceeded("strip", limit))
                }
                Some(first) if *first == self.0 => Ok(Decoded::Changed(payload.slice(1..))),
                _ => Ok(Decoded::Unchanged),
            }
        }
    }

    fn decode(payload: &'static str, limit: usize) -> WireRecord {
        let stage = WireStage::new(vec![Arc::new(Strip(b'a')), Arc::new(Strip(b'b'))], limit);
        let shard = ShardRef::new(StreamRef::new("s").unwrap(), ShardId::new("shardId-0").unwrap());
        stage.decode(&shard, SourceRecord::new(7_u128.into(), None, Bytes::from_static(payload.as_bytes())))
    }

    #[test]
    fn decoders_run_in_order_and_pass_on_what_is_not_theirs() {
        for (payload, expected) in [("abx", "x"), ("bx", "x"), ("x", "x"), ("ax", "x")] {
            let decoded = decode(payload, 10);
            assert_eq!(decoded.record.data(), expected, "{payload}");
            assert_eq!(decoded.wire_bytes, payload.len() as u64);
            assert!(decoded.failure.is_none());
        }
    }

    #[test]
    fn a_payload_that_cannot_be_decoded_keeps_its_bytes() {
        let decoded = decode("abcdef", 3);
        assert!(matches!(decoded.failure, Some(DecodeError::LimitExceeded { limit: 3, .. })));
        assert_eq!(decoded.record.data(), "abcdef");
    }
}
