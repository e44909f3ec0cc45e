//! Any records into an aggregator with any limits: the announced size is real, and they come out as they went in.
#![no_main]

use arbitrary::Arbitrary;
use kinesis_core::{HashKey, Tag};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, KeyMode, Lone, OuterKey, RecordRef, Refusal, SizeRule,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    max_bytes: u16,
    max_records: u8,
    payload_only: bool,
    kpl_key: bool,
    framed: bool,
    same_key: bool,
    records: Vec<Record<'a>>,
}

#[derive(Debug, Arbitrary)]
struct Record<'a> {
    key: &'a str,
    hash: Option<u128>,
    data: &'a [u8],
    tags: Vec<(&'a str, Option<&'a str>)>,
}

type Seen = (String, Option<String>, Vec<u8>, Vec<(String, Option<String>)>);

fuzz_target!(|input: Input<'_>| {
    let config = AggregatorConfig::default()
        .max_bytes(64 + usize::from(input.max_bytes))
        .max_records(1 + usize::from(input.max_records))
        .size_rule(if input.payload_only { SizeRule::PayloadOnly } else { SizeRule::WithPartitionKey })
        .outer_key(if input.kpl_key { OuterKey::Kpl } else { OuterKey::First })
        .lone(if input.framed { Lone::Framed } else { Lone::Unframed })
        .key_mode(if input.same_key { KeyMode::Same } else { KeyMode::Mixed });
    let mut aggregator = Aggregator::new(config).expect("within the limits");
    let mut inside: Vec<Seen> = Vec::new();
    for record in &input.records {
        let tags: Vec<Tag> = record
            .tags
            .iter()
            .map(|(key, value)| Tag { key: (*key).to_owned(), value: value.map(str::to_owned) })
            .collect();
        let hash = record.hash.map(HashKey::new);
        let parts = RecordRef::new(record.key, record.data).explicit_hash_key(hash).tags(&tags);
        if let Err(refused) = aggregator.try_push(parts) {
            take(&mut aggregator, &config, &mut inside);
            match (refused.why, aggregator.try_push(refused.record)) {
                (Refusal::SendAlone, Err(again)) => {
                    assert!(again.why == Refusal::SendAlone);
                    continue;
                }
                (Refusal::Full | Refusal::OtherPartitionKey, Ok(())) => {}
                (why, again) => panic!("{why:?}, then {again:?}"),
            }
        }
        let tags = tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
        inside.push((record.key.to_owned(), hash.map(|key| key.to_string()), record.data.to_vec(), tags));
    }
    take(&mut aggregator, &config, &mut inside);
});

fn take(aggregator: &mut Aggregator, config: &AggregatorConfig, inside: &mut Vec<Seen>) {
    let announced = aggregator.encoded_len();
    let Some(packed) = aggregator.finish() else {
        assert!(inside.is_empty());
        return;
    };
    assert!(packed.data().len() == announced && packed.records() == inside.len());
    assert!(inside.len() <= config.max_records);
    let key_len = match config.size_rule {
        SizeRule::PayloadOnly => 0,
        _ => packed.partition_key().as_str().len(),
    };
    assert!(announced + key_len <= config.max_bytes);
    if packed.is_framed() {
        let aggregate = Aggregate::parse(packed.into_data()).expect("what was just written");
        let seen: Vec<Seen> = aggregate
            .iter()
            .map(|r| {
                let tags = r.tags().map(|tag| (tag.key.to_owned(), tag.value.map(str::to_owned))).collect();
                (
                    r.partition_key().to_owned(),
                    r.explicit_hash_key().map(str::to_owned),
                    r.data().to_vec(),
                    tags,
                )
            })
            .collect();
        assert!(seen == *inside);
    } else {
        assert!(inside.len() == 1 && packed.data()[..] == inside[0].2);
    }
    inside.clear();
}
