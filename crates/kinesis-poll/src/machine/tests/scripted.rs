//! One script per rule.

use std::collections::VecDeque;
use std::time::Duration;

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::SourceError;
use kinesis_core::{SequenceNumber, StartPosition, Timestamp};

use super::super::Event;
use super::model::*;
use crate::PollConfig;
use crate::limits::ITERATOR_LIFE;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Answers from a list, then falls silent.
fn script(events: impl IntoIterator<Item = Event>) -> impl FnMut(Duration, &Call) -> Option<Event> {
    let mut events: VecDeque<_> = events.into_iter().collect();
    move |_, _| events.pop_front()
}

fn at(number: u128) -> StartPosition {
    StartPosition::AtSequenceNumber { sequence: number.into() }
}

fn after(number: u128) -> StartPosition {
    StartPosition::AfterSequenceNumber { sequence: number.into() }
}

fn at_time(millis: i64) -> StartPosition {
    StartPosition::AtTimestamp { timestamp: Timestamp::from_millis(millis) }
}

/// F-39, S-087: while reading is behind, an empty page is no reason to wait longer than the read limit asks for.
#[test]
fn three_hundred_empty_pages_while_behind_take_a_minute() {
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    let pages = (0..300).map(|_| page(&[], 3_600_000)).chain([page(&[1], 0), page(&[], 0)]);
    run.until_silent(script([iterator("first")].into_iter().chain(pages))).unwrap();
    let reads = run.reads();
    let intervals = 300 * 200 * MS..=300 * 210 * MS;
    assert!(
        intervals.contains(&reads[300]),
        "the page with data is read after 300 intervals: {:?}",
        reads[300]
    );
    // Idle from here on: the calls are few.
    assert_eq!(reads[301] - reads[300], SECOND);
    assert_eq!(reads[302] - reads[301], SECOND);
}

/// S-025: a page that is empty and does not say how far behind it is counts as idle; one with records does not.
#[test]
fn a_page_without_lag_is_idle_only_when_it_is_empty() {
    let unknown = |numbers: &[u128]| match page(numbers, 0) {
        Event::Page(Ok(mut page)) => {
            page.behind = None;
            Event::Page(Ok(page))
        }
        other => other,
    };
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    run.until_silent(script([iterator("i"), unknown(&[1]), unknown(&[])])).unwrap();
    let reads = run.reads();
    assert!(reads.len() == 3 && (200 * MS..=210 * MS).contains(&reads[1]), "{reads:?}");
    assert_eq!(reads[2] - reads[1], SECOND);
}

/// S-080, S-082: a thousand throttled reads are no error; delays grow from 300 ms to 5 s and two shards differ.
#[test]
fn throttles_back_off_to_a_cap_and_are_never_an_error() {
    let delays = |seed| {
        let mut run =
            Run::seeded(StartPosition::TrimHorizon, &PollConfig::default().max_attempts(Some(3)), seed);
        let mut left = 1_000;
        run.until_silent(|_, call| match call {
            Call::Iterator { .. } => Some(iterator("i")),
            Call::Records(_) => {
                left -= 1;
                (left > 0).then(throttled)
            }
        })
        .unwrap();
        let asked = run.calls.iter().filter(|(_, call)| matches!(call, Call::Iterator { .. }));
        let asked: Vec<_> = asked.map(|(at, _)| *at).collect();
        assert!(
            asked.windows(2).all(|pair| pair[1] - pair[0] >= ITERATOR_LIFE),
            "the iterator in hand is kept"
        );
        assert_eq!(run.story(), ["degraded"], "said once");
        run.reads().windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    };
    let (one, other) = (delays(1), delays(2));
    for (delay, ceiling) in one.iter().zip([300, 600, 1_200, 2_400, 4_800].map(|ms| ms * MS)) {
        // Never closer than the read limit.
        assert!((ceiling / 2).max(200 * MS) <= *delay && *delay <= ceiling, "{delay:?} of {ceiling:?}");
    }
    assert!(one[5..].iter().all(|delay| 2_500 * MS <= *delay && *delay <= 5 * SECOND));
    assert_ne!(one, other, "jitter differs from shard to shard");
}

/// S-082: the first page starts the delays over, and all three values are settings.
#[test]
fn a_page_starts_the_delays_over() {
    let config =
        PollConfig::default().backoff_initial(SECOND).backoff_max(4 * SECOND).idle_interval(3 * SECOND);
    let mut run = Run::new(StartPosition::TrimHorizon, &config);
    let events =
        [iterator("i"), throttled(), throttled(), throttled(), throttled(), page(&[], 0), throttled()];
    run.until_silent(script(events)).unwrap();
    let reads = run.reads();
    let delays: Vec<_> = reads.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let within = |delay: Duration, ceiling: Duration| ceiling / 2 <= delay && delay <= ceiling;
    assert!(within(delays[0], SECOND) && within(delays[1], 2 * SECOND) && within(delays[2], 4 * SECOND));
    assert!(within(delays[3], 4 * SECOND), "capped: {:?}", delays[3]);
    assert_eq!(delays[4], 3 * SECOND, "an empty page waits the idle interval");
    assert!(within(delays[5], SECOND), "started over: {:?}", delays[5]);
}

/// S-081: a bounded run outlives seven failures and ends with the eighth, which names shard, call and count.
#[test]
fn a_bounded_run_gives_up_at_the_eighth_failure() {
    let config = PollConfig::default().max_attempts(Some(8));
    let failures = |n: usize| (0..n).map(|_| failed(FailureKind::Server));

    let mut run = Run::new(StartPosition::TrimHorizon, &config);
    let events = [iterator("i")].into_iter().chain(failures(7)).chain([page(&[1], 0)]).chain(failures(7));
    run.until_silent(script(events)).unwrap();
    assert_eq!(run.read_numbers(), [1]);

    let mut run = Run::new(StartPosition::TrimHorizon, &config);
    let error = run.until_silent(script([iterator("i")].into_iter().chain(failures(8)))).unwrap_err();
    let SourceError::Exhausted { shard: failed_shard, action, attempts, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((failed_shard, *action, *attempts), (&shard(), "GetRecords", 8));
    assert_eq!(error.to_string(), "GetRecords on orders/shardId-000000000003: gave up after 8 attempts");

    // The first iterator is tried again as well.
    let mut run = Run::new(StartPosition::TrimHorizon, &config);
    let timeouts = (0..8).map(|_| no_iterator(ServiceFailure::local(FailureKind::Timeout, "late")));
    let error = run.until_silent(script(timeouts)).unwrap_err();
    assert!(
        matches!(error, SourceError::Exhausted { action: "GetShardIterator", attempts: 8, .. }),
        "{error}"
    );
}

/// S-081: without a number of attempts, reading goes on for ever.
#[test]
fn an_unbounded_run_outlives_any_number_of_failures() {
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    let kinds = [FailureKind::Server, FailureKind::Timeout, FailureKind::Transport, FailureKind::Other];
    let failures = kinds.iter().cycle().take(2_000).map(|kind| failed(*kind));
    let events = [iterator("i")].into_iter().chain(failures).chain([page(&[1], 0)]);
    // The iterator grows old meanwhile and is replaced.
    let mut events: VecDeque<_> = events.collect();
    run.until_silent(|_, call| match call {
        Call::Iterator { .. } if events.len() < 2_002 => Some(iterator("again")),
        _ => events.pop_front(),
    })
    .unwrap();
    assert_eq!(run.story(), ["degraded", "recovered", "records 1"]);
}

/// S-084, S-083, F-09: only a rejected number falls back; everything else means something else.
#[test]
fn only_a_rejected_sequence_number_falls_back() {
    let coded = |code: &str| ServiceFailure::from_code(code, "by script");
    let other_shard = ServiceFailure::from_code(
        "InvalidArgumentException",
        "Invalid StartingSequenceNumber. It encodes shardId-000000000007, while it was used in a call to a shard with \
         shardId-000000000003",
    );
    let numbered = [at(5), after(5)];
    for start in &numbered {
        let mut run = Run::new(start.clone(), &PollConfig::default());
        run.until_silent(script([no_iterator(rejected())])).unwrap();
        assert_eq!(run.starts(), [start.clone(), StartPosition::TrimHorizon]);
        assert_eq!(run.at(), Duration::ZERO, "at once");
    }
    let retried = [
        coded("ProvisionedThroughputExceededException"),
        coded("KMSThrottlingException"),
        coded("InternalFailure"),
        coded("ResourceInUseException"),
        ServiceFailure::local(FailureKind::Timeout, "late"),
        ServiceFailure::local(FailureKind::Transport, "cut"),
    ];
    for failure in retried {
        let mut run = Run::new(at(5), &PollConfig::default());
        run.until_silent(script([no_iterator(failure.clone())])).unwrap();
        assert_eq!(run.starts(), [at(5), at(5)], "{failure}");
        assert!(run.at() >= 150 * MS, "{failure}: not without a delay");
    }
    let fatal = [
        (at(5), coded("ResourceNotFoundException"), "NotFound"),
        (at(5), coded("AccessDeniedException"), "AccessDenied"),
        (at(5), coded("ValidationException"), "Refused"),
        (at(5), other_shard, "Refused"),
        (StartPosition::TrimHorizon, rejected(), "Refused"),
        (StartPosition::Latest, rejected(), "Refused"),
    ];
    for (start, failure, expected) in fatal {
        let mut run = Run::new(start, &PollConfig::default());
        let error = run.until_silent(script([no_iterator(failure)])).unwrap_err();
        let found = match error {
            SourceError::NotFound { .. } => "NotFound",
            SourceError::AccessDenied { .. } => "AccessDenied",
            SourceError::Refused { .. } => "Refused",
            _ => "another",
        };
        assert_eq!(found, expected);
    }
}

/// S-084: a time that has not come yet is asked for until it has; a time refused for another reason is an error.
#[test]
fn a_time_in_the_future_is_waited_for() {
    let refusal = |service_millis| Event::Iterator {
        answer: Err(ServiceFailure::from_code("InvalidArgumentException", "The timestamp is in the future.")),
        service_time: Some(Timestamp::from_millis(service_millis)),
    };
    let mut run = Run::new(at_time(20_500), &PollConfig::default());
    run.until_silent(script([refusal(19_000), refusal(20_000), iterator("i"), page(&[1], 0)])).unwrap();
    assert_eq!(run.starts(), [at_time(20_500), at_time(20_500), at_time(20_500)]);
    assert_eq!(run.story(), ["records 1"]);

    let mut run = Run::new(at_time(20_500), &PollConfig::default());
    let error = run.until_silent(script([refusal(21_000)])).unwrap_err();
    assert!(matches!(error, SourceError::Refused { action: "GetShardIterator", .. }), "{error}");
}

/// F-09, S-083: the gap is reported with both ends before the first record after it.
#[test]
fn a_rejected_position_is_a_gap_up_to_the_first_record() {
    let gap = |end: u128| format!("gap 5 {:?}", Some(SequenceNumber::from(end)));
    let mut run = Run::new(after(5), &PollConfig::default());
    run.until_silent(script([
        no_iterator(rejected()),
        iterator("i"),
        page(&[], 86_400_000),
        page(&[105], 0),
    ]))
    .unwrap();
    assert_eq!(run.story(), ["progress".to_owned(), gap(105), "records 105".to_owned()]);

    // Nothing is left: there is no end to wait for.
    let mut run = Run::new(after(5), &PollConfig::default());
    run.until_silent(script([no_iterator(rejected()), iterator("i"), page(&[], 0), page(&[105], 0)]))
        .unwrap();
    assert_eq!(run.story(), ["gap 5 None", "progress", "records 105"]);
}

/// F-09: where the service silently starts at the oldest record, the missing record of the position tells.
#[test]
fn a_position_whose_record_is_gone_is_a_gap() {
    let empty = (0..200).map(|_| page(&[], 86_400_000));
    let mut run = Run::new(at(5), &PollConfig::default());
    run.until_silent(script([iterator("i")].into_iter().chain(empty).chain([page(&[105, 106], 0)]))).unwrap();
    let story = run.story();
    assert_eq!(story[200], format!("gap 5 {:?}", Some(SequenceNumber::from(105))));
    assert_eq!((story.len(), &*story[201]), (202, "records 105 106"));

    let mut run = Run::new(at(5), &PollConfig::default());
    run.until_silent(script([iterator("i"), last_page(&[])])).unwrap();
    assert_eq!(run.story(), ["gap 5 None", "ended 0"]);

    // The record is there: no gap.
    let mut run = Run::new(at(5), &PollConfig::default());
    run.until_silent(script([iterator("i"), page(&[5, 9], 0)])).unwrap();
    assert_eq!(run.story(), ["records 5 9"]);
}

/// F-09, S-083: a number that ages out while the reader waits is no gap if reading had reached the tip since, and
/// nothing is read twice.
#[test]
fn a_number_that_ages_out_at_the_tip_is_no_gap() {
    for (behind, expected) in [(0, false), (60_000, true)] {
        let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
        let events = [
            iterator("i"),
            page(&[1, 2], behind),
            failed(FailureKind::ExpiredIterator),
            no_iterator(rejected()),
            iterator("oldest"),
            page(&[1, 2, 3], 0),
        ];
        run.until_silent(script(events)).unwrap();
        assert_eq!(run.starts(), [StartPosition::TrimHorizon, after(2), StartPosition::TrimHorizon]);
        let gap = expected.then(|| format!("gap 2 {:?}", Some(SequenceNumber::from(3))));
        let story = ["records 1 2".to_owned()].into_iter().chain(gap).chain(["records 3".to_owned()]);
        assert_eq!(run.story(), story.collect::<Vec<_>>());
    }
}

/// with a period longer than an iterator lives, each read gets a new iterator after the last record read, just
/// before it goes out, and none of them is late.
#[test]
fn a_period_of_six_minutes_reads_every_six_minutes() {
    let period = Duration::from_secs(360);
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default().poll_period(period));
    let events = [
        iterator("a"),
        page(&[1], 9_000),
        iterator("b"),
        page(&[2], 9_000),
        iterator("c"),
        page(&[3], 9_000),
    ];
    run.until_silent(script(events)).unwrap();
    assert_eq!(run.starts(), [StartPosition::TrimHorizon, after(1), after(2), after(3)]);
    assert_eq!(run.reads(), [Duration::ZERO, period, 2 * period]);
    assert!(
        matches!(run.calls[2].1, Call::Iterator { replaces_expired: true, .. }),
        "it counts as a refresh"
    );
}

/// R-07, F-14: after an expired iterator the poll gate opens at once, within the read limit.
#[test]
fn an_expired_iterator_does_not_wait_for_the_period() {
    let period = Duration::from_secs(60);
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default().poll_period(period));
    let expired = || failed(FailureKind::ExpiredIterator);
    run.until_silent(script([iterator("a"), page(&[1], 9_000), expired(), iterator("b"), page(&[2], 9_000)]))
        .unwrap();
    assert_eq!(run.reads(), [Duration::ZERO, period, period + 200 * MS, 2 * period + 200 * MS]);
    assert_eq!(run.starts(), [StartPosition::TrimHorizon, after(1)]);
}

/// F-14: iterators that expire again and again are asked for with growing delays, and are no error.
#[test]
fn iterators_that_keep_expiring_are_replaced_with_growing_delays() {
    let mut run = Run::new(after(5), &PollConfig::default().max_attempts(Some(2)));
    let mut reads = 0;
    run.until_silent(|_, call| match call {
        Call::Iterator { .. } => Some(iterator("young")),
        Call::Records(_) => {
            reads += 1;
            (reads < 50).then(|| failed(FailureKind::ExpiredIterator))
        }
    })
    .unwrap();
    assert!(run.starts().iter().all(|start| *start == after(5)));
    assert!(run.at() > 40 * 2_500 * MS, "50 expiries in {:?}", run.at());
}

/// F-08, R-12: the tip is the one that was first asked for, whatever fails before the first record: by the service's clock,
/// less the margin.
#[test]
fn a_start_at_the_tip_is_pinned_to_its_first_asking() {
    // The first iterator expires before it brought a record.
    let mut run = Run::new(StartPosition::Latest, &PollConfig::default());
    let expired = failed(FailureKind::ExpiredIterator);
    run.until_silent(script([
        iterator_at("tip", 50_000),
        page(&[], 0),
        expired,
        iterator("i"),
        page(&[1], 0),
    ]))
    .unwrap();
    assert_eq!(run.starts(), [StartPosition::Latest, at_time(49_000)]);

    // It was never made; the refusal told the time.
    let mut run = Run::new(StartPosition::Latest, &PollConfig::default().latest_margin(2 * SECOND));
    let refusal = Event::Iterator {
        answer: Err(ServiceFailure::local(FailureKind::Throttled, "by script")),
        service_time: Some(Timestamp::from_millis(50_000)),
    };
    run.until_silent(script([refusal])).unwrap();
    assert_eq!(run.starts(), [StartPosition::Latest, at_time(48_000)]);

    // Nothing told the time: the next tip is too late, but its answer tells when the first one was.
    let mut run = Run::new(StartPosition::Latest, &PollConfig::default());
    let cut = no_iterator(ServiceFailure::local(FailureKind::Transport, "cut"));
    run.until_silent(script([cut, iterator_at("too late", 50_000)])).unwrap();
    let passed = i64::try_from(run.at().as_nanos().div_ceil(1_000_000)).unwrap();
    let starts = run.starts();
    assert_eq!(starts[..2], [StartPosition::Latest, StartPosition::Latest]);
    assert_eq!(starts[2..], [at_time(49_000 - passed + 1)], "rounded within a millisecond");
}

/// S-068, F-17: the last page's records come before the end, and the end comes once.
#[test]
fn the_end_comes_once_after_the_last_records() {
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    run.until_silent(script([iterator("i"), last_page(&[1, 2])])).unwrap();
    assert_eq!(run.story(), ["records 1 2", "ended 0"]);
    run.until_silent(|_, call| panic!("{call:?} after the end")).unwrap();
    assert_eq!(run.story(), ["records 1 2", "ended 0"]);
}

/// A denial ends a reader that never worked at once, one that worked only after several.
#[test]
fn a_denial_is_final_at_once_only_before_the_first_page() {
    let denied = || failed(FailureKind::AccessDenied);
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    let error = run.until_silent(script([iterator("i"), denied()])).unwrap_err();
    assert!(matches!(error, SourceError::AccessDenied { action: "GetRecords", .. }), "{error}");

    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default().denied_attempts(3));
    let events =
        [iterator("i"), page(&[1], 0), denied(), denied(), page(&[2], 0), denied(), denied(), denied()];
    let error = run.until_silent(script(events)).unwrap_err();
    assert!(matches!(error, SourceError::AccessDenied { .. }) && error.is_retryable(), "{error}");
    assert_eq!(run.read_numbers(), [1, 2]);
}

/// F-28: an episode of failures is said once when it lasts, and so is its end; each episode anew.
#[test]
fn each_long_episode_is_said_once() {
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default().degraded_after(2 * SECOND));
    let episode = |n: usize, number: u128| (0..n).map(|_| throttled()).chain([page(&[number], 0)]);
    let events = [iterator("i")].into_iter().chain(episode(1, 1)).chain(episode(9, 2)).chain(episode(9, 3));
    run.until_silent(script(events)).unwrap();
    let expected = ["records 1", "degraded", "recovered", "records 2", "degraded", "recovered", "records 3"];
    assert_eq!(run.story(), expected);
}

/// S-084: an iterator that is refused as such is replaced once, then it is the caller's to decide.
#[test]
fn a_refused_iterator_is_replaced_once() {
    let bad = || failed(FailureKind::Invalid);
    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    run.until_silent(script([iterator("i"), page(&[1], 0), bad(), iterator("j"), page(&[2], 0)])).unwrap();
    assert_eq!(run.starts(), [StartPosition::TrimHorizon, after(1)]);
    assert_eq!(run.read_numbers(), [1, 2]);

    let mut run = Run::new(StartPosition::TrimHorizon, &PollConfig::default());
    let error = run.until_silent(script([iterator("i"), bad(), iterator("j"), bad()])).unwrap_err();
    assert!(matches!(error, SourceError::Refused { action: "GetRecords", .. }), "{error}");
}
