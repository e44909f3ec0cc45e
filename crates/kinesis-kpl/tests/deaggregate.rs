//! Splitting, case by case. The vectors and properties cover the breadth.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "support/frame.rs"]
mod frame;
#[allow(dead_code, reason = "other tests read whole messages")]
#[path = "support/proto.rs"]
mod proto;

use std::error::Error as _;

use bytes::Bytes;
use frame::frame;
use kinesis_core::{HashKey, HashKeyRange, Origin, OutboundRecord, Position, SequenceNumber};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, Checksum, Deaggregated, Deaggregator, InvalidAggregate, Lone,
    MAGIC, RangeFilter, Reason, RecordRef, Strictness, deaggregate, is_aggregated, unnest,
};

fn pack(records: &[(&str, &[u8])]) -> Bytes {
    let mut aggregator = Aggregator::new(AggregatorConfig::default().lone(Lone::Framed)).unwrap();
    for (key, data) in records {
        aggregator.try_push(RecordRef::new(key, data)).unwrap();
    }
    aggregator.finish().unwrap().into_data()
}

fn split(data: Bytes) -> Aggregate<Bytes> {
    match deaggregate(data) {
        Deaggregated::Records(aggregate) => aggregate,
        other => panic!("not split: {other:?}"),
    }
}

/// S-118: the predicate looks at the four magic bytes and nothing else.
#[test]
fn aggregates_are_recognised_by_their_magic() {
    assert_eq!(MAGIC, [0xF3, 0x89, 0x9A, 0xC2]);
    assert!(is_aggregated(&MAGIC));
    assert!(is_aggregated(&pack(&[("a", b"1")])));
    for plain in [&b""[..], &MAGIC[..3], b"{}", b"\x00\xF3\x89\x9A\xC2", b"\xF3\x89\x9A\xC3"] {
        assert!(!is_aggregated(plain));
    }
}

/// S-119: magic, protobuf, MD5 of the protobuf: each byte of a small aggregate.
#[test]
fn the_layout_is_magic_message_digest() {
    let bytes = pack(&[("k", b"v")]);
    let message = [0x0A, 1, b'k', 0x1A, 5, 0x08, 0, 0x1A, 1, b'v'];
    assert_eq!(bytes[..4], MAGIC);
    assert_eq!(bytes[4..bytes.len() - 16], message);
    assert_eq!(bytes, frame(&message));
}

/// S-120: a wrong digest is noticed; by default the bytes are passed on, in strict mode they come with the error, and
/// who trusts them reads them all the same.
#[test]
fn a_wrong_digest_is_noticed_and_may_be_ignored_by_choice() {
    let mut damaged = pack(&[("a", b"1"), ("b", b"2")]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = Bytes::from(damaged);

    let Deaggregated::Raw { reason, data, .. } = deaggregate(damaged.clone()) else { panic!("split") };
    assert_eq!((reason, &data), (Reason::BadDigest, &damaged));

    let strict = Deaggregator::new().strictness(Strictness::Strict);
    let error = strict.deaggregate(damaged.clone()).unwrap_err();
    assert_eq!(error.reason(), Reason::BadDigest);
    assert_eq!(error.into_data(), damaged);

    let Deaggregated::Records(aggregate) = strict.checksum(Checksum::Skip).deaggregate(damaged).unwrap()
    else {
        panic!("not split")
    };
    assert_eq!(aggregate.len(), 2);
}

/// S-062, S-122, F-29: records carry their data, their place from 0 and the count; with the sequence number that is a
/// position between those of their neighbours.
#[test]
fn records_carry_data_place_and_count() {
    let records: Vec<_> = split(pack(&[("a", b"1"), ("b", b""), ("a", b"3")])).into_records().collect();
    let seen: Vec<_> =
        records.iter().map(|r| (&r.data[..], r.partition_key.as_str(), r.sub_sequence, r.count)).collect();
    assert_eq!(seen, [(&b"1"[..], "a", 0, 3), (b"", "b", 1, 3), (b"3", "a", 2, 3)]);
    assert_eq!(records[1].origin(), Origin::Aggregated { index: 1, count: 3 });

    let sequence: SequenceNumber =
        "49590338271490256608559692538361571095921575989136588898".parse().unwrap();
    let positions: Vec<Position> =
        records.iter().map(|record| Position::new(sequence.clone(), record.sub_sequence)).collect();
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(positions[0], Position::from(sequence));
}

/// S-123: owned data are slices of the Kinesis record, not copies; so are raw ones.
#[test]
fn nothing_is_copied() {
    let bytes = pack(&[("a", b"first"), ("b", b"second")]);
    let within = |data: &Bytes| bytes.as_ptr_range().contains(&data.as_ptr());
    assert!(split(bytes.clone()).into_records().all(|record| within(&record.data)));

    let plain = Bytes::from(b"{\"plain\": true}".to_vec());
    let Deaggregated::Raw { data, .. } = deaggregate(plain.clone()) else { panic!("split") };
    assert_eq!(data.as_ptr(), plain.as_ptr());
}

/// Records with the same key share one handle, and a key does not keep the aggregate's buffer alive.
#[test]
fn keys_are_made_once_and_shared() {
    // Shorter keys are kept in place.
    let (same, other) = ("the same key, longer than most", "another key, longer than most");
    let records: Vec<_> = split(pack(&[(same, b"1"), (other, b"2"), (same, b"3")])).into_records().collect();
    let address = |place: usize| records[place].partition_key.as_str().as_ptr();
    assert_eq!(address(0), address(2));
    assert_ne!(address(0), address(1));
}

/// S-064, S-124: a stream without aggregation reads as it is: plain, place 0.
#[test]
fn a_plain_record_stays_plain() {
    let done = deaggregate(Bytes::from_static(b"no aggregate"));
    assert_eq!(done.reason(), Some(Reason::NotAggregated));
    assert_eq!(done.reason().and_then(Reason::undecoded), None);
    assert_eq!(Origin::default(), Origin::Plain);
    assert_eq!(Position::from(SequenceNumber::ZERO).sub_sequence(), 0);
}

/// S-203: every reason can be matched and named, and none is worth a retry.
#[test]
fn reasons_are_told_apart() {
    let record = |fields: &[u8]| [&[0x0A, 1, b'k', 0x1A, fields.len() as u8], fields].concat();
    let cases: [(Vec<u8>, Reason); 9] = [
        (b"plain".to_vec(), Reason::NotAggregated),
        (MAGIC.to_vec(), Reason::TooShort),
        (frame(b""), Reason::TooShort),
        ([&MAGIC[..], &[0; 17]].concat(), Reason::BadDigest),
        (frame(&[0x1A, 9]), Reason::BadProtobuf),
        (frame(&record(&[0x08, 0])), Reason::MissingField),
        (frame(&record(&[0x08, 0, 0x1A, 0, 0x22, 0])), Reason::MissingField),
        (frame(&[0x0A, 1, 0xFF, 0x1A, 4, 0x08, 0, 0x1A, 0]), Reason::BadUtf8),
        (frame(&record(&[0x08, 1, 0x1A, 0])), Reason::IndexOutOfRange),
    ];
    let strict = Deaggregator::new().strictness(Strictness::Strict);
    assert!(Reason::ALL.iter().all(|reason| !reason.is_retryable()));
    for (bytes, expected) in cases {
        assert_eq!(expected.undecoded().is_none(), expected.is_plain());
        assert_eq!(Aggregate::parse(&bytes[..]).unwrap_err(), expected);
        let is_plain = match expected {
            Reason::NotAggregated | Reason::TooShort => true,
            Reason::BadDigest
            | Reason::BadProtobuf
            | Reason::MissingField
            | Reason::BadUtf8
            | Reason::IndexOutOfRange => false,
            _ => unreachable!("all reasons are listed"),
        };
        match strict.deaggregate(bytes.into()) {
            Ok(done) => assert!(is_plain && done.reason() == Some(expected)),
            Err(error) => assert!(!is_plain && error.reason() == expected && !error.is_retryable()),
        }
    }
    let names: std::collections::HashSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
}

/// S-206, F-42: neither errors nor debug output show data or keys; the cause is in the chain, once.
#[test]
fn errors_and_debug_output_hide_data_and_keys() {
    let mut damaged = pack(&[("secret-key", b"secret-data"), ("secret-key", b"x")]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let error: InvalidAggregate =
        Deaggregator::new().strictness(Strictness::Strict).deaggregate(damaged.clone().into()).unwrap_err();
    assert_eq!(error.to_string(), format!("invalid aggregate of {} bytes", damaged.len()));
    assert_eq!(error.source().unwrap().to_string(), "digest does not match");

    let aggregate = split(pack(&[("secret-key", b"secret-data")]));
    let view = aggregate.iter().next().unwrap();
    let mut owned = aggregate.clone().into_records();
    let texts = [
        format!("{error:?}"),
        format!("{:?}", deaggregate(damaged.into())),
        format!("{aggregate:?} {view:?} {:?}", aggregate.iter()),
        format!("{owned:?} {:?}", owned.next()),
        format!("{:?}", RecordRef::new("secret-key", b"secret-data")),
    ];
    for text in texts {
        assert!(!text.contains("secret"), "{text}");
        assert!(!text.contains("115, 101"), "{text}");
    }
}

/// An index is compared as it is: 2^32 is not entry 0.
#[test]
fn indices_are_never_cut_to_fewer_bits() {
    for index in [1_u64 << 32, (1 << 32) + 1, u64::from(u32::MAX), u64::from(u32::MAX) - 1, u64::MAX, 1 << 31]
    {
        let record = proto::Record {
            partition_key_index: Some(index),
            explicit_hash_key_index: None,
            data: Some(vec![]),
            tags: vec![],
        };
        let with_hash = proto::Record {
            partition_key_index: Some(0),
            explicit_hash_key_index: Some(index),
            ..record.clone()
        };
        for record in [record, with_hash] {
            let message = proto::AggregatedRecord {
                partition_key_table: vec!["k".to_owned()],
                explicit_hash_key_table: vec!["0".to_owned()],
                records: vec![record],
            };
            let bytes = frame(&prost::Message::encode_to_vec(&message));
            assert_eq!(Aggregate::parse(&bytes[..]).unwrap_err(), Reason::IndexOutOfRange, "{index}");
        }
    }
}

/// A record without explicit hash key has none, also beside records that have one: other readers give it the
/// table's first entry.
#[test]
fn a_record_without_explicit_hash_key_gets_none() {
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    aggregator.try_push(RecordRef::new("a", b"1").explicit_hash_key(Some(HashKey::new(7)))).unwrap();
    aggregator.try_push(RecordRef::new("b", b"2")).unwrap();
    let aggregate = Aggregate::parse(aggregator.finish().unwrap().into_data()).unwrap();
    let keys: Vec<_> = aggregate.iter().map(|record| record.explicit_hash_key()).collect();
    assert_eq!(keys, [Some("7"), None]);
    let outbound: Vec<OutboundRecord> =
        aggregate.into_records().map(|record| record.try_into().unwrap()).collect();
    assert_eq!(outbound[0].explicit_hash_key, Some(HashKey::new(7)));
    assert_eq!(outbound[1].explicit_hash_key, None);
}

/// An explicit hash key is any text on the wire: shown as it is, with a number only where it is one.
#[test]
fn an_explicit_hash_key_may_be_any_text() {
    for (text, value) in [("007", Some(7)), ("abc", None), ("-1", None), ("", None)] {
        let mut message = vec![0x0A, 1, b'k', 0x12, text.len() as u8];
        message.extend_from_slice(text.as_bytes());
        message.extend_from_slice(&[0x1A, 6, 0x08, 0, 0x10, 0, 0x1A, 0]);
        let record = split(frame(&message).into()).into_records().next().unwrap();
        let key = record.explicit_hash_key.clone().unwrap();
        assert_eq!((key.as_str(), key.hash_key()), (text, value.map(HashKey::new)));
        assert_eq!(OutboundRecord::try_from(record).is_ok(), value.is_some());
    }
}

/// S-108, F-30: by default nothing is filtered; what a filter drops is counted, and the rest keeps its place.
#[test]
fn range_filters_count_what_they_drop() {
    let in_shard = |key: &str| kinesis_kpl::hash_key(key) < HashKey::new(1 << 127);
    let keys = ["a", "b", "c", "d", "e", "f"];
    let records: Vec<(&str, &[u8])> = keys.iter().map(|key| (*key, key.as_bytes())).collect();
    let lower_half = HashKeyRange::new(HashKey::MIN, HashKey::new((1 << 127) - 1)).unwrap();
    let expected: Vec<u64> = (0..6).filter(|place| in_shard(keys[*place as usize])).collect();
    assert!(!expected.is_empty() && expected.len() < 6);

    let filter = |filter, range| {
        let mut aggregate = split(pack(&records));
        let report = aggregate.retain_in_range(filter, range);
        assert_eq!((aggregate.len(), aggregate.count()), (report.kept, 6));
        let places: Vec<u64> = aggregate.iter().map(|record| record.sub_sequence()).collect();
        assert!(aggregate.into_records().all(|record| record.count == 6));
        (places, report.dropped)
    };
    let all: Vec<u64> = (0..6).collect();
    assert_eq!(filter(RangeFilter::default(), lower_half), (all.clone(), 0));
    assert_eq!(filter(RangeFilter::PerRecord, lower_half), (expected.clone(), 6 - expected.len()));
    assert_eq!(filter(RangeFilter::KclCompatible, lower_half), (vec![], 6));
    assert_eq!(filter(RangeFilter::KclCompatible, HashKeyRange::FULL), (all, 0));
}

/// A record whose hash key is not a number is nobody's: it is kept, and counted as such.
#[test]
fn a_record_that_cannot_be_judged_is_kept() {
    let mut message = vec![0x0A, 1, b'k', 0x12, 3];
    message.extend_from_slice(b"abc\x1A\x06\x08\x00\x10\x00\x1A\x00");
    let range = HashKeyRange::new(HashKey::MIN, HashKey::MIN).unwrap();
    for filter in [RangeFilter::PerRecord, RangeFilter::KclCompatible] {
        let mut aggregate = split(frame(&message).into());
        let report = aggregate.retain_in_range(filter, range);
        assert_eq!((report.kept, report.dropped, report.unjudged), (1, 0, 1));
    }
}

/// One level by default; a writer that nests on purpose has a helper.
#[test]
fn nested_aggregates_are_split_only_on_request() {
    let innermost = pack(&[("x", b"deep"), ("y", b"deeper")]);
    let inner = pack(&[("i", &innermost), ("j", b"flat")]);
    let outer = pack(&[("o", b"top"), ("p", &inner)]);

    let one_level: Vec<Bytes> = split(outer.clone()).into_records().map(|record| record.data).collect();
    assert_eq!(one_level, [Bytes::from_static(b"top"), inner.clone()]);

    let places = |levels| -> Vec<(Vec<u64>, Bytes)> {
        unnest(split(outer.clone()), levels)
            .into_iter()
            .map(|nested| (nested.path, nested.record.data))
            .collect()
    };
    assert_eq!(places(0), [(vec![0], Bytes::from_static(b"top")), (vec![1], inner)]);
    assert_eq!(
        places(5),
        [
            (vec![0], Bytes::from_static(b"top")),
            (vec![1, 0, 0], Bytes::from_static(b"deep")),
            (vec![1, 0, 1], Bytes::from_static(b"deeper")),
            (vec![1, 1], Bytes::from_static(b"flat")),
        ]
    );
}

/// Tags are read and kept with their records.
#[test]
fn tags_are_kept_with_their_records() {
    let tag = |key: &str, value: Option<&str>| kinesis_core::Tag {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let tags = [tag("origin", Some("CDG")), tag("urgent", None)];
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    aggregator.try_push(RecordRef::new("a", b"1")).unwrap();
    aggregator.try_push(RecordRef::new("a", b"2").tags(&tags)).unwrap();
    aggregator.try_push(RecordRef::new("a", b"3").tags(&tags[1..])).unwrap();
    let records: Vec<_> = split(aggregator.finish().unwrap().into_data()).into_records().collect();
    let seen: Vec<_> = records.iter().map(|record| record.tags.as_deref().unwrap_or_default()).collect();
    assert_eq!(seen, [&[][..], &tags[..], &tags[1..]]);
}
