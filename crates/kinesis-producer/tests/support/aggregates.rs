//! What readers make of the stored records.

use std::collections::BTreeMap;

use bytes::Bytes;
use kinesis_core::{HashKey, HashKeyRange};
use kinesis_kpl::{Deaggregated, RangeFilter, deaggregate};
use kinesis_testkit::{StoredRecord, TestKinesis};

use super::STREAM;

/// The user records of a Kinesis record, by their keys and payloads.
pub fn split(data: &Bytes) -> Vec<(String, Bytes)> {
    match deaggregate(data.clone()) {
        Deaggregated::Records(aggregate) => aggregate
            .into_records()
            .map(|record| (record.partition_key.as_str().to_owned(), record.data))
            .collect(),
        _ => vec![(String::new(), data.clone())],
    }
}

/// How many user records each stored Kinesis record has.
pub fn counts(kinesis: &TestKinesis) -> Vec<usize> {
    kinesis.records(STREAM).unwrap().iter().map(|record| split(&record.data).len()).collect()
}

/// How often a reader that filters as the KCL does sees each payload.
pub fn seen_by_the_kcl(kinesis: &TestKinesis) -> BTreeMap<String, usize> {
    let ranges: BTreeMap<String, HashKeyRange> = kinesis
        .shards(STREAM)
        .unwrap()
        .into_iter()
        .map(|shard| {
            let (start, end) = (HashKey::new(shard.starting_hash_key), HashKey::new(shard.ending_hash_key));
            (shard.shard_id, HashKeyRange::new(start, end).unwrap())
        })
        .collect();
    let mut seen = BTreeMap::new();
    let mut add = |data: &[u8]| {
        *seen.entry(String::from_utf8(data.to_vec()).unwrap()).or_default() += 1;
    };
    for StoredRecord { shard_id, data, .. } in kinesis.records(STREAM).unwrap() {
        match deaggregate(data) {
            Deaggregated::Records(mut aggregate) => {
                aggregate.retain_in_range(RangeFilter::KclCompatible, ranges[&shard_id]);
                aggregate.iter().for_each(|record| add(record.data()));
            }
            Deaggregated::Raw { data, .. } => add(&data),
            _ => unreachable!("no other outcome"),
        }
    }
    seen
}
