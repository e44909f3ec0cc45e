//! Aggregates of the KPL, split into their user records.

use std::collections::VecDeque;

use kinesis_core::payload::DecodeError;
use kinesis_core::{HashKeyRange, Origin, Position, Record};
use kinesis_kpl::{Deaggregated, RangeFilter, UserRecord};

use super::{Failure, Notes, Raw, WireRecord, WireStage};
use crate::Undecoded;

/// How aggregates are split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Splitter {
    pub(crate) undecoded: Undecoded,
    pub(crate) range_filter: RangeFilter,
}

impl Splitter {
    /// Splits what came out of the decoders, or hands it on whole.
    pub(super) fn split(
        self,
        stage: &WireStage,
        raw: Raw<'_>,
        range: Option<HashKeyRange>,
        out: &mut VecDeque<WireRecord>,
    ) -> Notes {
        let mut aggregate = match kinesis_kpl::deaggregate(raw.data.clone()) {
            Deaggregated::Records(aggregate) => aggregate,
            Deaggregated::Raw { reason, .. } if reason.is_plain() => {
                out.push_back(raw.whole(Origin::Plain, None));
                return Notes::default();
            }
            undecoded => {
                let reason = undecoded.reason().expect("it was not split");
                let error = || DecodeError::damaged("kpl", reason);
                let failure = match self.undecoded {
                    Undecoded::PassOn => None,
                    Undecoded::Fail => Some(Failure { error: error(), skip: false }),
                    Undecoded::DeadLetter => Some(Failure { error: error(), skip: true }),
                };
                let origin = reason.undecoded().map_or(Origin::Plain, |reason| Origin::Undecoded { reason });
                out.push_back(raw.whole(origin, failure));
                return Notes { undecoded: 1, ..Notes::default() };
            }
        };
        let mut filtered = 0;
        if let Some(range) = range {
            filtered = aggregate.retain_in_range(self.range_filter, range).dropped as u64;
        }
        let (mut left, before) = (stage.max_decoded_bytes, out.len());
        out.extend(aggregate.into_records().map(|user| user_record(stage, &raw, user, &mut left)));
        // With the last one, because that is always delivered when an aggregate is read again that was finished in part.
        if let Some(last) = out.range_mut(before..).next_back() {
            last.wire_bytes = raw.wire_bytes;
        }
        Notes { filtered, ..Notes::default() }
    }
}

/// `left` is what the user records of the aggregate may still grow to.
fn user_record(stage: &WireStage, raw: &Raw<'_>, user: UserRecord, left: &mut usize) -> WireRecord {
    let origin = user.origin();
    let (data, failure) = stage.run(user.data, left);
    let record =
        Record::builder(raw.source.clone(), Position::new(raw.sequence.clone(), user.sub_sequence), data)
            .partition_key(Some(user.partition_key))
            .explicit_hash_key(user.explicit_hash_key.and_then(|key| key.hash_key()))
            .arrived_at(raw.arrived_at)
            .origin(origin)
            .tags(user.tags)
            .encryption(raw.encryption)
            .build();
    WireRecord { record, wire_bytes: 0, failure: failure.map(Failure::of) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use kinesis_core::payload::{Decoded, PayloadDecoder};
    use kinesis_core::source::SourceRecord;
    use kinesis_core::{HashKey, ShardId, ShardRef, StreamRef, UndecodedReason};
    use kinesis_kpl::{Aggregator, AggregatorConfig, RecordRef};

    use super::*;

    /// Doubles what begins with `2`.
    #[derive(Debug)]
    struct Double;

    impl PayloadDecoder for Double {
        fn name(&self) -> &'static str {
            "double"
        }

        fn decode(&self, payload: &Bytes, limit: usize) -> Result<Decoded, DecodeError> {
            match payload.strip_prefix(b"2") {
                None => Ok(Decoded::Unchanged),
                Some(rest) if rest.len() * 2 > limit => Err(DecodeError::limit_exceeded("double", limit)),
                Some(rest) => Ok(Decoded::Changed([rest, rest].concat().into())),
            }
        }
    }

    fn aggregate(payloads: &[&str]) -> Bytes {
        let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
        for (index, payload) in payloads.iter().enumerate() {
            let key = index.to_string();
            aggregator.try_push(RecordRef::new(&key, payload.as_bytes())).unwrap();
        }
        aggregator.finish().unwrap().into_data()
    }

    fn run(data: Bytes, undecoded: Undecoded, limit: usize) -> (VecDeque<WireRecord>, Notes) {
        run_in(data, Splitter { undecoded, range_filter: RangeFilter::Off }, None, limit)
    }

    fn run_in(
        data: Bytes,
        splitter: Splitter,
        range: Option<HashKeyRange>,
        limit: usize,
    ) -> (VecDeque<WireRecord>, Notes) {
        let shard = ShardRef::new(StreamRef::new("s").unwrap(), ShardId::new("shardId-0").unwrap());
        let stage = WireStage::new(vec![Arc::new(Double)], limit).splitting(splitter);
        let mut out = VecDeque::new();
        let notes = stage.decode(&shard, range, SourceRecord::new(7_u128.into(), None, data), &mut out);
        (out, notes)
    }

    fn texts(records: &VecDeque<WireRecord>) -> Vec<&str> {
        records.iter().map(|wire| std::str::from_utf8(wire.record.data()).unwrap()).collect()
    }

    #[test]
    fn an_aggregate_is_split_and_each_record_decoded_once_more() {
        let data = aggregate(&["x", "2ab", ""]);
        let size = data.len() as u64;
        let (records, notes) = run(data, Undecoded::PassOn, 100);
        assert_eq!(texts(&records), ["x", "abab", ""]);
        assert_eq!(notes, Notes::default());
        for (index, wire) in (0..).zip(&records) {
            assert_eq!(*wire.record.position(), Position::new(7_u128.into(), index));
            assert_eq!(wire.record.origin(), Origin::Aggregated { index, count: 3 });
            assert_eq!(wire.record.partition_key().unwrap().as_str(), index.to_string());
        }
        assert_eq!(records.iter().map(|wire| wire.wire_bytes).collect::<Vec<_>>(), [0, 0, size]);
    }

    #[test]
    fn the_records_of_one_aggregate_share_the_limit() {
        let (records, _) = run(aggregate(&["2abc", "plain", "2abc", "2ab"]), Undecoded::PassOn, 10);
        assert_eq!(texts(&records), ["abcabc", "plain", "2abc", "abab"]);
        let failure = records[2].failure.as_ref().unwrap();
        assert!(
            matches!(failure.error, DecodeError::LimitExceeded { limit: 10, .. }),
            "the limit as it was set"
        );
        assert_eq!(records.iter().filter(|wire| wire.failure.is_some()).count(), 1);
    }

    #[test]
    fn a_broken_aggregate_is_treated_as_chosen() {
        let mut broken = aggregate(&["x", "y"]).to_vec();
        broken[6] ^= 1;
        let broken = Bytes::from(broken);
        for (choice, skip) in
            [(Undecoded::PassOn, None), (Undecoded::Fail, Some(false)), (Undecoded::DeadLetter, Some(true))]
        {
            let (records, notes) = run(broken.clone(), choice, 100);
            assert_eq!(records.len(), 1);
            assert_eq!(*records[0].record.data(), broken);
            assert_eq!(records[0].record.origin(), Origin::Undecoded { reason: UndecodedReason::BadDigest });
            assert_eq!(records[0].failure.as_ref().map(|failure| failure.skip), skip);
            assert_eq!(notes, Notes { undecoded: 1, filtered: 0 });
        }
    }

    #[test]
    fn records_of_another_shard_are_left_out_only_when_asked() {
        let lowest = ["0", "1", "2"].into_iter().map(kinesis_kpl::hash_key).min().unwrap();
        let range = HashKeyRange::new(HashKey::MIN, lowest).unwrap();
        for (range_filter, left) in
            [(RangeFilter::Off, 3), (RangeFilter::PerRecord, 1), (RangeFilter::KclCompatible, 0)]
        {
            let splitter = Splitter { undecoded: Undecoded::PassOn, range_filter };
            let (records, notes) = run_in(aggregate(&["x", "y", "z"]), splitter, Some(range), 100);
            assert_eq!(records.len(), left);
            assert_eq!(notes, Notes { undecoded: 0, filtered: 3 - left as u64 });
        }
    }
}
