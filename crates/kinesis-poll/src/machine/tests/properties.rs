//! Random faults against a model of a shard.

use std::time::Duration;

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::SourceEvent;
use kinesis_core::{StartPosition, Timestamp};
use proptest::prelude::*;

use super::super::{Event, Page};
use super::model::*;
use crate::PollConfig;

const FLOOR: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    Throttle,
    Server,
    Timeout,
    Expired,
    BadIterator,
}

fn faults() -> impl Strategy<Value = Vec<(Fault, usize, bool)>> {
    let fault = prop_oneof![
        6 => Just(Fault::None),
        2 => Just(Fault::Throttle),
        1 => Just(Fault::Server),
        1 => Just(Fault::Timeout),
        2 => Just(Fault::Expired),
        1 => Just(Fault::BadIterator),
    ];
    prop::collection::vec((fault, 0_usize..4, any::<bool>()), 0..120)
}

/// A closed shard with records 1 to `len`; a token is the number of the record that it comes after.
struct Shard {
    len: u128,
    /// Whether it refuses numbers to start after.
    refuses: bool,
    /// The record before the oldest one that is left.
    trimmed: u128,
    bad_iterators: u32,
}

impl Shard {
    fn answer(&mut self, (fault, size, caught_up): (Fault, usize, bool), call: &Call) -> Event {
        match call {
            Call::Iterator { start, .. } => match (fault, start) {
                (Fault::Throttle, _) => {
                    no_iterator(ServiceFailure::local(FailureKind::Throttled, "by script"))
                }
                (Fault::Server, _) => no_iterator(ServiceFailure::local(FailureKind::Server, "by script")),
                (Fault::Timeout, _) => no_iterator(ServiceFailure::local(FailureKind::Timeout, "by script")),
                (_, StartPosition::AfterSequenceNumber { sequence }) => {
                    if self.refuses {
                        // Two records that were read before are still there.
                        self.trimmed = sequence.to_string().parse::<u128>().unwrap().saturating_sub(2);
                        no_iterator(rejected())
                    } else {
                        iterator(&sequence.to_string())
                    }
                }
                _ => iterator(&self.trimmed.to_string()),
            },
            Call::Records(token) => {
                // The machine gives up at the second refusal of an iterator in a row, and rightly.
                if matches!(fault, Fault::BadIterator) && self.bad_iterators == 0 {
                    self.bad_iterators = 1;
                    return failed(FailureKind::Invalid);
                }
                match fault {
                    Fault::Throttle => return throttled(),
                    Fault::Server => return failed(FailureKind::Server),
                    Fault::Timeout => return failed(FailureKind::Timeout),
                    Fault::Expired => return failed(FailureKind::ExpiredIterator),
                    Fault::None | Fault::BadIterator => self.bad_iterators = 0,
                }
                let from: u128 = token.parse().unwrap();
                let to = (from + size as u128).min(self.len);
                Event::Page(Ok(Page {
                    records: (from + 1..=to).map(record).collect(),
                    next: (to < self.len).then(|| to.to_string()),
                    behind: Some(Duration::from_millis(u64::from(!caught_up))),
                    ..Page::default()
                }))
            }
        }
    }
}

proptest! {
    /// S-069, S-071, R-07, F-14: whatever fails, no record is lost or repeated, the end comes once, and reads keep
    /// their distance: the read limit always, the poll period unless the read before found its iterator expired.
    #[test]
    fn records_come_once_in_order_and_reads_keep_their_distance(
        len in 0_u128..40,
        faults in faults(),
        refuses in any::<bool>(),
        period_ms in prop_oneof![Just(0_u64), 1_u64..3_000, 250_000_u64..400_000],
        seed in any::<u64>(),
    ) {
        let period = Duration::from_millis(period_ms);
        let config = PollConfig::default().poll_period(period);
        let mut run = Run::seeded(StartPosition::TrimHorizon, &config, seed);
        let mut faults = faults.into_iter();
        let mut shard = Shard { len, refuses, trimmed: 0, bad_iterators: 0 };
        let mut expired_reads = Vec::new();
        run.until_silent(|at, call| {
            let fault = faults.next().unwrap_or((Fault::None, 3, false));
            if matches!((fault.0, call), (Fault::Expired, Call::Records(_))) {
                expired_reads.push(at);
            }
            Some(shard.answer(fault, call))
        }).unwrap();

        prop_assert_eq!(run.read_numbers(), (1..=len).collect::<Vec<_>>());
        let ends = run.events.iter().filter(|event| matches!(event, SourceEvent::Ended { .. })).count();
        prop_assert_eq!(ends, 1);
        let ended = matches!(run.events.last(), Some(SourceEvent::Ended { .. }));
        prop_assert!(ended, "the end is not last");
        for pair in run.reads().windows(2) {
            let least = if expired_reads.contains(&pair[0]) { FLOOR } else { FLOOR.max(period) };
            prop_assert!(pair[1] - pair[0] >= least, "{:?} then {:?}, least {least:?}", pair[0], pair[1]);
        }
        // And no read waits longer than pace, delay and expiry ask for.
        let most = Duration::from_secs(5).max(period) + Duration::from_secs(5);
        for pair in run.calls.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 <= most);
        }
    }

    /// F-08: of what is written after a start at the tip was first asked for, nothing is skipped, whatever
    /// fails and whether or not the service tells its time from the beginning.
    #[test]
    fn nothing_after_the_tip_is_skipped(
        faults in prop::collection::vec((0_u8..5, any::<bool>()), 0..30),
        seed in any::<u64>(),
    ) {
        // A record is written every 100 ms for ever; its number is that time. Reading starts at 100 s.
        const BEGIN: u128 = 100_000;
        let config = PollConfig::default();
        let mut run = Run::seeded(StartPosition::Latest, &config, seed);
        let mut faults = faults.into_iter();
        let mut pages = 0;
        run.until_silent(|at, call| {
            let service_now = BEGIN + at.as_millis();
            let (fault, tells_time) = faults.next().unwrap_or((4, true));
            let service_time = Some(Timestamp::from_millis(i64::try_from(service_now / 1_000 * 1_000).unwrap()));
            Some(match (call, fault) {
                (Call::Iterator { .. }, 0) => no_iterator(ServiceFailure::local(FailureKind::Transport, "cut")),
                (Call::Iterator { .. }, 1) => Event::Iterator {
                    answer: Err(ServiceFailure::local(FailureKind::Throttled, "by script")),
                    service_time: service_time.filter(|_| tells_time),
                },
                (Call::Iterator { start, .. }, _) => {
                    let from = match start {
                        StartPosition::Latest => service_now,
                        StartPosition::AtTimestamp { timestamp } => timestamp.as_millis().try_into().unwrap(),
                        StartPosition::AfterSequenceNumber { sequence } => sequence.to_string().parse::<u128>().unwrap() + 1,
                        other => panic!("{other}"),
                    };
                    Event::Iterator { answer: Ok(from.to_string()), service_time }
                }
                (Call::Records(_), 0) => failed(FailureKind::Transport),
                (Call::Records(_), 1) => throttled(),
                (Call::Records(_), 2) => failed(FailureKind::ExpiredIterator),
                (Call::Records(token), _) => {
                    pages += 1;
                    if pages > 5 {
                        return None;
                    }
                    let from: u128 = token.parse().unwrap();
                    let numbers: Vec<_> = (from.div_ceil(100)..=service_now / 100).map(|n| n * 100).collect();
                    let Event::Page(Ok(mut page)) = page(&numbers, 0) else { unreachable!() };
                    page.next = Some((service_now + 1).max(from).to_string());
                    Event::Page(Ok(page))
                }
            })
        }).unwrap();

        let numbers = run.read_numbers();
        prop_assert!(numbers.windows(2).all(|pair| pair[0] + 100 == pair[1]), "{numbers:?}");
        let first = *numbers.first().unwrap_or(&BEGIN);
        prop_assert!(first <= BEGIN, "skipped up to {first}");
        prop_assert!(first >= BEGIN - 2_100, "{first} is far before the start");
    }
}
