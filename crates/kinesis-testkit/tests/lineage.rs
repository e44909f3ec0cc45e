//! Random programs of puts, splits, merges and scalings: the open shards cover every hash key exactly once, and every
//! record is read exactly once by a reader that follows the lineage, in the order of its key's writes.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aws_sdk_kinesis::Client;
use kinesis_testkit::{ShardView, TestKinesis};
use proptest::prelude::*;
use support::oldest;

#[derive(Debug, Clone)]
enum Step {
    /// Puts some records under one of ten keys.
    Put { key: u8, count: u8 },
    /// Splits one of the open shards at a fraction of its range.
    Split { shard: u8, at: u8 },
    /// Merges one of the open shards with its right neighbour, or the other way round.
    Merge { shard: u8, swap: bool },
    /// Scales to a share of what is allowed, from half to double.
    Scale { share: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..10_u8, 1..5_u8).prop_map(|(key, count)| Step::Put { key, count }),
        2 => (any::<u8>(), 1..255_u8).prop_map(|(shard, at)| Step::Split { shard, at }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(shard, swap)| Step::Merge { shard, swap }),
        1 => any::<u8>().prop_map(|share| Step::Scale { share }),
    ]
}

/// The open shards in the order of their ranges, which must cover every hash key once.
fn open_shards(kinesis: &TestKinesis) -> Vec<ShardView> {
    let mut open: Vec<_> = kinesis.shards("s").unwrap().into_iter().filter(ShardView::is_open).collect();
    open.sort_by_key(|shard| shard.starting_hash_key);
    assert_eq!(open.first().unwrap().starting_hash_key, 0);
    assert_eq!(open.last().unwrap().ending_hash_key, u128::MAX);
    for pair in open.windows(2) {
        assert_eq!(pair[0].ending_hash_key + 1, pair[1].starting_hash_key);
    }
    open
}

fn carry_out(kinesis: &TestKinesis, step: &Step, written: &mut BTreeMap<u8, Vec<String>>) {
    let open = open_shards(kinesis);
    match *step {
        Step::Put { key, count } => {
            for _ in 0..count {
                let placed = kinesis.put("s", &key.to_string(), "x").unwrap();
                written.entry(key).or_default().push(placed.sequence_number);
            }
        }
        Step::Split { shard, at } => {
            let shard = &open[usize::from(shard) % open.len()];
            let width = shard.ending_hash_key - shard.starting_hash_key;
            // Too narrow a shard cannot be split; the service says so.
            let key = shard.starting_hash_key + width / 256 * u128::from(at);
            let split = kinesis.split_at("s", &shard.shard_id, key);
            assert_eq!(split.is_ok(), key > shard.starting_hash_key + 1 && key < shard.ending_hash_key);
        }
        Step::Merge { shard, swap } if open.len() > 1 => {
            let left = usize::from(shard) % (open.len() - 1);
            let (a, b) = if swap { (left + 1, left) } else { (left, left + 1) };
            kinesis.merge("s", &open[a].shard_id, &open[b].shard_id).unwrap();
        }
        Step::Merge { .. } => {}
        Step::Scale { share } => {
            let (lowest, highest) = (open.len().div_ceil(2), open.len() * 2);
            let target = (lowest + usize::from(share) * (highest - lowest) / 255).min(16);
            if target >= lowest {
                kinesis.scale("s", target).unwrap();
                assert_eq!(open_shards(kinesis).len(), target);
            }
        }
    }
}

/// Reads every shard after its parents, in small pages; the sequence numbers by key, in the order of reading.
async fn read_all(client: &Client, kinesis: &TestKinesis) -> BTreeMap<u8, Vec<String>> {
    let mut read = BTreeMap::<u8, Vec<String>>::new();
    let mut ended = BTreeSet::new();
    let mut waiting: VecDeque<_> =
        kinesis.shards("s").unwrap().into_iter().filter(|shard| shard.parents.is_empty()).collect();
    while let Some(shard) = waiting.pop_front() {
        let mut next = Some(oldest(client, "s", &shard.shard_id).await);
        let mut children = Vec::new();
        while let Some(iterator) = next {
            let page = client.get_records().shard_iterator(iterator).limit(3).send().await.unwrap();
            for record in page.records() {
                let key = record.partition_key().unwrap().parse().unwrap();
                read.entry(key).or_default().push(record.sequence_number().to_owned());
            }
            children = page.child_shards().to_vec();
            next =
                page.next_shard_iterator.filter(|_| page.millis_behind_latest != Some(0) || !shard.is_open());
        }
        assert_eq!(children.is_empty(), shard.is_open());
        ended.insert(shard.shard_id);
        // A child is read once, after the last of its parents.
        for child in children {
            if child.parent_shards().iter().all(|parent| ended.contains(parent)) {
                let views = kinesis.shards("s").unwrap();
                waiting.extend(views.into_iter().filter(|view| view.shard_id == child.shard_id()));
            }
        }
    }
    assert_eq!(ended.len(), kinesis.shards("s").unwrap().len());
    read
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_read_once_through_any_lineage(
        shards in 1..5_usize,
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let kinesis = TestKinesis::builder().seed(seed).without_throughput_limits().build();
            kinesis.create_stream("s", shards).unwrap();
            let mut written = BTreeMap::new();
            for step in &steps {
                carry_out(&kinesis, step, &mut written);
            }
            open_shards(&kinesis);
            for numbers in written.values() {
                assert!(numbers.is_sorted_by(|a, b| a < b));
            }
            assert_eq!(read_all(&kinesis.client(), &kinesis).await, written);
        });
    }
}
