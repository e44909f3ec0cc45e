//! Properties over random records and random bytes, with prost as the judge.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "support/frame.rs"]
mod frame;
#[path = "support/judge.rs"]
mod judge;
#[path = "support/proto.rs"]
mod proto;

use bytes::Bytes;
use frame::frame;
use judge::{Plain, plain};
use kinesis_core::{HashKey, Tag};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, Checksum, Deaggregated, Deaggregator, KeyMode, Lone,
    MAX_BYTES_LIMIT, Reason, RecordRef, Refusal, Strictness, check_same_key, deaggregate, group_by_key,
    is_aggregated,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use proto::AggregatedRecord;

/// A record to pack.
#[derive(Debug, Clone)]
struct Input {
    key: String,
    hash: Option<u128>,
    data: Vec<u8>,
    tags: Vec<Tag>,
}

impl Input {
    fn record(&self) -> RecordRef<'_> {
        RecordRef::new(&self.key, &self.data).explicit_hash_key(self.hash.map(HashKey::new)).tags(&self.tags)
    }

    fn plain(&self) -> Plain {
        Plain {
            partition_key: self.key.clone(),
            explicit_hash_key: self.hash.map(|hash| hash.to_string()),
            data: self.data.clone(),
            tags: self.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        }
    }
}

fn input() -> impl Strategy<Value = Input> {
    let key = prop_oneof![4 => "[a-d]", 2 => "[0-9]{1,3}", 1 => "\\PC{1,60}", 1 => Just("k".repeat(256))];
    let hash = prop::option::weighted(0.3, prop_oneof![any::<u128>(), 0..5_u128, Just(u128::MAX)]);
    let tag = ("[a-z]{0,3}", prop::option::of("\\PC{0,5}")).prop_map(|(key, value)| Tag { key, value });
    let tags = prop_oneof![9 => Just(Vec::new()), 1 => vec(tag, 1..3)];
    (key, hash, vec(any::<u8>(), 0..300), tags).prop_map(|(key, hash, data, tags)| Input {
        key,
        hash,
        data,
        tags,
    })
}

fn framing(max_bytes: usize) -> Aggregator {
    Aggregator::new(AggregatorConfig::default().max_bytes(max_bytes).lone(Lone::Framed)).unwrap()
}

fn message(aggregate: &[u8]) -> &[u8] {
    &aggregate[4..aggregate.len() - 16]
}

proptest! {
    /// S-119, S-121, S-122, S-129: what we write, prost reads, and what prost writes are our very bytes.
    #[test]
    fn prost_reads_and_writes_the_same_bytes(inputs in vec(input(), 1..200)) {
        let mut aggregator = framing(MAX_BYTES_LIMIT);
        for input in &inputs {
            prop_assert!(aggregator.try_push(input.record()).is_ok());
        }
        let bytes = aggregator.finish().unwrap().into_data();
        let expected: Vec<Plain> = inputs.iter().map(Input::plain).collect();

        let theirs = AggregatedRecord::decode(message(&bytes)).unwrap();
        prop_assert_eq!(theirs.user_records(), Some(expected.clone()));
        prop_assert_eq!(frame(&theirs.encode_to_vec()), bytes.to_vec());

        let ours = Aggregate::parse(bytes.clone()).unwrap();
        prop_assert_eq!(plain(&ours), expected.clone());
        let owned: Vec<_> = ours.into_records().collect();
        prop_assert_eq!(owned.len(), inputs.len());
        for (position, (record, input)) in owned.iter().zip(&inputs).enumerate() {
            prop_assert_eq!(record.partition_key.as_str(), &input.key);
            prop_assert_eq!(record.explicit_hash_key.as_ref().and_then(|key| key.hash_key()), input.hash.map(HashKey::new));
            prop_assert_eq!(&record.data[..], &input.data[..]);
            prop_assert_eq!(record.tags.as_deref().unwrap_or_default(), &input.tags[..]);
            prop_assert_eq!((record.sub_sequence, record.count), (position as u64, inputs.len() as u64));
        }
    }

    /// S-119, S-125: on any message prost can read, we read the same, or say what is missing.
    #[test]
    fn what_prost_reads_we_read(message in message_like()) {
        let bytes = frame(&message);
        let ours = Aggregate::parse(&bytes[..]);
        let Ok(theirs) = AggregatedRecord::decode(&message[..]) else {
            return Ok(());
        };
        // Prost refuses bad text everywhere; the tables may hold what prost's message does not show.
        match (ours, theirs.user_records()) {
            (Ok(ours), Some(expected)) => prop_assert_eq!(plain(&ours), expected),
            (Err(Reason::MissingField | Reason::IndexOutOfRange), None) => {}
            (Err(Reason::TooShort), Some(expected)) => prop_assert!(message.is_empty() && expected.is_empty()),
            (ours, expected) => prop_assert!(false, "ours {:?}, prost {:?}", ours.err(), expected.is_some()),
        }
    }

    /// S-123, S-124: without the magic nothing changes, in any mode; the bytes are not even copied.
    #[test]
    fn plain_records_pass_through_unchanged(data in vec(any::<u8>(), 0..200)) {
        prop_assume!(!is_aggregated(&data));
        let data = Bytes::from(data);
        for strictness in [Strictness::Lenient, Strictness::Strict] {
            let done = Deaggregator::new().strictness(strictness).deaggregate(data.clone()).unwrap();
            let Deaggregated::Raw { reason: Reason::NotAggregated, data: raw, .. } = done else {
                panic!("not passed through");
            };
            prop_assert_eq!(raw.as_ptr(), data.as_ptr());
            prop_assert_eq!(raw.len(), data.len());
        }
    }

    /// S-120, S-125: one changed bit anywhere is noticed, and the bytes come back whole.
    #[test]
    fn a_flipped_bit_is_noticed(inputs in vec(input(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut aggregator = framing(MAX_BYTES_LIMIT);
        for input in &inputs {
            prop_assert!(aggregator.try_push(input.record()).is_ok());
        }
        let mut bytes = aggregator.finish().unwrap().into_data().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let expected = if at < 4 { Reason::NotAggregated } else { Reason::BadDigest };
        let Deaggregated::Raw { reason, data, .. } = deaggregate(bytes.clone().into()) else {
            panic!("a changed aggregate was split");
        };
        prop_assert_eq!(reason, expected);
        prop_assert_eq!(data, bytes);
    }

    /// S-125: nothing panics, and lenient, strict, borrowed, owned and batched agree.
    #[test]
    fn any_bytes_have_one_outcome_in_all_ways(message in message_like(), good_digest in any::<bool>()) {
        let mut bytes = frame(&message);
        if !good_digest {
            bytes.pop();
        }
        let bytes = Bytes::from(bytes);
        let view = Aggregate::parse(&bytes[..]);
        let unchecked = Aggregate::parse_with(&bytes[..], Checksum::Skip);
        let lenient = deaggregate(bytes.clone());
        let strict = Deaggregator::new().strictness(Strictness::Strict).deaggregate(bytes.clone());
        let many = Deaggregator::new().deaggregate_many([bytes.clone(), Bytes::new(), bytes.clone(), bytes.clone()]);
        match view {
            Ok(view) => {
                let records = plain(&view);
                prop_assert_eq!(plain(&unchecked.unwrap()), records.clone());
                for done in [lenient, strict.unwrap(), many[0].clone().unwrap(), many[3].clone().unwrap()] {
                    let Deaggregated::Records(aggregate) = done else { panic!("not split") };
                    prop_assert_eq!(aggregate.count(), records.len());
                    prop_assert_eq!(plain(&aggregate), records.clone());
                    prop_assert_eq!(aggregate.into_records().len(), records.len());
                }
            }
            Err(expected) => {
                prop_assert_eq!(lenient.reason(), Some(expected));
                prop_assert_eq!(strict.err().map(|error| error.reason()), (!expected.is_plain()).then_some(expected));
                prop_assert_eq!(many[3].as_ref().unwrap().reason(), Some(expected));
                prop_assert_eq!(unchecked.err().is_some(), expected != Reason::BadDigest || message_is_bad(&bytes));
            }
        }
    }

    /// S-127, F-31: packed to any limit, the announced size is the real one and never above; what does not fit is
    /// given back, and nothing is lost or reordered.
    #[test]
    fn sizes_are_exact_and_within_the_limit(inputs in vec(input(), 1..120), max_bytes in 64..3_000_usize) {
        let mut aggregator = Aggregator::new(AggregatorConfig::default().max_bytes(max_bytes)).unwrap();
        let mut out: Vec<Plain> = Vec::new();
        let collect = |aggregator: &mut Aggregator, out: &mut Vec<Plain>, pushed: &mut Vec<Plain>| {
            let announced = aggregator.encoded_len();
            let Some(packed) = aggregator.finish() else { return Ok(()) };
            prop_assert_eq!(packed.data().len(), announced);
            prop_assert!(packed.data().len() + packed.partition_key().as_str().len() <= max_bytes);
            if packed.is_framed() {
                out.extend(plain(&Aggregate::parse(packed.into_data()).unwrap()));
            } else {
                prop_assert_eq!(&packed.data()[..], &pushed[0].data[..]);
                prop_assert_eq!(packed.partition_key().as_str(), &pushed[0].partition_key);
                prop_assert_eq!(packed.explicit_hash_key().map(|key| key.to_string()), pushed[0].explicit_hash_key.clone());
                out.push(pushed[0].clone());
            }
            pushed.clear();
            Ok::<(), TestCaseError>(())
        };
        let mut pushed = Vec::new();
        for input in &inputs {
            if let Err(refused) = aggregator.try_push(input.record()) {
                collect(&mut aggregator, &mut out, &mut pushed)?;
                match refused.why {
                    Refusal::Full => prop_assert!(aggregator.try_push(refused.record).is_ok()),
                    Refusal::SendAlone => {
                        prop_assert_eq!(aggregator.try_push(refused.record).unwrap_err().why, Refusal::SendAlone);
                        out.push(input.plain());
                        continue;
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            pushed.push(input.plain());
        }
        collect(&mut aggregator, &mut out, &mut pushed)?;
        prop_assert_eq!(out, inputs.iter().map(Input::plain).collect::<Vec<_>>());
    }

    /// S-137: with the same-key mode no aggregate mixes keys.
    #[test]
    fn no_aggregate_mixes_keys_in_same_key_mode(inputs in vec(input(), 1..60)) {
        let mut aggregator = Aggregator::new(AggregatorConfig::default().key_mode(KeyMode::Same)).unwrap();
        let mut packed = Vec::new();
        for input in &inputs {
            if let Err(refused) = aggregator.try_push(input.record()) {
                prop_assert_eq!(refused.why, Refusal::OtherPartitionKey);
                packed.extend(aggregator.finish());
                prop_assert!(aggregator.try_push(refused.record).is_ok());
            }
        }
        packed.extend(aggregator.finish());
        prop_assert_eq!(packed.iter().map(|packed| packed.records()).sum::<usize>(), inputs.len());
        for packed in packed.iter().filter(|packed| packed.is_framed()) {
            let aggregate = Aggregate::parse(packed.data().clone()).unwrap();
            let keys: Vec<&str> = aggregate.iter().map(|record| record.partition_key()).collect();
            prop_assert!(keys.iter().all(|key| *key == packed.partition_key().as_str()));
        }
    }

    /// S-134, S-136: batches grouped by key pass the check, and grouping loses nothing.
    #[test]
    fn grouped_batches_have_one_key(keys in vec("[a-c]", 0..40)) {
        let batches = group_by_key(keys.iter().enumerate(), |(_, key)| key.as_str());
        for batch in &batches {
            prop_assert!(check_same_key(batch.iter().map(|(_, key)| key.as_str())).is_ok());
            prop_assert!(batch.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        prop_assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), keys.len());
    }
}

fn message_is_bad(bytes: &[u8]) -> bool {
    Aggregate::parse_with(bytes, Checksum::Skip).is_err()
}

/// Bytes that are a message, or nearly.
fn message_like() -> impl Strategy<Value = Vec<u8>> {
    let noise = vec(any::<u8>(), 0..80);
    // Fields of the format and others, well formed most of the time.
    let field = prop_oneof![
        vec(97..100_u8, 0..3).prop_map(|text| delimited(0x0A, &text)),
        vec(48..58_u8, 0..3).prop_map(|text| delimited(0x12, &text)),
        vec(record_field(), 0..5).prop_map(|fields| delimited(0x1A, &fields.concat())),
        vec(any::<u8>(), 0..6).prop_map(|bytes| delimited(0x1A, &bytes)),
        record_field(),
    ];
    let fields = vec(field, 0..8).prop_map(|fields| fields.concat());
    let damaged =
        (fields.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, value)| {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes
        });
    prop_oneof![1 => noise, 4 => fields, 2 => damaged]
}

fn record_field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..3_u8).prop_map(|index| vec![0x08, index]),
        1 => (0..3_u8).prop_map(|index| vec![0x08, 0x80 | index, 0x80, 0]),
        2 => (0..2_u8).prop_map(|index| vec![0x10, index]),
        4 => vec(any::<u8>(), 0..4).prop_map(|data| delimited(0x1A, &data)),
        1 => vec(97..100_u8, 0..3).prop_map(|key| delimited(0x22, &delimited(0x0A, &key))),
        1 => Just(vec![0x28, 0x80, 1]),
        1 => Just(vec![0x31, 1, 2, 3, 4, 5, 6, 7, 8]),
        1 => Just(vec![0x3B, 0x08, 1, 0x3C]),
        1 => Just(vec![0x45, 1, 2, 3, 4]),
    ]
}

fn delimited(key: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![key, bytes.len() as u8];
    field.extend_from_slice(bytes);
    field
}
