//! Runs a machine against answers made up by a test.

use std::time::{Duration, Instant};

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::{SourceError, SourceEvent, SourceRecord};
use kinesis_core::{ShardRef, StartPosition, Timestamp};

use super::super::{Action, Event, Page, PollMachine};
use crate::PollConfig;

/// A call that the machine asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Iterator { start: StartPosition, replaces_expired: bool },
    Records(String),
}

/// A machine in virtual time.
pub(super) struct Run {
    machine: PollMachine,
    began: Instant,
    pub(super) now: Instant,
    /// Every call with the time since the beginning.
    pub(super) calls: Vec<(Duration, Call)>,
    pub(super) events: Vec<SourceEvent>,
}

impl Run {
    pub(super) fn new(start: StartPosition, config: &PollConfig) -> Self {
        Self::seeded(start, config, 7)
    }

    pub(super) fn seeded(start: StartPosition, config: &PollConfig, seed: u64) -> Self {
        config.validate().unwrap();
        let began = Instant::now();
        let machine = PollMachine::new(shard(), start, config, seed);
        Self { machine, began, now: began, calls: Vec::new(), events: Vec::new() }
    }

    pub(super) fn at(&self) -> Duration {
        self.now - self.began
    }

    /// Runs until `answer` has none, or until the machine ends.
    ///
    /// `answer` is given the time since the beginning and the call, and says what comes of it.
    pub(super) fn until_silent(
        &mut self,
        mut answer: impl FnMut(Duration, &Call) -> Option<Event>,
    ) -> Result<(), SourceError> {
        let mut event = Event::Resume;
        loop {
            let call = match self.machine.step(self.now, event) {
                Action::GetIterator { start, replaces_expired } => Call::Iterator { start, replaces_expired },
                Action::GetRecords { iterator } => Call::Records(iterator),
                Action::WaitUntil(due) => {
                    assert!(due > self.now, "a wait for the past");
                    self.now = due;
                    event = Event::Resume;
                    continue;
                }
                Action::Emit(emitted) => {
                    self.events.push(emitted);
                    event = Event::Resume;
                    continue;
                }
                Action::Fail(error) => return Err(error),
                Action::Done => return Ok(()),
            };
            self.calls.push((self.at(), call.clone()));
            match answer(self.at(), &call) {
                Some(next) => event = next,
                None => return Ok(()),
            }
        }
    }

    /// When GetRecords went out.
    pub(super) fn reads(&self) -> Vec<Duration> {
        let read = |(at, call): &(Duration, Call)| matches!(call, Call::Records(_)).then_some(*at);
        self.calls.iter().filter_map(read).collect()
    }

    /// Where iterators were asked for.
    pub(super) fn starts(&self) -> Vec<StartPosition> {
        let start = |(_, call): &(Duration, Call)| match call {
            Call::Iterator { start, .. } => Some(start.clone()),
            Call::Records(_) => None,
        };
        self.calls.iter().filter_map(start).collect()
    }

    /// The numbers of all records handed out, in order.
    pub(super) fn read_numbers(&self) -> Vec<u128> {
        let numbers = self.events.iter().filter_map(|event| match event {
            SourceEvent::Records(batch) => Some(&batch.records),
            _ => None,
        });
        numbers.flatten().map(|record| record.sequence.to_string().parse().unwrap()).collect()
    }

    /// The events by name, records with their numbers.
    pub(super) fn story(&self) -> Vec<String> {
        self.events
            .iter()
            .map(|event| match event {
                SourceEvent::Records(batch) => {
                    let numbers: Vec<_> =
                        batch.records.iter().map(|record| record.sequence.to_string()).collect();
                    format!("records {}", numbers.join(" "))
                }
                SourceEvent::Progress { .. } => "progress".to_owned(),
                SourceEvent::Ended { children } => format!("ended {}", children.len()),
                SourceEvent::Gap(gap) => format!("gap {} {:?}", gap.after, gap.resumed_at),
                SourceEvent::Degraded { .. } => "degraded".to_owned(),
                SourceEvent::Recovered => "recovered".to_owned(),
                other => format!("{other:?}"),
            })
            .collect()
    }
}

pub(super) fn shard() -> ShardRef {
    ShardRef::new("orders".parse().unwrap(), "shardId-000000000003".parse().unwrap())
}

pub(super) fn iterator(token: &str) -> Event {
    Event::Iterator { answer: Ok(token.to_owned()), service_time: None }
}

pub(super) fn iterator_at(token: &str, service_millis: i64) -> Event {
    let service_time = Some(Timestamp::from_millis(service_millis));
    Event::Iterator { answer: Ok(token.to_owned()), service_time }
}

pub(super) fn no_iterator(failure: ServiceFailure) -> Event {
    Event::Iterator { answer: Err(failure), service_time: None }
}

/// A page with these records, that is `behind_ms` behind and goes on.
pub(super) fn page(numbers: &[u128], behind_ms: u64) -> Event {
    Event::Page(Ok(Page {
        records: numbers.iter().map(|number| record(*number)).collect(),
        next: Some("next".to_owned()),
        behind: Some(Duration::from_millis(behind_ms)),
        ..Page::default()
    }))
}

/// The last page of a closed shard.
pub(super) fn last_page(numbers: &[u128]) -> Event {
    let records = numbers.iter().map(|number| record(*number)).collect();
    Event::Page(Ok(Page { records, next: None, behind: Some(Duration::ZERO), ..Page::default() }))
}

pub(super) fn record(number: u128) -> SourceRecord {
    SourceRecord::new(number.into(), None, bytes::Bytes::new())
}

pub(super) fn failed(kind: FailureKind) -> Event {
    Event::Page(Err(ServiceFailure::local(kind, "by script")))
}

pub(super) fn throttled() -> Event {
    failed(FailureKind::Throttled)
}

/// What GetShardIterator says of a number that it does not take.
pub(super) fn rejected() -> ServiceFailure {
    ServiceFailure::from_code(
        "InvalidArgumentException",
        "StartingSequenceNumber 5 used in GetShardIterator is invalid.",
    )
}
