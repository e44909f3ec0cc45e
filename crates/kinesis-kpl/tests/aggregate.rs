//! Packing, case by case.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use kinesis_core::{HashKey, HashKeyRange, OutboundRecord};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, DEFAULT_MAX_BYTES, KeyMode, Lone, MAX_BYTES_LIMIT, OuterKey,
    PartitionKeyMismatch, RecordRef, Refusal, SizeRule, check_same_key, hash_key, is_aggregated,
};

fn aggregator(config: AggregatorConfig) -> Aggregator {
    Aggregator::new(config).unwrap()
}

fn config() -> AggregatorConfig {
    AggregatorConfig::default()
}

/// The default limit is the KPL's 50 KiB, counted with the partition key.
#[test]
fn the_defaults_are_those_of_the_kpl() {
    assert_eq!(DEFAULT_MAX_BYTES, 51_200);
    assert_eq!(config().max_bytes, 51_200);
    assert_eq!(config().max_records, 4_294_967_295);
    assert_eq!(config().size_rule, SizeRule::WithPartitionKey);
    assert_eq!(
        (config().outer_key, config().lone, config().key_mode),
        (OuterKey::First, Lone::Unframed, KeyMode::Mixed)
    );
}

/// S-127: filled to the last byte of 1 MB, one byte more starts a new payload.
#[test]
fn an_aggregate_is_filled_to_the_last_byte() {
    const LIMIT: usize = 1 << 20;
    let mut aggregator = aggregator(config().max_bytes(LIMIT));
    aggregator.try_push(RecordRef::new("key", b"first")).unwrap();
    // Field key and a length of three bytes, key index, field key and a length of three bytes.
    let rest = LIMIT - "key".len() - aggregator_framed_len() - (1 + 3) - 2 - (1 + 3);
    let too_much = vec![0; rest + 1];
    assert_eq!(aggregator.try_push(RecordRef::new("key", &too_much)).unwrap_err().why, Refusal::Full);
    assert_eq!(aggregator.len(), 1);
    aggregator.try_push(RecordRef::new("key", &too_much[1..])).unwrap();
    assert_eq!(aggregator.try_push(RecordRef::new("key", b"")).unwrap_err().why, Refusal::Full);
    assert_eq!(aggregator.encoded_len(), LIMIT - "key".len());
    let packed = aggregator.finish().unwrap();
    assert_eq!(packed.data().len() + packed.partition_key().as_str().len(), LIMIT);
    assert_eq!(packed.records(), 2);
}

/// The framed length with one record `("key", "first")`.
fn aggregator_framed_len() -> usize {
    let mut aggregator = aggregator(config().lone(Lone::Framed));
    aggregator.try_push(RecordRef::new("key", b"first")).unwrap();
    aggregator.encoded_len()
}

/// F-31: what fits alone but not with its frame is given back to be sent alone, whatever is in already.
#[test]
fn a_record_that_fits_only_without_frame_is_given_back() {
    let mut aggregator = aggregator(config().max_bytes(100));
    let data = [7; 97];
    for _ in 0..2 {
        let refused = aggregator.try_push(RecordRef::new("key", &data)).unwrap_err();
        assert_eq!(refused.why, Refusal::SendAlone);
        assert_eq!(refused.record.data, data);
        if aggregator.is_empty() {
            aggregator.try_push(RecordRef::new("key", b"small")).unwrap();
        }
    }
    assert_eq!(aggregator.finish().unwrap().into_data(), "small");
}

/// F-31, F-45: around every limit, with keys of several lengths, the decision is exact: the largest record that is
/// taken fills the aggregate, one byte more is refused.
#[test]
fn the_limit_is_exact_for_every_shape_of_record() {
    for key in ["k", "a-longer-key", &"long".repeat(64)] {
        for explicit in [None, Some(HashKey::MAX)] {
            for limit in [600, 777, 51_200, 1 << 20, MAX_BYTES_LIMIT] {
                let mut aggregator = aggregator(config().max_bytes(limit).lone(Lone::Framed));
                let data = vec![1; limit];
                let fits = |aggregator: &mut Aggregator, len: usize| {
                    aggregator.clear();
                    aggregator.try_push(RecordRef::new(key, &data[..len]).explicit_hash_key(explicit)).is_ok()
                };
                let (mut largest, mut too_large) = (0, limit);
                while too_large - largest > 1 {
                    let len = largest.midpoint(too_large);
                    *if fits(&mut aggregator, len) { &mut largest } else { &mut too_large } = len;
                }
                assert!(fits(&mut aggregator, largest));
                let packed = aggregator.finish().unwrap();
                // A length may need one byte more just there, so the last byte can be out of reach.
                let size = packed.data().len() + key.len();
                assert!((limit - 2..=limit).contains(&size), "{size} of {limit}");
                let aggregate = Aggregate::parse(packed.into_data()).unwrap();
                assert_eq!(aggregate.iter().next().unwrap().data().len(), largest);
            }
        }
    }
}

/// S-128: the outer partition key is the first record's, with its explicit hash key if it has one.
#[test]
fn the_outer_key_is_the_first_records() {
    let mut aggregator = aggregator(config());
    aggregator.try_push(RecordRef::new("LHR", b"1")).unwrap();
    aggregator.try_push(RecordRef::new("CDG", b"2").explicit_hash_key(Some(HashKey::new(5)))).unwrap();
    let packed = aggregator.finish().unwrap();
    assert_eq!((packed.partition_key().as_str(), packed.explicit_hash_key()), ("LHR", None));

    aggregator.try_push(RecordRef::new("CDG", b"2").explicit_hash_key(Some(HashKey::new(5)))).unwrap();
    aggregator.try_push(RecordRef::new("LHR", b"1")).unwrap();
    let outbound: OutboundRecord = aggregator.finish().unwrap().into();
    assert_eq!((outbound.partition_key.as_str(), outbound.explicit_hash_key), ("CDG", Some(HashKey::new(5))));
}

/// As the KPL does it: key `a`, and the first record's hash key as explicit hash key.
#[test]
fn the_kpls_outer_key_is_an_option() {
    let mut aggregator = aggregator(config().outer_key(OuterKey::Kpl));
    for explicit in [None, Some(HashKey::new(5))] {
        aggregator.try_push(RecordRef::new("LHR", b"1").explicit_hash_key(explicit)).unwrap();
        aggregator.try_push(RecordRef::new("CDG", b"2")).unwrap();
        let packed = aggregator.finish().unwrap();
        assert_eq!(packed.partition_key().as_str(), "a");
        assert_eq!(packed.explicit_hash_key(), Some(explicit.unwrap_or(hash_key("LHR"))));
    }
    aggregator.try_push(RecordRef::new("LHR", b"alone")).unwrap();
    assert_eq!(aggregator.finish().unwrap().partition_key().as_str(), "LHR");
}

/// A lone record goes out as it is; framed only by choice, or when it has tags to carry.
#[test]
fn a_lone_record_is_not_framed() {
    let tags = [kinesis_core::Tag { key: "k".to_owned(), value: None }];
    let mut plain = aggregator(config());
    plain.try_push(RecordRef::new("k", b"data")).unwrap();
    assert_eq!(plain.encoded_len(), 4);
    let packed = plain.finish().unwrap();
    assert_eq!((&packed.data()[..], packed.is_framed(), packed.records()), (&b"data"[..], false, 1));

    plain.try_push(RecordRef::new("k", b"data").tags(&tags)).unwrap();
    assert!(is_aggregated(plain.finish().unwrap().data()));

    let mut framed = aggregator(config().lone(Lone::Framed));
    framed.try_push(RecordRef::new("k", b"data")).unwrap();
    assert!(is_aggregated(framed.finish().unwrap().data()));
    assert!(framed.finish().is_none());
    assert_eq!(framed.encoded_len(), 0);
}

#[test]
fn the_count_limit_holds() {
    let mut aggregator = aggregator(config().max_records(2));
    aggregator.try_push(RecordRef::new("a", b"1")).unwrap();
    aggregator.try_push(RecordRef::new("b", b"2")).unwrap();
    assert_eq!(aggregator.try_push(RecordRef::new("c", b"3")).unwrap_err().why, Refusal::Full);
    assert_eq!(aggregator.finish().unwrap().records(), 2);
    aggregator.try_push(RecordRef::new("c", b"3")).unwrap();
}

/// F-31: found by fuzzing. A record with a long key can fit beside one with a short key (which counts as the outer one)
/// and not alone. When it is refused for another reason than size, that must not promise that an empty aggregate
/// takes it.
#[test]
fn what_is_offered_again_fits_an_empty_aggregate() {
    let long = "k".repeat(40);
    for (config, refused_beside) in [
        (config().max_records(1), Refusal::Full),
        (config().key_mode(KeyMode::Same), Refusal::OtherPartitionKey),
    ] {
        let mut aggregator = aggregator(config.max_bytes(110));
        for (data_len, expected) in [(0, refused_beside), (8, Refusal::SendAlone)] {
            aggregator.try_push(RecordRef::new("k", b"")).unwrap();
            let data = vec![0; data_len];
            let refused = aggregator.try_push(RecordRef::new(&long, &data)).unwrap_err();
            assert_eq!(refused.why, expected);
            aggregator.clear();
            let again = aggregator.try_push(refused.record).map_err(|refused| refused.why);
            assert_eq!(again, if expected == Refusal::SendAlone { Err(Refusal::SendAlone) } else { Ok(()) });
            aggregator.clear();
        }
    }
}

/// Counted by payload only, the partition key is on top.
#[test]
fn the_partition_key_may_be_left_out_of_the_size() {
    let key = "k".repeat(50);
    let fits = |size_rule| {
        let mut aggregator = aggregator(config().max_bytes(110).size_rule(size_rule));
        aggregator.try_push(RecordRef::new(&key, b"12345678")).is_ok()
    };
    assert!(fits(SizeRule::PayloadOnly));
    assert!(!fits(SizeRule::WithPartitionKey));
}

/// A record of another shard is refused, by its explicit hash key if it has one; both ends of the range belong to it.
#[test]
fn records_of_another_shard_are_refused() {
    let home = hash_key("home");
    let mut aggregator = aggregator(config().range(HashKeyRange::new(home, home)));
    aggregator.try_push(RecordRef::new("home", b"1")).unwrap();
    aggregator.try_push(RecordRef::new("home", b"2")).unwrap();
    aggregator.try_push(RecordRef::new("away", b"3").explicit_hash_key(Some(home))).unwrap();
    let away = HashKey::new(home.get() + 1);
    for record in [RecordRef::new("away", b"4"), RecordRef::new("home", b"5").explicit_hash_key(Some(away))] {
        assert_eq!(aggregator.try_push(record).unwrap_err().why, Refusal::OutsideRange);
    }
    aggregator.set_range(None);
    aggregator.try_push(RecordRef::new("away", b"4")).unwrap();
    assert_eq!(aggregator.finish().unwrap().records(), 4);
}

/// S-133, S-205: a batch with two keys is refused before anything is sent, with the place and without the keys.
#[test]
fn a_batch_with_two_keys_is_a_partition_key_mismatch() {
    let error: PartitionKeyMismatch = check_same_key(["secret-a", "secret-a", "secret-b"]).unwrap_err();
    assert_eq!(error.position, 2);
    assert_eq!(error.to_string(), "partition key mismatch: record 2 has another partition key than record 0");
    assert!(!error.is_retryable());
}

/// S-134, S-135: a batch of one key passes; without the option keys mix.
#[test]
fn a_batch_of_one_key_passes_and_mixing_is_the_default() {
    assert_eq!(check_same_key(["a", "a"]), Ok(()));
    assert_eq!(check_same_key([]), Ok(()));
    let mut mixed = aggregator(config());
    mixed.try_push(RecordRef::new("a", b"1")).unwrap();
    mixed.try_push(RecordRef::new("b", b"2")).unwrap();
    assert_eq!(mixed.len(), 2);
}

/// S-137: in same-key mode another key is given back.
#[test]
fn another_key_is_given_back_in_same_key_mode() {
    let mut same = aggregator(config().key_mode(KeyMode::Same));
    same.try_push(RecordRef::new("a", b"1")).unwrap();
    let refused = same.try_push(RecordRef::new("b", b"2")).unwrap_err();
    assert_eq!((refused.why, refused.record.partition_key), (Refusal::OtherPartitionKey, "b"));
    assert_eq!(format!("{refused:?}"), "Refused(OtherPartitionKey)");
    same.try_push(RecordRef::new("a", b"3")).unwrap();
    assert_eq!(same.finish().unwrap().records(), 2);
    same.try_push(RecordRef::new("b", b"2")).unwrap();
}

/// S-131: how many user records share one Kinesis record, and so one call's cost: up to three orders of magnitude.
#[test]
fn small_records_share_one_kinesis_record() {
    let in_one = |max_bytes: usize, len: usize| {
        let mut aggregator = aggregator(config().max_bytes(max_bytes));
        while aggregator.try_push(RecordRef::new("key", &vec![0; len])).is_ok() {}
        aggregator.finish().unwrap().records()
    };
    assert_eq!([50, 100, 1_024].map(|len| in_one(DEFAULT_MAX_BYTES, len)), [913, 482, 49]);
    assert_eq!([50, 100, 1_024].map(|len| in_one(1 << 20, len)), [18_724, 9_891, 1_016]);
}

/// A configuration file may set what it likes; what it does not know is refused.
#[cfg(feature = "serde")]
#[test]
fn settings_come_from_a_configuration_file() {
    let text =
        r#"{"max_bytes": 1048576, "key_mode": "same", "outer_key": "kpl", "size_rule": "payload_only"}"#;
    let read: AggregatorConfig = serde_json::from_str(text).unwrap();
    let expected = config().max_bytes(1 << 20).key_mode(KeyMode::Same).outer_key(OuterKey::Kpl);
    assert_eq!(read, expected.size_rule(SizeRule::PayloadOnly));
    assert_eq!(serde_json::from_str::<AggregatorConfig>("{}").unwrap(), config());
    let error = serde_json::from_str::<AggregatorConfig>(r#"{"max_byte": 1}"#).unwrap_err();
    assert!(error.to_string().contains("max_byte"), "{error}");
}

/// S-121: neither a protobuf runtime nor a code generator is needed to use the crate.
#[test]
fn no_protobuf_library_is_among_the_dependencies() {
    let manifest = include_str!("../Cargo.toml");
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    assert!(dependencies.contains("bytes"));
    for library in ["prost", "protobuf", "quick-protobuf", "tokio", "aws-"] {
        assert!(!dependencies.contains(library), "{library}");
    }
    assert!(!manifest.contains("[build-dependencies]"));
}

/// Aggregates one after the other do not know of each other.
#[test]
fn a_reused_aggregator_makes_the_same_bytes() {
    let records: Vec<(String, Vec<u8>)> =
        (0..300).map(|i| (format!("key-{}", i % 150), vec![i as u8; 20])).collect();
    let fill = |aggregator: &mut Aggregator| {
        for (key, data) in &records {
            aggregator.try_push(RecordRef::new(key, data)).unwrap();
        }
        aggregator.finish().unwrap()
    };
    let mut reused = aggregator(config());
    let first = fill(&mut reused);
    reused.try_push(RecordRef::new("thrown away", b"")).unwrap();
    reused.clear();
    assert_eq!(fill(&mut reused), first);
}

#[test]
fn settings_out_of_range_are_named() {
    let field = |config: AggregatorConfig| Aggregator::new(config).unwrap_err().field();
    assert_eq!(field(config().max_bytes(63)), "max_bytes");
    assert_eq!(field(config().max_bytes(MAX_BYTES_LIMIT + 1)), "max_bytes");
    assert_eq!(field(config().max_records(0)), "max_records");
    let error = config().max_records(0).validate().unwrap_err();
    assert_eq!(error.to_string(), "invalid aggregator setting `max_records`: must be at least 1");
    assert!(!error.is_retryable());
}

/// S-206, F-42: debug output shows sizes only.
#[test]
fn debug_output_hides_data_and_keys() {
    let mut secret = aggregator(config());
    secret.try_push(OutboundRecord::new("secret-key", "secret-data")).unwrap();
    let before = format!("{secret:?}");
    let packed = secret.finish().unwrap();
    for text in [before, format!("{packed:?}")] {
        assert!(!text.contains("secret"), "{text}");
    }
}
