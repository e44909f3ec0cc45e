//! What becomes of records whose attempts fail.

use super::*;

const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// Sends everything at once.
fn eager() -> ProducerConfig {
    ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() }
}

fn batch(bench: &mut Bench, records: usize) {
    let batch = (0..records).map(|index| bench.numbered(&format!("key-{index}"), 1)).collect();
    bench.step(Event::AdmittedBatch(batch));
}

/// S-153, F-32: only the refused records are sent again, together and in order, and each has one answer.
#[test]
fn only_refused_records_are_sent_again() {
    let mut bench = Bench::new(&ProducerConfig::default());
    batch(&mut bench, 500);
    for _ in 0..2 {
        bench.answer(|_, number| match number {
            _ if number % 7 == 0 => Some(THROTTLED),
            _ if number % 11 == 0 => Some("InternalFailure"),
            _ => None,
        });
        bench.wake();
        let refused: Vec<u32> = (0..500).filter(|number| number % 7 == 0 || number % 11 == 0).collect();
        assert_eq!(bench.call(), refused);
    }
    bench.accept();
    let mut stored = bench.stored();
    stored.sort_unstable();
    assert_eq!(stored, (0..500).collect::<Vec<_>>());
    for (number, outcome) in &bench.done {
        let attempts = if number % 7 == 0 || number % 11 == 0 { 3 } else { 1 };
        assert_eq!(outcome.as_ref().unwrap().attempts, attempts);
    }
    assert_eq!(bench.retrying, 2 * (72 + 46 - 7));
    assert_eq!((bench.batcher.held(), bench.batcher.held_bytes()), (0, 0));
}

/// S-153, S-199: after three retries the record fails with its reason and attempts.
#[test]
fn a_record_is_given_up_after_its_retries() {
    let mut bench = Bench::new(&eager());
    bench.put(KEY, 1);
    let mut delays = Vec::new();
    for _ in 0..3 {
        let answered = bench.now;
        bench.answer(|_, _| Some(THROTTLED));
        assert_eq!(bench.done.len(), 0);
        bench.wake();
        delays.push((bench.now - answered).as_millis());
    }
    bench.answer(|_, _| Some(THROTTLED));
    assert_eq!(bench.failures(), [(0, RecordErrorKind::Refused, 4)]);
    let failure = bench.done[0].1.as_ref().unwrap_err();
    assert_eq!(failure.cause.as_ref().unwrap().kind(), FailureKind::Throttled);
    assert!(!failure.in_doubt);
    for (delay, ceiling) in delays.into_iter().zip([200, 400, 800]) {
        assert!((ceiling / 2..=ceiling).contains(&delay), "{delay} ms for {ceiling} ms");
    }
}

#[test]
fn without_retries_the_first_failure_is_the_last() {
    let mut bench = Bench::new(&ProducerConfig { max_retries: 0, ..eager() });
    bench.put(KEY, 1);
    bench.answer(|_, _| Some(THROTTLED));
    assert_eq!(bench.failures(), [(0, RecordErrorKind::Refused, 1)]);
}

/// F-26: a key that may not be used is not tried again.
#[test]
fn a_refusal_that_cannot_pass_is_final() {
    let mut bench = Bench::new(&eager());
    bench.put(KEY, 1);
    bench.answer(|_, _| Some("KMSDisabledException"));
    assert_eq!(bench.failures(), [(0, RecordErrorKind::Refused, 1)]);
}

/// F-32: a call that fails as a whole comes back as a whole, and no other call starts before.
#[test]
fn a_failed_call_holds_up_the_next_ones() {
    let mut bench = Bench::new(&eager());
    batch(&mut bench, 3);
    bench.fail_call(FailureKind::Transport);
    bench.put("other", 1);
    assert_eq!(bench.started, []);
    let wake = bench.batcher.next_wake().unwrap();
    assert!((100..=200).contains(&(wake - bench.now).as_millis()));
    bench.wake();
    assert_eq!(bench.call(), [0, 1, 2, 3]);
    assert_eq!(bench.retrying, 0, "not refused on their own");
    bench.accept();
    let attempts: Vec<_> = bench.done.iter().map(|(_, sent)| sent.as_ref().unwrap().attempts).collect();
    assert_eq!(attempts, [2, 2, 2, 1]);
}

/// After a failed call a single one tries whether calls work again, whatever else is under way.
#[test]
fn a_single_call_probes_after_a_failure() {
    let config = ProducerConfig { batch_records: 1, in_flight: 3, ..eager() };
    let mut bench = Bench::new(&config);
    bench.put_many(6);
    assert_eq!(bench.started.len(), 3);
    bench.fail_call(FailureKind::Transport);
    bench.wake();
    assert_eq!((bench.started.len(), bench.call()), (3, vec![1]), "two that hang and the probe");
    bench.accept();
    assert_eq!(bench.started.len(), 3, "all may go on");

    bench.fail_call(FailureKind::Transport);
    bench.fail_call(FailureKind::Transport);
    bench.fail_call(FailureKind::Transport);
    bench.wake();
    assert_eq!(bench.started.len(), 1);
    bench.fail_call(FailureKind::Transport);
    bench.wake();
    assert_eq!(bench.started.len(), 1);
    bench.accept();
    assert_eq!(bench.started.len(), 3);
}

/// An answer with the wrong number of results says nothing about any record.
#[test]
fn a_result_count_that_does_not_match_fails_the_whole_call() {
    let mut bench = Bench::new(&ProducerConfig { max_retries: 0, ..eager() });
    batch(&mut bench, 2);
    let call = bench.started.remove(0);
    let one = Ok((ShardId::new("shardId-000000000000").unwrap(), SequenceNumber::ZERO));
    bench.step(Event::Answered { call, result: Ok(vec![one]) });
    let kind = RecordErrorKind::CallFailed;
    assert_eq!(bench.failures(), [(0, kind, 1), (1, kind, 1)]);
    let failure = bench.done[0].1.as_ref().unwrap_err();
    assert!(failure.in_doubt);
    assert_eq!(failure.cause.as_ref().unwrap().to_string(), "the answer has 1 results for 2 records");
}

/// S-162, F-45: a request that the service finds invalid is not repeated and holds nothing up.
#[test]
fn an_invalid_request_is_final_and_holds_nothing_up() {
    let mut bench = Bench::new(&eager());
    bench.put("a", 1);
    bench.fail_call(FailureKind::Invalid);
    assert_eq!(bench.failures(), [(0, RecordErrorKind::CallFailed, 1)]);
    bench.put("b", 1);
    assert_eq!(bench.call(), [1]);
}

/// F-26: while access is denied there are few calls: each one waits longer, and success ends it.
#[test]
fn denied_calls_become_rare_and_recover() {
    let mut bench = Bench::new(&eager());
    let mut waits = Vec::new();
    for _ in 0..8 {
        bench.put(KEY, 1);
        let before = bench.now;
        bench.wake_if_idle();
        waits.push((bench.now - before).as_millis());
        bench.fail_call(FailureKind::AccessDenied);
    }
    for (wait, ceiling) in waits.iter().zip([0, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]) {
        assert!((ceiling / 2..=ceiling).contains(wait), "{wait} ms for {ceiling} ms");
    }
    bench.put(KEY, 1);
    bench.wake_if_idle();
    bench.accept();
    bench.put(KEY, 1);
    assert_eq!(bench.started.len(), 1, "nothing is held up after a success");
}

impl Bench {
    fn wake_if_idle(&mut self) {
        if self.started.is_empty() {
            self.wake();
        }
    }
}

/// A record that has no time left for another attempt fails at once, with the failure that it had.
#[test]
fn no_attempt_starts_after_the_delivery_timeout() {
    let config = ProducerConfig { delivery_timeout: Duration::from_millis(50), ..eager() };
    let mut bench = Bench::new(&config);
    bench.put(KEY, 1);
    bench.answer(|_, _| Some(THROTTLED));
    assert_eq!(bench.failures(), [(0, RecordErrorKind::Expired, 1)]);
    let failure = bench.done[0].1.as_ref().unwrap_err();
    assert_eq!(failure.cause.as_ref().unwrap().kind(), FailureKind::Throttled);
}

#[test]
fn a_record_that_never_finds_a_call_expires() {
    let config = ProducerConfig { in_flight: 1, delivery_timeout: Duration::from_secs(1), ..eager() };
    let mut bench = Bench::new(&config);
    bench.put("a", 1);
    bench.put("a", 1);
    bench.put("b", 1);
    bench.wake();
    assert_eq!(bench.millis(), 1_000);
    assert_eq!(bench.failures(), [(2, RecordErrorKind::Expired, 0)]);
    bench.accept();
    assert_eq!(bench.failures()[1], (1, RecordErrorKind::Expired, 0));
    assert_eq!(bench.batcher.next_wake(), None);
}

/// C-18, F-33: in the default mode a refused record may come after later ones of its key, and only then.
#[test]
fn later_records_of_a_key_may_overtake_a_refused_one() {
    let mut bench = Bench::new(&eager());
    bench.put(KEY, 1);
    bench.answer(|_, _| Some(THROTTLED));
    bench.put(KEY, 1);
    assert_eq!(bench.call(), [1]);
    bench.accept();
    bench.wake();
    bench.accept();
    assert_eq!(bench.stored(), [1, 0]);
}

/// Whether a record may be stored although it failed depends on how its attempts ended.
#[test]
fn a_record_is_in_doubt_when_an_answer_was_lost() {
    let doubts = [
        (FailureKind::Timeout, true),
        (FailureKind::Transport, true),
        (FailureKind::Server, true),
        (FailureKind::Throttled, false),
        (FailureKind::AccessDenied, false),
    ];
    for (kind, in_doubt) in doubts {
        let mut bench = Bench::new(&ProducerConfig { max_retries: 1, ..eager() });
        bench.put(KEY, 1);
        bench.fail_call(kind);
        if bench.done.is_empty() {
            bench.wake();
            bench.answer(|_, _| Some(THROTTLED));
        }
        assert_eq!(bench.done[0].1.as_ref().unwrap_err().in_doubt, in_doubt);
    }
}
