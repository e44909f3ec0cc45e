//! What holds whatever happens.

use std::time::Duration;

use kinesis_core::StartPosition;
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::SourceEvent;
use proptest::prelude::*;

use super::super::{Event, size};
use super::model::*;
use crate::limits::SUBSCRIBE_INTERVAL;

/// One thing that the other side does, or the time that passes.
#[derive(Debug, Clone)]
enum Happening {
    Accept,
    Refuse(&'static str),
    Push(u8),
    Empty,
    Unknown,
    Close(Option<&'static str>),
    Take,
    Pass(u64),
    StandStill(u64),
}

const CODES: [&str; 8] = [
    "ResourceInUseException",
    "ResourceInUseException",
    "LimitExceededException",
    "InternalFailureException",
    "KMSThrottlingException",
    "ProvisionedThroughputExceededException",
    "ServiceUnavailable",
    "NobodyKnowsThisException",
];

fn happening() -> impl Strategy<Value = Happening> {
    let code = prop::sample::select(&CODES[..]);
    prop_oneof![
        4 => Just(Happening::Accept),
        2 => code.clone().prop_map(Happening::Refuse),
        4 => (1_u8..4).prop_map(Happening::Push),
        1 => Just(Happening::Empty),
        1 => Just(Happening::Unknown),
        2 => prop::option::of(code).prop_map(Happening::Close),
        3 => Just(Happening::Take),
        4 => (0_u64..4_000).prop_map(Happening::Pass),
        1 => (30_000_u64..100_000).prop_map(Happening::StandStill),
    ]
}

/// A service with an endless shard of the numbers 1, 2, 3 ...
struct World {
    run: Run,
    open: bool,
    calling: bool,
    /// The next number that the open subscription sends.
    next: u128,
    held: usize,
    taken: usize,
}

impl World {
    fn settle(&mut self, before: usize) {
        if self.run.calls.len() > before {
            self.calling = true;
            self.open = false;
        }
        if !self.run.active {
            (self.calling, self.open) = (false, false);
        }
        let records = |event: &SourceEvent| match event {
            SourceEvent::Records(batch) => size(&batch.records),
            _ => 0,
        };
        self.held = self.run.events[self.taken..].iter().map(records).sum();
    }

    fn happen(&mut self, what: &Happening) {
        let before = self.run.calls.len();
        match what {
            Happening::Accept if self.calling => {
                self.next = match &self.run.calls[before - 1].1 {
                    StartPosition::AfterSequenceNumber { sequence } => {
                        sequence.to_string().parse::<u128>().unwrap() + 1
                    }
                    _ => 1,
                };
                (self.calling, self.open) = (false, true);
                self.run.accept();
            }
            Happening::Refuse(name) if self.calling => self.run.refuse(code(name)),
            Happening::Push(count) if self.open => {
                let numbers: Vec<_> = (self.next..self.next + u128::from(*count)).collect();
                self.next += u128::from(*count);
                self.run.step(pushed(&numbers, self.next - 1, 5));
            }
            Happening::Empty if self.open => {
                // It goes on after a number that lies before the next record.
                self.run.step(pushed(&[], self.next - 1, 0));
            }
            Happening::Unknown if self.open => self.run.step(Event::Unknown),
            Happening::Close(name) if self.open => self.run.close(name.map(code)),
            Happening::Take if self.taken < self.run.events.len() => {
                let event = &self.run.events[self.taken];
                self.taken += 1;
                if let SourceEvent::Records(batch) = event {
                    let bytes = size(&batch.records);
                    self.run.step(Event::Taken(bytes));
                }
            }
            Happening::Pass(millis) => self.run.pass(Duration::from_millis(*millis)),
            Happening::StandStill(millis) => {
                self.run.now += Duration::from_millis(*millis);
                self.run.step(Event::Wake);
            }
            _ => {}
        }
        self.settle(before);
    }
}

const BUFFER: usize = 10 * 64;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// S-097, R-05: whatever happens, calls are at least a second apart.
    /// S-095: and every record comes once, in order, without a gap.
    /// S-107: and no more is held than the bound and one event.
    #[test]
    fn calls_keep_their_distance_and_records_come_once(
        seed in any::<u64>(),
        story in prop::collection::vec(happening(), 1..200),
    ) {
        let run = Run::with(StartPosition::TrimHorizon, &config(), BUFFER, seed);
        let mut world = World { run, open: false, calling: false, next: 1, held: 0, taken: 0 };
        world.run.step(Event::Wake);
        world.settle(0);
        for what in &story {
            world.happen(what);
            prop_assert!(world.held < BUFFER + 3 * 64, "{} held", world.held);
            prop_assert!(world.held < BUFFER || !world.open, "open and full");
        }
        prop_assert!(world.run.error.is_none());
        for pair in world.run.calls.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 >= SUBSCRIBE_INTERVAL, "{:?}", pair[1].0 - pair[0].0);
        }
        let mut expected = 1;
        for event in &world.run.events {
            if let SourceEvent::Records(batch) = event {
                for record in &batch.records {
                    prop_assert_eq!(record.sequence.to_string(), expected.to_string());
                    expected += 1;
                }
            }
        }
    }

    /// jitter never takes a delay below the ladder's step, nor above it by more than a quarter.
    #[test]
    fn jitter_is_only_added(seed in any::<u64>(), failures in 1_usize..12) {
        let mut run = Run::with(StartPosition::TrimHorizon, &config(), 1 << 20, seed);
        run.until_call();
        for step in 0..failures {
            run.refuse(ServiceFailure::local(FailureKind::Server, "by script"));
            let delay = run.until_call();
            let least = Duration::from_secs(1 << step.min(5)).min(Duration::from_secs(30));
            prop_assert!(least <= delay && delay <= least.mul_f64(1.25), "{:?} for {:?}", delay, least);
        }
    }

    /// Nothing that is not expected makes the machine panic or act after its end.
    #[test]
    fn no_order_of_events_makes_it_panic(story in prop::collection::vec(0_u8..8, 1..60)) {
        let mut run = Run::new(StartPosition::Latest, &config());
        for what in story {
            if run.is_over() {
                break;
            }
            run.active = false;
            match what {
                0 => run.step(Event::Wake),
                1 => run.step(Event::Taken(1 << 40)),
                2 => run.step(pushed(&[3, 1, 2], 0, 0)),
                3 => run.step(last(&[], 0)),
                4 => run.step(Event::Closed(None)),
                5 => run.step(Event::Closed(Some(code("ResourceInUseException")))),
                6 => run.step(Event::Unknown),
                _ => run.step(Event::Subscribed { answer: Ok(()), service_time: None }),
            }
        }
    }
}
