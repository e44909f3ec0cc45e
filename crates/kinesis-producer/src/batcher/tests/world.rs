//! Random histories with shards that split under the machine's eyes, against a reader that drops what is misplaced.

use std::collections::{BTreeMap, BTreeSet};

use kinesis_core::{HashKey, HashKeyRange};
use kinesis_kpl::{Deaggregated, ToRecordRef as _, deaggregate, hash_key};
use proptest::prelude::*;

use super::*;
use crate::aggregation::Aggregation;

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: u8,
        explicit: Option<u8>,
        len: usize,
    },
    Pass(u64),
    Answer {
        place: usize,
        refused: u64,
    },
    Fail {
        place: usize,
    },
    Split(usize),
    /// Lists show the shards as they are from now on.
    Publish,
    List {
        works: bool,
    },
    Flush,
}

fn step(faults: bool, reshards: bool) -> impl Strategy<Value = Step> {
    let refused = if faults { prop_oneof![Just(0), any::<u64>()].boxed() } else { Just(0).boxed() };
    prop_oneof![
        8 => (0_u8..6, prop::option::weighted(0.2, 0_u8..8), 0_usize..60)
            .prop_map(|(key, explicit, len)| Step::Put { key, explicit, len }),
        4 => (0_u64..300).prop_map(Step::Pass),
        6 => (0_usize..3, refused).prop_map(|(place, refused)| Step::Answer { place, refused }),
        u32::from(faults) => (0_usize..3).prop_map(|place| Step::Fail { place }),
        u32::from(reshards) => (0_usize..8).prop_map(Step::Split),
        u32::from(reshards) => Just(Step::Publish),
        2 => any::<bool>().prop_map(move |works| Step::List { works: works || !faults }),
        1 => Just(Step::Flush),
    ]
}

fn config(aggregation: Aggregation) -> impl Strategy<Value = ProducerConfig> {
    (1_usize..6, 70_usize..200, 64_usize..=150, 1_usize..8, 0_u64..150, 1_usize..4).prop_map(
        move |(batch_records, batch_bytes, aggregate_bytes, aggregate_records, linger, in_flight)| {
            ProducerConfig {
                batch_records,
                batch_bytes: batch_bytes.max(aggregate_bytes),
                max_record_bytes: aggregate_bytes.max(70),
                aggregation,
                aggregate_bytes,
                aggregate_records,
                linger: Duration::from_millis(linger),
                in_flight,
                max_retries: 3,
                ..ProducerConfig::default()
            }
        },
    )
}

/// A Kinesis record that is stored.
#[derive(Debug)]
struct Stored {
    sequence: u64,
    shard: String,
    /// Its records and whether each belongs into the shard.
    records: Vec<(u32, bool)>,
}

struct World {
    bench: Bench,
    config: ProducerConfig,
    open: Vec<(HashKeyRange, String)>,
    listed: Vec<(HashKeyRange, String)>,
    listings_answered: usize,
    stored: Vec<Stored>,
    key_of: BTreeMap<u32, String>,
    flushes: u64,
    next_shard: usize,
}

impl World {
    fn new(config: ProducerConfig) -> Self {
        let middle = 1 << 127;
        let range = |start, end| HashKeyRange::new(HashKey::new(start), HashKey::new(end)).unwrap();
        let open = vec![
            (range(0, middle - 1), "shard-0".to_owned()),
            (range(middle, u128::MAX), "shard-1".to_owned()),
        ];
        Self {
            bench: Bench::new(&config),
            config,
            listed: open.clone(),
            open,
            listings_answered: 0,
            stored: Vec::new(),
            key_of: BTreeMap::new(),
            flushes: 0,
            next_shard: 2,
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Put { key, explicit, len } => {
                let number = self.bench.next;
                self.bench.next += 1;
                let key = format!("k{key}");
                let mut data = number.to_le_bytes().to_vec();
                data.resize(4 + len, 0);
                let mut record = OutboundRecord::new(key.as_str(), data);
                record.explicit_hash_key = explicit.map(|part| HashKey::new(u128::from(part) << 125));
                self.key_of.insert(number, format!("{key} {explicit:?}"));
                self.bench.step(Event::Admitted(Numbered(number, record)));
            }
            Step::Pass(millis) => self.bench.pass(*millis),
            Step::Answer { place, refused } if *place < self.bench.started.len() => {
                let call = self.bench.started.remove(*place);
                self.answer(call, *refused);
            }
            Step::Fail { place } if *place < self.bench.started.len() => {
                let call = self.bench.started.remove(*place);
                self.bench.started.insert(0, call);
                self.bench.fail_call(FailureKind::Throttled);
            }
            Step::Split(place) => {
                let (range, _) = self.open.remove(place % self.open.len());
                let middle = range.start().get() + (range.end().get() - range.start().get()) / 2;
                for (start, end) in [(range.start().get(), middle), (middle + 1, range.end().get())] {
                    let range = HashKeyRange::new(HashKey::new(start), HashKey::new(end)).unwrap();
                    self.open.push((range, format!("shard-{}", self.next_shard)));
                    self.next_shard += 1;
                }
            }
            Step::Publish => self.listed = self.open.clone(),
            Step::List { works } if self.listings_answered < self.bench.listings => {
                self.listings_answered += 1;
                let shards = self.listed.iter().map(|(range, id)| {
                    ShardInfo::new(ShardId::new(id.as_str()).unwrap()).hash_range(Some(*range))
                });
                let shards = works.then(|| shards.collect());
                self.bench.step(Event::Listed(shards));
            }
            Step::Flush => {
                self.bench.step(Event::Flush { id: FlushId(self.flushes), deadline: None });
                self.flushes += 1;
            }
            Step::Answer { .. } | Step::Fail { .. } | Step::List { .. } => {}
        }
    }

    fn answer(&mut self, call: CallId, refused: u64) {
        let records: Vec<_> = self.bench.batcher.records(call).cloned().collect();
        let results = records.iter().enumerate().map(|(at, record)| {
            if refused >> (at % 64) & 1 == 1 {
                return Err(ServiceFailure::from_code("InternalFailure", "refused"));
            }
            Ok(self.store(record))
        });
        let results = results.collect();
        self.bench.step(Event::Answered { call, result: Ok(results) });
    }

    fn store(&mut self, record: &OutboundRecord) -> (ShardId, SequenceNumber) {
        let key = record.to_record_ref().effective_hash_key();
        let (range, shard) = self.open.iter().find(|(range, _)| range.contains(key)).unwrap().clone();
        let number = |data: &[u8]| u32::from_le_bytes(data[..4].try_into().unwrap());
        let records = match deaggregate(record.data.clone()) {
            Deaggregated::Records(aggregate) => aggregate
                .iter()
                .map(|record| {
                    let explicit = record.explicit_hash_key().map(|key| key.parse().unwrap());
                    let key = explicit.unwrap_or_else(|| hash_key(record.partition_key()));
                    (number(record.data()), range.contains(key))
                })
                .collect(),
            _ => vec![(number(&record.data), true)],
        };
        let sequence = self.stored.len() as u64 + 1;
        self.stored.push(Stored { sequence, shard: shard.clone(), records });
        (ShardId::new(shard).unwrap(), sequence.to_string().parse().unwrap())
    }

    /// What must hold between any two events.
    fn check(&self) {
        let bench = &self.bench;
        assert!(bench.started.len() <= self.config.in_flight);
        let mut lanes = BTreeMap::new();
        for call in &bench.started {
            let items = &bench.batcher.calls[call].items;
            assert!((1..=self.config.batch_records).contains(&items.len()));
            assert!(items.iter().map(|item| item.size).sum::<usize>() <= self.config.batch_bytes);
            for item in items {
                assert_eq!(item.size, item.wire.wire_len());
                assert!(item.size <= self.config.max_record_bytes);
                assert!(item.loads().len() == 1 || item.size <= self.config.aggregate_bytes);
                assert!(item.loads().len() <= self.config.aggregate_records);
                let keys: BTreeSet<_> = item.loads().iter().map(|load| &self.key_of[&load.put.0]).collect();
                if self.config.aggregation == Aggregation::ByKey || self.config.partition_key_safety {
                    assert_eq!(keys.len(), 1, "an aggregate that mixes keys");
                }
                for load in item.loads() {
                    let key = &self.key_of[&load.put.0];
                    assert_eq!(*lanes.entry(key).or_insert(call), call, "a key in two calls at a time");
                }
            }
        }
        assert_eq!(bench.batcher.held() + bench.done.len(), bench.next as usize);
        let answered: BTreeSet<_> = bench.done.iter().map(|(number, _)| number).collect();
        assert_eq!(answered.len(), bench.done.len(), "one answer each");
        assert!(bench.batcher.next_wake().is_none_or(|wake| wake > bench.now), "nothing that is due is left");
    }

    fn settle(&mut self) {
        self.run(&Step::Publish);
        self.run(&Step::Flush);
        for _ in 0..10_000 {
            self.check();
            if self.bench.batcher.held() == 0 {
                break;
            }
            if self.listings_answered < self.bench.listings {
                self.run(&Step::List { works: true });
            } else if self.bench.started.is_empty() {
                self.bench.wake();
            } else {
                self.run(&Step::Answer { place: 0, refused: 0 });
            }
        }
        assert_eq!(self.bench.done.len(), self.bench.next as usize);
        assert_eq!(self.bench.batcher.held_bytes(), 0);
        assert_eq!(self.bench.flushed.len() as u64, self.flushes);
    }

    /// How often a reader that drops aggregates as the KCL does sees each record.
    fn seen(&self) -> BTreeMap<u32, usize> {
        let mut seen = BTreeMap::new();
        for stored in &self.stored {
            if stored.records.iter().all(|(_, at_home)| *at_home) {
                stored.records.iter().for_each(|(number, _)| *seen.entry(*number).or_default() += 1);
            }
        }
        seen
    }

    /// Receipts tell the truth, and what they call stored is seen.
    fn check_receipts(&self) {
        let seen = self.seen();
        for (number, sent) in self.bench.sent() {
            let sequence: u64 = sent.sequence.to_string().parse().unwrap();
            let stored = &self.stored[sequence as usize - 1];
            assert_eq!((stored.sequence, stored.shard.as_str()), (sequence, sent.shard.as_str()));
            assert_eq!(stored.records[sent.sub_sequence as usize].0, number);
            assert!(seen.contains_key(&number), "record {number} is a success that no reader of shards sees");
        }
    }
}

fn steps(faults: bool, reshards: bool) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(faults, reshards), 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// F-31, F-35, C-03: whatever is refused, split and listed late, every record has one answer, and a reader that
    /// drops misplaced aggregates sees every record whose receipt says that it is stored.
    #[test]
    fn reshards_and_faults_lose_nothing(
        config in config(Aggregation::ByShard),
        steps in steps(true, true),
    ) {
        let mut world = World::new(config);
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.settle();
        world.check_receipts();
    }

    /// S-127, F-31, C-03: without faults and reshards each record is stored once, in a shard where all of its aggregate
    /// belongs, and the order within each key is kept, in aggregates and over them.
    #[test]
    fn without_faults_nothing_is_doubled_and_keys_keep_their_order(
        config in prop_oneof![config(Aggregation::ByShard), config(Aggregation::ByKey)],
        steps in steps(false, false),
    ) {
        let mut world = World::new(config);
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.settle();
        world.check_receipts();
        let seen = world.seen();
        prop_assert_eq!(seen.len(), world.bench.next as usize);
        prop_assert!(seen.values().all(|copies| *copies == 1));
        prop_assert_eq!((world.bench.misplaced, world.bench.retrying), (0, 0));
        let mut last = BTreeMap::new();
        for (number, _) in world.stored.iter().flat_map(|stored| &stored.records) {
            let before = last.insert(&world.key_of[number], number);
            prop_assert!(before.is_none_or(|before| before < number));
        }
    }

    /// S-137: with aggregation and key safety together, no aggregate mixes keys, whatever happens.
    #[test]
    fn with_key_safety_no_aggregate_mixes_keys(
        config in prop_oneof![
            config(Aggregation::ByShard),
            config(Aggregation::ByKey),
            config(Aggregation::FirstKey),
        ],
        steps in steps(true, true),
    ) {
        let mut world = World::new(ProducerConfig { partition_key_safety: true, ..config });
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.settle();
        world.check_receipts();
        prop_assert_eq!(world.bench.listings, 0);
    }
}
