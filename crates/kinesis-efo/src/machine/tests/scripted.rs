//! One situation each.

use std::time::Duration;

use kinesis_core::aws::FailureKind;
use kinesis_core::source::SourceError;
use kinesis_core::{StartPosition, Timestamp};

use super::super::Event;
use super::model::*;

const SECOND: Duration = Duration::from_secs(1);

/// Whether a delay is the given number of seconds, plus at most a quarter.
fn is_about(delay: Duration, seconds: u64) -> bool {
    let least = Duration::from_secs(seconds);
    least <= delay && delay <= least.mul_f64(1.25)
}

/// S-099: subscriptions that bring nothing, ended in order or not, climb 1, 2, 4 up to the ceiling; one event starts
/// them over.
#[test]
fn delays_climb_with_subscriptions_that_bring_nothing() {
    for failure in [None, Some(code("InternalFailureException"))] {
        let mut run = Run::new(StartPosition::TrimHorizon, &config());
        assert_eq!(run.open(), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            run.close(failure.clone());
            let delay = run.open();
            assert!(is_about(delay, seconds), "{delay:?} for {seconds}");
        }
        run.step(pushed(&[5], 5, 0));
        run.close(failure.clone());
        let delay = run.open();
        assert!(is_about(delay, 1), "{delay:?}");
        run.close(failure.clone());
        let delay = run.open();
        // Ending in order after an event is no failure; the next step of the ladder is the first or the second.
        assert!(is_about(delay, if failure.is_some() { 2 } else { 1 }), "{delay:?}");
    }
}

/// S-098: the ceiling is a setting.
#[test]
fn the_ceiling_of_the_delays_is_a_setting() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config().max_resubscribe_interval(5 * SECOND));
    run.open();
    for seconds in [1, 2, 4, 5, 5, 5] {
        run.close(None);
        let delay = run.open();
        assert!(is_about(delay, seconds), "{delay:?} for {seconds}");
    }
}

/// S-097, S-096: after a planned end with events the next call goes out at once, or a second after the last one.
#[test]
fn a_planned_end_waits_for_the_limit_only() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    run.step(pushed(&[1], 1, 0));
    run.pass(Duration::from_millis(400));
    run.close(None);
    assert_eq!(run.open(), Duration::from_millis(600));
    run.step(pushed(&[], 7, 0));
    run.pass(30 * SECOND);
    run.close(None);
    assert_eq!(run.calls.len(), 3, "at once");
    let starts: Vec<_> = run.calls.iter().map(|(_, start)| start.clone()).collect();
    assert_eq!(starts, [StartPosition::TrimHorizon, after(1), after(7)]);
    assert_eq!((run.reconnects, run.stream_errors), (0, 0));
    assert_eq!(run.story(), ["records 1", "progress 7"]);
}

/// contention stays at the floor, is said once, and an own success explains refusals within five seconds of it.
#[test]
fn contention_stays_at_the_floor() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.until_call();
    for _ in 0..200 {
        run.refuse(code("ResourceInUseException"));
        let delay = run.until_call();
        assert!(is_about(delay, 1), "{delay:?}");
    }
    assert_eq!((run.story(), run.reconnects), (vec!["degraded".to_owned()], 200));
    run.accept();
    run.close(Some(code("InternalFailureException")));
    let early = run.until_call();
    assert!(is_about(early, 1));
    run.refuse(code("ResourceInUseException"));
    assert_eq!(early + run.open(), 5 * SECOND, "not refused again and again for a reason that is known");
    run.step(pushed(&[1], 1, 0));
    assert_eq!(run.story(), ["recovered", "records 1"]);
}

/// each long episode is said, once; a short one between them is not.
#[test]
fn each_long_episode_of_contention_is_said_once() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.until_call();
    for (number, refusals) in [(1, 100), (2, 20), (3, 100)] {
        for _ in 0..refusals {
            run.refuse(code("ResourceInUseException"));
            run.until_call();
        }
        let said = if refusals > 30 { vec!["degraded".to_owned()] } else { Vec::new() };
        assert_eq!(run.story(), said, "{refusals}");
        run.accept();
        run.step(pushed(&[number], number, 0));
        run.close(None);
        run.until_call();
        let back = (refusals > 30).then(|| "recovered".to_owned());
        assert_eq!(run.story(), back.into_iter().chain([format!("records {number}")]).collect::<Vec<_>>());
    }
}

/// S-102: a subscription that was taken over counts as no progress, whatever it brought, until one has lasted.
#[test]
fn take_overs_escalate_although_there_were_events() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    for (turn, seconds) in [5, 5, 5, 8, 16, 30, 30].into_iter().enumerate() {
        run.step(pushed(&[turn as u128 + 1], turn as u128 + 1, 0));
        run.pass(6 * SECOND);
        run.close(Some(code("ResourceInUseException")));
        let delay = run.open();
        assert!(is_about(delay, seconds), "{delay:?} for {seconds}");
    }
    run.step(pushed(&[100], 100, 0));
    run.pass(31 * SECOND);
    run.close(Some(code("ResourceInUseException")));
    let delay = run.open();
    assert!(is_about(delay, 5), "{delay:?}");
}

/// S-102: a shard that others take over again and again is said once, when the delays are the longest; that it is over,
/// when a subscription has lasted. The next such episode is said again.
#[test]
fn endless_take_overs_are_said_once() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    let mut number = 0;
    // The last take-over of an episode is the first of the next one.
    for said_at in [5, 4] {
        for turn in 0..20 {
            run.open();
            run.pass(6 * SECOND);
            number += 1;
            run.step(pushed(&[number], number, 0));
            run.close(Some(code("ResourceInUseException")));
            let expected = [format!("records {number}"), "degraded".to_owned()];
            assert_eq!(run.story(), expected[..if turn == said_at { 2 } else { 1 }], "turn {turn}");
        }
        run.open();
        for seconds in [30, 1] {
            run.pass(seconds * SECOND);
            run.step(pushed(&[], number, 0));
        }
        run.close(Some(code("ResourceInUseException")));
        let progress = format!("progress {number}");
        assert_eq!(run.story(), [&progress, "recovered", &progress]);
    }
}

/// F-17: children end a shard at once; nothing to go on after ends it if the stream then ends in order, and only then.
#[test]
fn the_end_of_a_shard_is_told_from_an_end_of_the_stream() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    run.step(last(&[1, 2], 2));
    assert_eq!(run.story(), ["records 1 2", "ended 2"]);
    assert!(!run.active && run.wake_at().is_none());

    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    run.step(last(&[1, 2], 0));
    run.close(None);
    assert_eq!(run.story(), ["records 1 2", "ended 0"]);

    // Not the end: more came, or the stream broke.
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    run.step(last(&[1, 2], 0));
    run.step(pushed(&[3], 3, 0));
    run.close(None);
    run.open();
    run.step(last(&[], 0));
    run.close(Some(failed(FailureKind::Transport)));
    run.open();
    assert_eq!(
        run.calls[1..].iter().map(|(_, start)| start.clone()).collect::<Vec<_>>(),
        [after(3), after(3)]
    );
    assert_eq!(run.story(), ["records 1 2", "records 3", "progress -"]);
    assert!(!run.is_over());
}

/// An empty continuation point is never used as a position: the last record is where to go on, or the start.
#[test]
fn an_empty_continuation_is_no_position() {
    let mut run = Run::new(at(40), &config());
    run.open();
    run.step(last(&[], 0));
    run.close(Some(failed(FailureKind::Transport)));
    run.open();
    run.step(last(&[41], 0));
    run.close(Some(failed(FailureKind::Transport)));
    run.open();
    let starts: Vec<_> = run.calls.iter().map(|(_, start)| start.clone()).collect();
    assert_eq!(starts, [at(40), at(40), after(41)]);
}

/// Neither a record nor a continuation point moves reading back.
#[test]
fn reading_never_goes_back() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.open();
    run.step(pushed(&[5, 6, 7], 7, 0));
    run.step(pushed(&[4, 6, 7, 8], 3, 0));
    run.close(None);
    run.open();
    run.step(pushed(&[8], 8, 0));
    run.close(None);
    run.open();
    assert_eq!(
        run.calls[1..].iter().map(|(_, start)| start.clone()).collect::<Vec<_>>(),
        [after(8), after(8)]
    );
    assert_eq!(run.story(), ["records 5 6 7", "records 8", "progress 8"]);
}

/// S-103, S-084: only a rejected number falls back, on the first call and on a later one.
#[test]
fn only_a_rejected_number_falls_back() {
    let rejected = || code("InvalidArgumentException");
    let mut run = Run::new(after(9), &config());
    run.until_call();
    run.refuse(rejected());
    run.open();
    run.step(pushed(&[20], 20, 1_000));
    assert_eq!(run.story(), ["gap 9 20", "records 20"]);
    // Not at the tip: what ages out now is lost.
    run.close(None);
    run.until_call();
    run.refuse(rejected());
    run.open();
    run.step(pushed(&[], 30, 0));
    assert_eq!(run.story(), ["gap 20 -", "progress 30"]);
    let starts: Vec<_> = run.calls.iter().map(|(_, start)| start.clone()).collect();
    assert_eq!(starts, [after(9), StartPosition::TrimHorizon, after(20), StartPosition::TrimHorizon]);

    for start in [StartPosition::TrimHorizon, StartPosition::Latest] {
        let mut run = Run::new(start, &config());
        run.until_call();
        run.refuse(rejected());
        assert!(matches!(run.error, Some(SourceError::Refused { .. })));
    }
    for kind in ["ValidationException", "LimitExceededException", "InternalFailure"] {
        let mut run = Run::new(after(9), &config());
        run.until_call();
        run.refuse(code(kind));
        if run.error.is_none() {
            run.until_call();
            assert_eq!(run.calls[1].1, after(9), "{kind}");
        }
    }
}

/// F-09: with `AtSequenceNumber` the record of that number is expected; when another comes first, that is a gap.
#[test]
fn an_expected_record_that_does_not_come_is_a_gap() {
    for (first, story) in [(9, vec!["records 9"]), (11, vec!["gap 9 11", "records 11"])] {
        let mut run = Run::new(at(9), &config());
        run.open();
        run.step(pushed(&[first], first, 0));
        assert_eq!(run.story(), story);
    }
    let mut run = Run::new(at(9), &config());
    run.open();
    run.step(last(&[], 1));
    assert_eq!(run.story(), ["gap 9 -", "ended 1"]);
}

/// S-104: the tip is pinned to the service's time of the first call, whenever that becomes known.
#[test]
fn the_tip_is_pinned_to_the_first_call() {
    let mut run = Run::new(StartPosition::Latest, &config().subscribe_timeout(4 * SECOND));
    run.until_call();
    // No answer, so no time: the second call can only ask for the tip again.
    let waited = run.until_call();
    assert!(is_about(waited - 4 * SECOND, 1));
    assert_eq!(run.calls[1].1, StartPosition::Latest);
    // It is refused, and tells the time.
    run.refuse_at(code("InternalFailure"), 100_000_000);
    run.until_call();
    let passed = i64::try_from(waited.as_millis()).unwrap();
    let StartPosition::AtTimestamp { timestamp } = run.calls[2].1 else { panic!("{:?}", run.calls[2]) };
    let exact = 100_000_000 - passed - 1_000;
    assert!((exact - 1..=exact).contains(&timestamp.as_millis()), "{timestamp}");
}

/// S-104: a later tip that is granted is given up as soon as the time of the first one is known.
#[test]
fn a_later_tip_is_given_up() {
    let mut run = Run::new(StartPosition::Latest, &config());
    run.until_call();
    run.until_call();
    let service_time = Some(Timestamp::from_millis(100_000_000));
    run.step(Event::Subscribed { answer: Ok(()), service_time });
    assert!(!run.active);
    let waited = run.open();
    assert_eq!(waited, 5 * SECOND);
    assert!(matches!(run.calls[2].1, StartPosition::AtTimestamp { .. }));
}

/// S-207: a time that has not come yet is waited for; any other refusal of a time is a mistake.
#[test]
fn a_time_to_come_is_waited_for() {
    let start = StartPosition::AtTimestamp { timestamp: Timestamp::from_millis(50_000) };
    let mut run = Run::new(start.clone(), &config());
    run.until_call();
    run.refuse_at(code("InvalidArgumentException"), 49_000);
    run.until_call();
    assert_eq!(run.calls[1].1, start);
    run.refuse_at(code("InvalidArgumentException"), 51_000);
    assert!(matches!(run.error, Some(SourceError::Refused { .. })));
}

/// what the first call tells at once, and what is waited for.
#[test]
fn the_first_call_tells_mistakes_at_once() {
    let outcome = |code_: &str| {
        let mut run = Run::new(StartPosition::TrimHorizon, &config());
        run.until_call();
        run.refuse(code(code_));
        run.error.map(|error| error.is_retryable())
    };
    for (code_, ends) in [
        ("AccessDeniedException", Some(true)),
        ("KMSDisabledException", Some(true)),
        ("InvalidArgumentException", Some(false)),
        ("ValidationException", Some(false)),
        ("ResourceNotFoundException", None),
        ("ResourceInUseException", None),
        ("LimitExceededException", None),
        ("KMSThrottlingException", None),
        ("InternalFailure", None),
        ("SomethingNewException", None),
    ] {
        assert_eq!(outcome(code_), ends, "{code_}");
    }
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.until_call();
    run.refuse(code("ResourceNotFoundException"));
    run.until_call();
    assert_eq!(run.looks, 2, "the consumer is looked for anew");
    run.refuse(code("ResourceNotFoundException"));
    assert!(matches!(run.error, Some(SourceError::NotFound { .. })));
}

/// silence, the missing first frame, and a process that stood still.
#[test]
fn the_watchdogs() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config());
    run.until_call();
    assert_eq!(run.wake_at(), Some(10 * SECOND));
    run.accept();
    assert_eq!(run.wake_at(), Some(35 * SECOND));
    run.pass(20 * SECOND);
    run.step(pushed(&[], 1, 0));
    assert_eq!(run.wake_at(), Some(55 * SECOND), "an event begins it anew");
    run.pass(20 * SECOND);
    run.step(Event::Unknown);
    assert_eq!(run.wake_at(), Some(75 * SECOND), "so does one that is not known");
    // The timer comes late: nobody listened.
    run.now += 36 * SECOND + Duration::from_millis(1);
    run.step(Event::Wake);
    assert!(run.active);
    assert_eq!(run.wake_at(), Some(111 * SECOND + Duration::from_millis(1)));
    run.pass(35 * SECOND);
    assert!(!run.active);
    assert_eq!(run.stream_errors, 1);
}

/// S-107: the bound of the buffer closes the subscription, half of it lets it open, five seconds after the success.
#[test]
fn the_buffer_closes_and_opens_the_subscription() {
    const RECORD: usize = super::super::RECORD_OVERHEAD;
    let mut run = Run::with(StartPosition::TrimHorizon, &config(), 4 * RECORD, 1);
    run.open();
    run.step(pushed(&[1, 2, 3], 3, 5));
    assert!(run.active);
    run.step(pushed(&[4], 4, 5));
    assert!(!run.active);
    assert_eq!(run.wake_at(), None);
    run.step(Event::Taken(2 * RECORD));
    assert_eq!(run.wake_at(), None, "half is not below half");
    run.pass(SECOND);
    run.step(Event::Taken(RECORD));
    assert_eq!(run.wake_at(), Some(5 * SECOND));
    assert_eq!(run.open(), 4 * SECOND);
    assert_eq!(run.calls[1].1, after(4));
    assert_eq!((run.reconnects, run.stream_errors), (0, 0));
    // An event larger than the whole buffer.
    run.step(Event::Taken(RECORD));
    run.step(pushed(&[5, 6, 7, 8, 9, 10], 10, 5));
    assert!(!run.active);
    run.step(Event::Taken(6 * RECORD));
    run.pass(5 * SECOND);
    assert!(run.active);
}

/// S-081: a bounded run gives up; throttles and contention do not count.
#[test]
fn a_bounded_run_gives_up() {
    let mut run = Run::new(StartPosition::TrimHorizon, &config().max_attempts(Some(2)));
    for code_ in ["LimitExceededException", "ResourceInUseException", "InternalFailure"] {
        run.until_call();
        run.refuse(code(code_));
    }
    run.open();
    run.close(None);
    assert!(matches!(run.error, Some(SourceError::Exhausted { attempts: 2, .. })));
}
