//! Aggregates: when they close, and what becomes of the records in them.

use kinesis_kpl::{Deaggregated, deaggregate};

use super::*;
use crate::aggregation::Aggregation;

fn by_key() -> ProducerConfig {
    ProducerConfig { aggregation: Aggregation::ByKey, ..ProducerConfig::default() }
}

/// The user records of each Kinesis record of the oldest call.
fn contents(bench: &Bench) -> Vec<Vec<u32>> {
    let items = &bench.batcher.calls[&bench.started[0]].items;
    items.iter().map(|item| item.loads().iter().map(|load| load.put.0).collect()).collect()
}

/// S-126: without the option each record is sent as it is.
#[test]
fn nothing_is_aggregated_unless_it_is_asked_for() {
    assert_eq!(ProducerConfig::default().aggregation, Aggregation::Off);
    let mut bench = Bench::new(&ProducerConfig::default());
    for _ in 0..3 {
        bench.put(KEY, 5);
    }
    bench.wake();
    assert_eq!(bench.calls(), [(3, 3 * (3 + 5))]);
    let records: Vec<_> = bench.batcher.records(bench.started[0]).cloned().collect();
    assert_eq!(records, vec![OutboundRecord::new(KEY, vec![0; 5]); 3]);
}

/// S-128: records share an aggregate with the key of the first one, and its receipts tell their places.
#[test]
fn records_share_an_aggregate_and_keep_their_order() {
    let mut bench = Bench::new(&by_key());
    for key in ["a", "b", "a", "a", "b"] {
        bench.put(key, 5);
    }
    bench.wake();
    assert_eq!((bench.millis(), contents(&bench)), (100, vec![vec![0, 2, 3], vec![1, 4]]));
    let outer: Vec<_> = bench.batcher.records(bench.started[0]).map(|r| r.partition_key.as_str()).collect();
    assert_eq!(outer, ["a", "b"]);
    bench.accept();
    let places: Vec<_> = bench.sent().values().map(|sent| (sent.sub_sequence, sent.attempts)).collect();
    assert_eq!(places, [(0, 1), (0, 1), (1, 1), (2, 1), (1, 1)]);
    assert_eq!((bench.kinesis_records, bench.batcher.held(), bench.batcher.held_bytes()), (2, 0, 0));
}

/// An aggregate that has waited its time goes with all others; one that is full goes into the queue.
#[test]
fn an_aggregate_closes_when_it_is_full_or_has_waited() {
    let config = ProducerConfig { aggregate_records: 3, ..by_key() };
    let mut bench = Bench::new(&config);
    for _ in 0..4 {
        bench.put("a", 1);
    }
    assert_eq!((bench.batcher.waiting(), bench.calls().len()), (1, 0));
    bench.pass(50);
    bench.put("b", 1);
    bench.pass(49);
    assert_eq!(bench.calls().len(), 0);
    bench.wake();
    assert_eq!((bench.millis(), contents(&bench)), (100, vec![vec![0, 1, 2], vec![3], vec![4]]));
}

/// An aggregate that closes behind younger ones goes before them, and does not wait longer than its time.
#[test]
fn the_oldest_aggregate_goes_first_though_it_closes_last() {
    let config = ProducerConfig { aggregate_records: 2, ..by_key() };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.pass(50);
    for _ in 0..3 {
        bench.put("b", 1);
    }
    assert_eq!(bench.batcher.waiting(), 1);
    bench.wake();
    assert_eq!((bench.millis(), contents(&bench)), (100, vec![vec![0], vec![1, 2], vec![3]]));
}

/// F-31: a record that fits only without the frame goes alone, in its place.
#[test]
fn a_record_that_is_too_large_for_an_aggregate_goes_alone() {
    let config = ProducerConfig { aggregate_bytes: 200, ..by_key() };
    let mut bench = Bench::new(&config);
    bench.put("a", 10);
    bench.put("a", 199);
    bench.put("a", 10);
    bench.put("a", 10);
    bench.wake();
    assert_eq!(contents(&bench), [vec![0], vec![1], vec![2, 3]]);
    let alone = bench.batcher.records(bench.started[0]).nth(1).unwrap();
    assert_eq!((alone.wire_len(), alone.data.len()), (200, 199));
}

/// S-150: a batch, a flush and the end do not wait for aggregates to fill.
#[test]
fn a_batch_a_flush_and_the_end_close_aggregates() {
    let mut bench = Bench::new(&by_key());
    bench.put("a", 1);
    let batch = vec![bench.numbered("a", 1), bench.numbered("b", 1)];
    bench.step(Event::AdmittedBatch(batch));
    assert_eq!(contents(&bench), [vec![0, 1], vec![2]]);
    bench.accept();
    bench.put("a", 1);
    bench.put("a", 1);
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    assert_eq!(contents(&bench), [vec![3, 4]]);
    bench.accept();
    assert_eq!(bench.flushed, [(FlushId(1), FlushReport { sent: 2, failed: 0, unconfirmed: 0 })]);
    bench.put("a", 1);
    bench.step(Event::Drain);
    assert_eq!(contents(&bench), [vec![5]]);
}

/// S-153: a refused aggregate is sent again whole, and each record in it counts as retried.
#[test]
fn a_refused_aggregate_is_sent_again_whole() {
    let mut bench = Bench::new(&by_key());
    let batch = (0..4).map(|at| bench.numbered(if at < 3 { "a" } else { "b" }, 1)).collect();
    bench.step(Event::AdmittedBatch(batch));
    let wire: Vec<_> = bench.batcher.records(bench.started[0]).cloned().collect();
    let call = bench.started.remove(0);
    let refused = ServiceFailure::from_code("InternalFailure", "refused");
    let stored = (ShardId::new("shardId-000000000000").unwrap(), SequenceNumber::ZERO);
    bench.step(Event::Answered { call, result: Ok(vec![Err(refused), Ok(stored)]) });
    assert_eq!((bench.retrying, bench.stored()), (3, vec![3]));
    bench.wake();
    let again: Vec<_> = bench.batcher.records(bench.started[0]).cloned().collect();
    assert_eq!(again, wire[..1]);
    bench.accept();
    assert_eq!(bench.sent()[&0].attempts, 2);
    assert_eq!((bench.batcher.held(), bench.batcher.held_bytes()), (0, 0));
}

/// The time of an aggregate is that of its oldest record.
#[test]
fn an_aggregate_expires_with_its_oldest_record() {
    let config = ProducerConfig {
        delivery_timeout: Duration::from_millis(1_000),
        linger: Duration::from_millis(600),
        max_retries: 100,
        ..by_key()
    };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.pass(500);
    bench.put("a", 1);
    while bench.done.is_empty() {
        if bench.started.is_empty() {
            bench.wake();
        } else {
            bench.answer(|_, _| Some("InternalFailure"));
        }
    }
    assert_eq!(
        bench.failures().iter().map(|(number, kind, _)| (*number, *kind)).collect::<Vec<_>>(),
        [(0, RecordErrorKind::Expired), (1, RecordErrorKind::Expired)]
    );
    assert!(bench.millis() <= 1_000, "{} ms", bench.millis());
}

/// While calls are held up, aggregates go on filling, and expire when that takes too long.
#[test]
fn aggregates_fill_while_no_call_can_start() {
    let config = ProducerConfig { in_flight: 1, delivery_timeout: Duration::from_secs(2), ..by_key() };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.wake();
    for _ in 0..5 {
        bench.put("b", 1);
        bench.pass(200);
    }
    assert_eq!((bench.started.len(), bench.batcher.waiting()), (1, 0));
    bench.accept();
    assert_eq!(contents(&bench), [vec![1, 2, 3, 4, 5]]);

    bench.put("c", 1);
    bench.wake();
    assert_eq!(bench.failures(), [(6, RecordErrorKind::Expired, 0)]);
}

/// F-36: giving up answers what is in open aggregates too.
#[test]
fn giving_up_answers_records_in_open_aggregates() {
    let mut bench = Bench::new(&by_key());
    let batch = vec![bench.numbered("a", 1), bench.numbered("a", 1)];
    bench.step(Event::AdmittedBatch(batch));
    bench.put("a", 1);
    bench.put("b", 1);
    bench.step(Event::GiveUp(RecordErrorKind::Closed));
    let kind = RecordErrorKind::Closed;
    assert_eq!(bench.failures(), [(0, kind, 1), (1, kind, 1), (2, kind, 0), (3, kind, 0)]);
    assert_eq!((bench.batcher.held(), bench.batcher.held_bytes()), (0, 0));
}

/// What is kept twice, in the record and in the aggregate, counts twice of the byte budget.
#[test]
fn aggregates_count_besides_the_records_in_them() {
    let mut bench = Bench::new(&by_key());
    bench.put("a", 1_000);
    let alone = bench.batcher.held_bytes();
    bench.put("a", 1_000);
    assert!(bench.batcher.held_bytes() >= alone + 2 * 1_000, "{} after {alone}", bench.batcher.held_bytes());
    bench.wake();
    let aggregate = bench.batcher.records(bench.started[0]).next().unwrap().data.len();
    assert_eq!(bench.batcher.held_bytes(), 2 * (1_001 + crate::config::RECORD_OVERHEAD) + aggregate);
}

/// C-03: an opt-in packs all keys together, under the first one.
#[test]
fn first_key_only_mixes_all_keys() {
    let config = ProducerConfig { aggregation: Aggregation::FirstKey, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    for key in ["a", "b", "c"] {
        bench.put(key, 1);
    }
    bench.wake();
    assert_eq!((contents(&bench), bench.listings), (vec![vec![0, 1, 2]], 0));
    let record = bench.batcher.records(bench.started[0]).next().unwrap();
    assert_eq!(record.partition_key.as_str(), "a");
    let Deaggregated::Records(aggregate) = deaggregate(record.data.clone()) else { panic!("an aggregate") };
    let keys: Vec<_> = aggregate.iter().map(|record| record.partition_key().to_owned()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
}
