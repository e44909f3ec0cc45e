//! The wire stage: Kinesis records to user records, before a handler sees them.
//!
//! The decoders run on the whole payload, what comes out is split when it is an aggregate, and then the decoders run once
//! more on each of its records. So it does not matter whether a producer compressed the aggregate or the records.

#[cfg(feature = "kpl")]
mod split;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::payload::{DecodeError, Decoded, PayloadDecoder};
use kinesis_core::source::SourceRecord;
use kinesis_core::{
    Encryption, HashKeyRange, Origin, PartitionKey, Position, Record, SequenceNumber, ShardRef, Timestamp,
};

#[cfg(feature = "kpl")]
pub(crate) use split::Splitter;

/// Turns what the service returned into user records with their final positions.
#[derive(Debug, Clone)]
pub(crate) struct WireStage {
    decoders: Arc<[Arc<dyn PayloadDecoder>]>,
    max_decoded_bytes: usize,
    #[cfg(feature = "kpl")]
    splitter: Option<Splitter>,
}

/// A user record, and what it was on the wire.
#[derive(Debug)]
pub(crate) struct WireRecord {
    pub(crate) record: Record,
    /// Payload bytes on the wire; those of an aggregate are counted with its last record.
    pub(crate) wire_bytes: u64,
    /// Set when the payload could not be decoded; the record then has the bytes as they came.
    pub(crate) failure: Option<Failure>,
}

/// A payload that could not be decoded.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: DecodeError,
    /// It goes to the dead-letter service, whatever the failure policy says.
    pub(crate) skip: bool,
}

impl Failure {
    fn of(error: DecodeError) -> Self {
        Self { error, skip: false }
    }
}

/// What is worth counting about one Kinesis record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Notes {
    /// It looked like an aggregate and could not be split.
    pub(crate) undecoded: u64,
    /// User records left out because they belong to another shard.
    pub(crate) filtered: u64,
}

/// A Kinesis record on its way through the stage.
struct Raw<'a> {
    source: &'a ShardRef,
    sequence: SequenceNumber,
    partition_key: Option<PartitionKey>,
    arrived_at: Option<Timestamp>,
    encryption: Encryption,
    data: Bytes,
    wire_bytes: u64,
}

impl Raw<'_> {
    fn whole(self, origin: Origin, failure: Option<Failure>) -> WireRecord {
        let record = Record::builder(self.source.clone(), Position::from(self.sequence), self.data)
            .partition_key(self.partition_key)
            .arrived_at(self.arrived_at)
            .origin(origin)
            .encryption(self.encryption)
            .build();
        WireRecord { record, wire_bytes: self.wire_bytes, failure }
    }
}

impl WireStage {
    /// A stage that runs `decoders` and splits nothing.
    pub(crate) fn new(decoders: Vec<Arc<dyn PayloadDecoder>>, max_decoded_bytes: usize) -> Self {
        Self {
            decoders: decoders.into(),
            max_decoded_bytes,
            #[cfg(feature = "kpl")]
            splitter: None,
        }
    }

    /// Splits aggregates too.
    #[cfg(feature = "kpl")]
    pub(crate) fn splitting(mut self, splitter: Splitter) -> Self {
        self.splitter = Some(splitter);
        self
    }

    /// Decodes one Kinesis record of a shard whose hash keys are `range`, and appends its user records to `out`.
    pub(crate) fn decode(
        &self,
        source: &ShardRef,
        range: Option<HashKeyRange>,
        raw: SourceRecord,
        out: &mut VecDeque<WireRecord>,
    ) -> Notes {
        let wire_bytes = raw.data.len() as u64;
        let (data, failure) = self.run(raw.data, &mut self.max_decoded_bytes.clone());
        let raw = Raw {
            source,
            sequence: raw.sequence,
            partition_key: raw.partition_key,
            arrived_at: raw.arrived_at,
            encryption: raw.encryption,
            data,
            wire_bytes,
        };
        #[cfg(feature = "kpl")]
        if let (Some(splitter), None) = (self.splitter, &failure) {
            return splitter.split(self, raw, range, out);
        }
        // Without the feature nobody asks for the range.
        let _ = range;
        out.push_back(raw.whole(Origin::Plain, failure.map(Failure::of)));
        Notes::default()
    }

    /// Runs the decoders. `left` is how many bytes may come out, and shrinks by what does; after a failure the payload is
    /// what it was.
    fn run(&self, payload: Bytes, left: &mut usize) -> (Bytes, Option<DecodeError>) {
        let mut data = payload.clone();
        let mut grown = 0;
        for decoder in self.decoders.iter() {
            match decoder.decode(&data, *left) {
                Ok(Decoded::Changed(decoded)) => {
                    grown = decoded.len();
                    data = decoded;
                }
                Ok(_) => {}
                Err(error) => return (payload, Some(self.in_full(error))),
            }
        }
        *left = left.saturating_sub(grown);
        (data, None)
    }

    /// A decoder knows what is left of the limit; the user knows the limit.
    fn in_full(&self, error: DecodeError) -> DecodeError {
        match error {
            DecodeError::LimitExceeded { decoder, .. } => {
                DecodeError::limit_exceeded(decoder, self.max_decoded_bytes)
            }
            other => other,
        }
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

    fn shard() -> ShardRef {
        ShardRef::new(StreamRef::new("s").unwrap(), ShardId::new("shardId-0").unwrap())
    }

    fn stage(limit: usize) -> WireStage {
        WireStage::new(vec![Arc::new(Strip(b'a')), Arc::new(Strip(b'b'))], limit)
    }

    fn decode(payload: &'static str, limit: usize) -> WireRecord {
        let mut out = VecDeque::new();
        let raw = SourceRecord::new(7_u128.into(), None, Bytes::from_static(payload.as_bytes()));
        assert_eq!(stage(limit).decode(&shard(), None, raw, &mut out), Notes::default());
        assert_eq!(out.len(), 1);
        out.remove(0).unwrap()
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
        let failure = decoded.failure.unwrap();
        assert!(matches!(failure.error, DecodeError::LimitExceeded { limit: 3, .. }));
        assert!(!failure.skip);
        assert_eq!(decoded.record.data(), "abcdef");
    }
}
