//! When calls start, and when flushes end.

use super::*;

/// S-157, C-17: a call starts when the records suffice, when the bytes suffice, or after the linger time.
#[test]
fn a_call_starts_by_records_by_bytes_or_by_time() {
    let config = ProducerConfig { batch_records: 3, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put_many(2);
    assert_eq!(bench.calls().len(), 0);
    bench.put_many(1);
    assert_eq!(bench.call(), [0, 1, 2]);

    let config = ProducerConfig { batch_bytes: 2_000, max_record_bytes: 2_000, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put(KEY, 1_000);
    assert_eq!(bench.calls().len(), 0);
    bench.put(KEY, 1_000 - 2 * KEY.len());
    assert_eq!(bench.calls(), [(2, 2_000)]);

    let mut bench = Bench::new(&ProducerConfig::default());
    bench.put_many(1);
    bench.pass(99);
    assert_eq!(bench.calls().len(), 0);
    bench.put_many(1);
    bench.wake();
    assert_eq!((bench.millis(), bench.call()), (100, vec![0, 1]));
}

#[test]
fn without_linger_each_record_goes_at_once() {
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put_many(2);
    assert_eq!(bench.calls().len(), 2);
}

/// S-151: a batch does not wait for others.
#[test]
fn a_batch_goes_at_once_and_takes_along_what_waits() {
    let mut bench = Bench::new(&ProducerConfig::default());
    bench.put_many(1);
    let batch = vec![bench.numbered("a", 1), bench.numbered("b", 1)];
    bench.step(Event::AdmittedBatch(batch));
    assert_eq!(bench.call(), [0, 1, 2]);
}

#[test]
fn no_more_calls_than_allowed_are_under_way() {
    let config = ProducerConfig { linger: Duration::ZERO, in_flight: 2, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put_many(5);
    assert_eq!(bench.calls(), [(1, 6), (1, 6)]);
    bench.accept();
    assert_eq!(bench.calls(), [(1, 6), (3, 18)]);
}

/// F-34: records of one key never overtake each other in concurrent calls; other keys go on.
#[test]
fn a_key_is_in_one_call_at_a_time() {
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.put("a", 1);
    bench.put("b", 1);
    bench.put("a", 1);
    assert_eq!(bench.started.len(), 2);
    assert_eq!((bench.call(), bench.records_of(bench.started[1])), (vec![0], vec![2]));
    assert_eq!(bench.batcher.waiting(), 2);
    bench.accept();
    assert_eq!(bench.records_of(bench.started[1]), [1, 3]);
}

/// S-158: a flush ends with the last record that was put before it, whatever is put later.
#[test]
fn a_flush_covers_what_was_put_before_it_and_nothing_else() {
    let mut bench = Bench::new(&ProducerConfig::default());
    bench.put("a", 1);
    bench.put("b", 1);
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    assert_eq!(bench.call(), [0, 1]);
    bench.put("c", 1);
    bench.step(Event::Flush { id: FlushId(2), deadline: None });
    bench.answer(|index, _| (index == 1).then_some("AccessDeniedException"));
    let report = FlushReport { sent: 1, failed: 1, unconfirmed: 0 };
    assert_eq!(bench.flushed, [(FlushId(1), report)]);
    bench.accept();
    assert_eq!(bench.flushed[1], (FlushId(2), FlushReport { sent: 2, failed: 1, unconfirmed: 0 }));
}

#[test]
fn a_flush_of_nothing_ends_at_once() {
    let mut bench = Bench::new(&ProducerConfig::default());
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    assert_eq!(bench.flushed, [(FlushId(1), FlushReport::default())]);
}

/// F-36: a flush ends by its deadline and counts what is not confirmed; those records stay on their way.
#[test]
fn a_flush_ends_at_its_deadline() {
    let mut bench = Bench::new(&ProducerConfig::default());
    bench.put_many(2);
    let deadline = Some(bench.now + Duration::from_millis(500));
    bench.step(Event::Flush { id: FlushId(1), deadline });
    bench.put_many(1);
    bench.pass(100);
    assert_eq!(bench.flushed, []);
    bench.wake();
    assert_eq!(bench.millis(), 500);
    let report = FlushReport { sent: 0, failed: 0, unconfirmed: 2 };
    assert_eq!(bench.flushed, [(FlushId(1), report)]);
    bench.accept();
    assert_eq!(bench.stored(), [0, 1]);
}

/// S-159: while the producer drains, nothing waits for others.
#[test]
fn draining_sends_at_once() {
    let mut bench = Bench::new(&ProducerConfig::default());
    bench.put_many(1);
    bench.step(Event::Drain);
    assert_eq!(bench.call(), [0]);
    bench.put_many(1);
    assert_eq!(bench.started.len(), 2);
}

/// F-36: given up, every record has its answer, in order; those in flight may be stored.
#[test]
fn giving_up_answers_everything_and_starts_nothing() {
    let config = ProducerConfig { batch_records: 1, in_flight: 1, ..ProducerConfig::default() };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.put("a", 1);
    bench.put("b", 1);
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    bench.step(Event::GiveUp(RecordErrorKind::Closed));
    bench.put("late", 1);
    let kind = RecordErrorKind::Closed;
    assert_eq!(bench.failures(), [(0, kind, 1), (1, kind, 0), (2, kind, 0), (3, kind, 0)]);
    let in_doubt: Vec<_> =
        bench.done.iter().map(|(_, outcome)| outcome.as_ref().unwrap_err().in_doubt).collect();
    assert_eq!(in_doubt, [true, false, false, false]);
    assert_eq!(bench.flushed, [(FlushId(1), FlushReport { sent: 0, failed: 3, unconfirmed: 0 })]);
    assert_eq!(bench.started.len(), 1);
    // The answer of the call that was under way comes too late.
    let call = bench.started[0];
    bench.step(Event::Answered { call, result: Ok(Vec::new()) });
    assert_eq!((bench.done.len(), bench.batcher.held(), bench.batcher.held_bytes()), (4, 0, 0));
}
