//! Random histories against what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: u8,
        len: usize,
    },
    Batch(Vec<(u8, usize)>),
    Flush {
        limit: Option<u64>,
    },
    Pass(u64),
    /// The call at this place is answered; the bits say which records are refused.
    Answer {
        place: usize,
        refused: u64,
    },
    Fail {
        place: usize,
        kind: FailureKind,
    },
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![
        Just(FailureKind::Transport),
        Just(FailureKind::Timeout),
        Just(FailureKind::Throttled),
        Just(FailureKind::AccessDenied),
        Just(FailureKind::Invalid),
    ];
    let record = || (0_u8..4, 0_usize..60);
    prop_oneof![
        6 => record().prop_map(|(key, len)| Step::Put { key, len }),
        2 => prop::collection::vec(record(), 0..6).prop_map(Step::Batch),
        1 => prop::option::of(0_u64..500).prop_map(|limit| Step::Flush { limit }),
        4 => (0_u64..300).prop_map(Step::Pass),
        6 => (0_usize..3, prop_oneof![Just(0), any::<u64>()])
            .prop_map(|(place, refused)| Step::Answer { place, refused }),
        1 => (0_usize..3, kinds).prop_map(|(place, kind)| Step::Fail { place, kind }),
        1 => Just(Step::Drain),
    ]
}

fn config() -> impl Strategy<Value = ProducerConfig> {
    (1_usize..6, 70_usize..200, 0_u64..150, 1_usize..4, 0_u32..4, 1_u64..2_000).prop_map(
        |(batch_records, batch_bytes, linger, in_flight, max_retries, delivery)| ProducerConfig {
            batch_records,
            batch_bytes,
            max_record_bytes: 70,
            linger: Duration::from_millis(linger),
            in_flight,
            max_retries,
            delivery_timeout: Duration::from_millis(delivery),
            ..ProducerConfig::default()
        },
    )
}

/// What must hold between any two events.
fn check(bench: &Bench, config: &ProducerConfig) {
    assert!(bench.started.len() <= config.in_flight);
    let mut keys = BTreeSet::new();
    for call in &bench.started {
        let records: Vec<_> = bench.batcher.records(*call).collect();
        assert!((1..=config.batch_records).contains(&records.len()));
        assert!(records.iter().map(|record| record.wire_len()).sum::<usize>() <= config.batch_bytes);
        let numbers = bench.records_of(*call);
        assert!(numbers.is_sorted(), "in the order of admission");
        let of_call: BTreeSet<_> = records.iter().map(|record| record.partition_key.as_str()).collect();
        for key in of_call {
            assert!(keys.insert(key), "a key in two calls at a time");
        }
    }
    let in_flight: usize = bench.calls().iter().map(|(records, _)| records).sum();
    assert_eq!(bench.batcher.held(), bench.batcher.waiting() + in_flight);
    assert_eq!(
        bench.batcher.held() + bench.done.len(),
        bench.next as usize,
        "each record is here or answered"
    );
    let answered: BTreeSet<_> = bench.done.iter().map(|(number, _)| number).collect();
    assert_eq!(answered.len(), bench.done.len(), "one answer each");
    assert!(bench.batcher.next_wake().is_none_or(|wake| wake > bench.now), "nothing that is due is left");
}

fn key(number: u8) -> String {
    format!("key-{number}")
}

fn run(bench: &mut Bench, step: &Step, next_flush: &mut u64) {
    match step {
        Step::Put { key: number, len } => {
            bench.put(&key(*number), *len);
        }
        Step::Batch(records) => {
            let batch = records.iter().map(|(number, len)| bench.numbered(&key(*number), *len)).collect();
            bench.step(Event::AdmittedBatch(batch));
        }
        Step::Flush { limit } => {
            let deadline = limit.map(|millis| bench.now + Duration::from_millis(millis));
            bench.step(Event::Flush { id: FlushId(*next_flush), deadline });
            *next_flush += 1;
        }
        Step::Pass(millis) => bench.pass(*millis),
        Step::Answer { place, refused } if *place < bench.started.len() => {
            let call = bench.started.remove(*place);
            bench.started.insert(0, call);
            bench.answer(|index, _| (refused >> index & 1 == 1).then_some("InternalFailure"));
        }
        Step::Fail { place, kind } if *place < bench.started.len() => {
            let call = bench.started.remove(*place);
            bench.started.insert(0, call);
            bench.fail_call(*kind);
        }
        Step::Drain => bench.step(Event::Drain),
        Step::Answer { .. } | Step::Fail { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// S-158, S-159, F-32, F-34, F-36: whatever happens, limits hold, keys stay in order in flight, every record has
    /// exactly one answer, and everything comes to an end by itself once calls are answered.
    #[test]
    fn every_record_has_exactly_one_answer(
        config in config(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut bench = Bench::new(&config);
        let mut flushes = 0;
        for step in &steps {
            run(&mut bench, step, &mut flushes);
            check(&bench, &config);
        }
        bench.step(Event::Flush { id: FlushId(flushes), deadline: None });
        for _ in 0..10_000 {
            if bench.batcher.held() == 0 {
                break;
            }
            if bench.started.is_empty() { bench.wake() } else { bench.accept() }
            check(&bench, &config);
        }
        prop_assert_eq!(bench.done.len(), bench.next as usize);
        prop_assert_eq!(bench.batcher.held_bytes(), 0);
        let ended: BTreeSet<_> = bench.flushed.iter().map(|(id, _)| id.0).collect();
        prop_assert_eq!(ended, (0..=flushes).collect::<BTreeSet<_>>());
        prop_assert_eq!(bench.flushed.len() as u64, flushes + 1);
    }

    /// F-34, S-158: without refusals, the records of each key are stored in the order in which they were put, however
    /// the calls end among each other.
    #[test]
    fn keys_are_stored_in_order_when_nothing_is_refused(
        config in config(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let config = ProducerConfig { delivery_timeout: Duration::from_secs(3_600), ..config };
        let mut bench = Bench::new(&config);
        let mut key_of = BTreeMap::new();
        for step in &steps {
            let step = match step {
                Step::Answer { place, .. } | Step::Fail { place, .. } => Step::Answer { place: *place, refused: 0 },
                other => other.clone(),
            };
            match &step {
                Step::Put { key, .. } => drop(key_of.insert(bench.next, *key)),
                Step::Batch(records) => {
                    key_of.extend(records.iter().enumerate().map(|(at, (key, _))| (bench.next + at as u32, *key)));
                }
                _ => {}
            }
            run(&mut bench, &step, &mut 0);
        }
        bench.step(Event::Drain);
        while bench.batcher.held() > 0 {
            bench.accept();
        }
        let mut last = BTreeMap::new();
        for number in bench.stored() {
            let before = last.insert(key_of[&number], number);
            prop_assert!(before.is_none_or(|before| before < number));
        }
        prop_assert_eq!(bench.stored().len(), bench.next as usize);
    }
}
