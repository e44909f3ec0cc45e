//! Runs a machine against answers made up by a test.

use std::time::{Duration, Instant};

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::directory::ShardInfo;
use kinesis_core::source::{SourceError, SourceEvent, SourceRecord};
use kinesis_core::{ShardRef, StartPosition, Timestamp};

use super::super::{Action, EfoMachine, Event, Push};
use crate::EfoConfig;
use crate::history::LastCalls;

/// A machine in virtual time, with a service that does what a test says.
pub(super) struct Run {
    machine: EfoMachine,
    began: Instant,
    pub(super) now: Instant,
    /// When SubscribeToShard was called, and where it was to start.
    pub(super) calls: Vec<(Duration, StartPosition)>,
    pub(super) reconnects: usize,
    pub(super) stream_errors: usize,
    pub(super) looks: usize,
    pub(super) events: Vec<SourceEvent>,
    pub(super) error: Option<SourceError>,
    /// Whether a call is under way or a subscription open, as the machine wants it.
    pub(super) active: bool,
}

impl Run {
    pub(super) fn new(start: StartPosition, config: &EfoConfig) -> Self {
        Self::with(start, config, 1 << 20, 7)
    }

    pub(super) fn with(start: StartPosition, config: &EfoConfig, buffer: usize, seed: u64) -> Self {
        config.validate().unwrap();
        let began = Instant::now();
        let last = LastCalls::default();
        let machine = EfoMachine::new(shard(), start, buffer, config, last, began, seed);
        Self {
            machine,
            began,
            now: began,
            calls: Vec::new(),
            reconnects: 0,
            stream_errors: 0,
            looks: 0,
            events: Vec::new(),
            error: None,
            active: false,
        }
    }

    /// Tells the machine what happened now. A consumer that it looks for is found at once.
    pub(super) fn step(&mut self, event: Event) {
        for action in self.machine.step(self.now, event) {
            assert!(!self.is_over(), "after the end: {action:?}");
            match action {
                Action::Look { .. } => {
                    self.looks += 1;
                    self.step(Event::Consumer(Ok(())));
                }
                Action::Subscribe { start, reconnect } => {
                    assert!(!self.active, "two subscriptions at a time");
                    self.active = true;
                    self.reconnects += usize::from(reconnect);
                    self.calls.push((self.now - self.began, start));
                }
                Action::Unsubscribe => self.active = false,
                Action::CountStreamError => self.stream_errors += 1,
                Action::Emit(event) => self.events.push(event),
                Action::Fail(error) => self.error = Some(error),
            }
        }
    }

    /// Lets time pass until the machine calls; how long that was.
    pub(super) fn until_call(&mut self) -> Duration {
        let (began, calls) = (self.now, self.calls.len());
        if self.now == self.began && calls == 0 {
            self.step(Event::Wake);
        }
        while self.calls.len() == calls {
            let due = self.machine.wake_at().expect("it waits for something");
            assert!(due >= self.now, "a wait for the past");
            self.now = due;
            self.step(Event::Wake);
        }
        self.now - began
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.machine.wake_at().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.step(Event::Wake);
        }
        self.now = until;
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.machine.wake_at().map(|due| due - self.began)
    }

    pub(super) fn is_over(&self) -> bool {
        self.error.is_some() || matches!(self.events.last(), Some(SourceEvent::Ended { .. }))
    }

    /// Calls, and the service accepts.
    pub(super) fn open(&mut self) -> Duration {
        let waited = self.until_call();
        self.accept();
        waited
    }

    pub(super) fn accept(&mut self) {
        self.step(Event::Subscribed { answer: Ok(()), service_time: None });
    }

    pub(super) fn refuse(&mut self, failure: ServiceFailure) {
        self.active = false;
        self.step(Event::Subscribed { answer: Err(failure), service_time: None });
    }

    pub(super) fn refuse_at(&mut self, failure: ServiceFailure, service_millis: i64) {
        self.active = false;
        let service_time = Some(Timestamp::from_millis(service_millis));
        self.step(Event::Subscribed { answer: Err(failure), service_time });
    }

    pub(super) fn close(&mut self, failure: Option<ServiceFailure>) {
        self.active = false;
        self.step(Event::Closed(failure));
    }

    /// The events by name, records with their numbers.
    pub(super) fn story(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events).into_iter().map(name).collect()
    }
}

fn name(event: SourceEvent) -> String {
    match event {
        SourceEvent::Records(batch) => {
            let numbers: Vec<_> = batch.records.iter().map(|record| record.sequence.to_string()).collect();
            format!("records {}", numbers.join(" "))
        }
        SourceEvent::Progress { continuation, .. } => {
            format!("progress {}", continuation.map_or("-".to_owned(), |number| number.to_string()))
        }
        SourceEvent::Ended { children } => format!("ended {}", children.len()),
        SourceEvent::Gap(gap) => {
            let resumed = gap.resumed_at.map_or("-".to_owned(), |number| number.to_string());
            format!("gap {} {resumed}", gap.after)
        }
        SourceEvent::Degraded { .. } => "degraded".to_owned(),
        SourceEvent::Recovered => "recovered".to_owned(),
        _ => "something else".to_owned(),
    }
}

pub(super) fn config() -> EfoConfig {
    EfoConfig::new("billing")
}

pub(super) fn shard() -> ShardRef {
    ShardRef::new("orders".parse().unwrap(), "shardId-000000000003".parse().unwrap())
}

pub(super) fn record(number: u128) -> SourceRecord {
    SourceRecord::new(number.into(), None, bytes::Bytes::new())
}

/// An event with these records, to go on after `continuation`, that is `behind_ms` behind.
pub(super) fn pushed(numbers: &[u128], continuation: u128, behind_ms: u64) -> Event {
    Event::Pushed(Push {
        records: numbers.iter().map(|number| record(*number)).collect(),
        continuation: Some(continuation.into()),
        is_last: false,
        behind: Some(Duration::from_millis(behind_ms)),
        children: Vec::new(),
    })
}

/// An event that names nothing to go on after, with so many children.
pub(super) fn last(numbers: &[u128], children: usize) -> Event {
    let child = |n: usize| ShardInfo::new(format!("shardId-{n:012}").parse().unwrap());
    Event::Pushed(Push {
        records: numbers.iter().map(|number| record(*number)).collect(),
        continuation: None,
        is_last: true,
        behind: Some(Duration::ZERO),
        children: (4..4 + children).map(child).collect(),
    })
}

pub(super) fn failed(kind: FailureKind) -> ServiceFailure {
    ServiceFailure::local(kind, "by script")
}

pub(super) fn code(code: &str) -> ServiceFailure {
    ServiceFailure::from_code(code, "by script")
}

pub(super) fn after(number: u128) -> StartPosition {
    StartPosition::AfterSequenceNumber { sequence: number.into() }
}

pub(super) fn at(number: u128) -> StartPosition {
    StartPosition::AtSequenceNumber { sequence: number.into() }
}
