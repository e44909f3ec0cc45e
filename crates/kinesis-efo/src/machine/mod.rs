//! When to subscribe, what to hand out, when to let go: a pure machine. It is told what happened and when, and says
//! what to do.

mod cursor;
mod delays;
mod failures;
mod trouble;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use kinesis_core::aws::ServiceFailure;
use kinesis_core::directory::ShardInfo;
use kinesis_core::source::{SourceBatch, SourceError, SourceEvent, SourceRecord};
use kinesis_core::{PartitionKey, SequenceNumber, ShardRef, StartPosition, Timestamp};

use self::cursor::Cursor;
use self::trouble::Trouble;
use crate::EfoConfig;
use crate::history::LastCalls;
use crate::limits::{SUBSCRIBE_IN_USE, SUBSCRIBE_INTERVAL};
use crate::registration::RegistrationError;

/// What a record is taken to need besides its payload and key, so that empty records are bounded too.
const RECORD_OVERHEAD: usize = 64;

/// What records count for in the buffer.
pub(crate) fn size(records: &[SourceRecord]) -> usize {
    let of = |record: &SourceRecord| {
        let key = record.partition_key.as_ref().map_or(0, PartitionKey::byte_len);
        record.data.len() + key + RECORD_OVERHEAD
    };
    records.iter().map(of).sum()
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// The reader begins, or a wait is over.
    Wake,
    /// The caller took records of so many bytes.
    Taken(usize),
    /// The consumer is active, or is not.
    Consumer(Result<(), RegistrationError>),
    /// SubscribeToShard was answered up to its first frame, or was not.
    Subscribed {
        answer: Result<(), ServiceFailure>,
        /// The service's time, where there was an answer that told it.
        service_time: Option<Timestamp>,
    },
    /// The subscription brought an event.
    Pushed(Push),
    /// The subscription brought something that is not known here.
    Unknown,
    /// The subscription ended, in order or not.
    Closed(Option<ServiceFailure>),
}

/// One event of a subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct Push {
    pub(crate) records: Vec<SourceRecord>,
    pub(crate) continuation: Option<SequenceNumber>,
    /// The service names nothing to go on after, as at the end of a shard.
    pub(crate) is_last: bool,
    pub(crate) behind: Option<Duration>,
    pub(crate) children: Vec<ShardInfo>,
}

/// What to do, in this order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Find the consumer; anew if it was missing.
    Look { anew: bool },
    /// Call SubscribeToShard; `reconnect` after a failure.
    Subscribe { start: StartPosition, reconnect: bool },
    /// Give up the call or the subscription.
    Unsubscribe,
    /// An open subscription failed; for the metric.
    CountStreamError,
    /// Hand this out.
    Emit(SourceEvent),
    /// Hand this out and give up.
    Fail(SourceError),
}

#[derive(Debug)]
enum Phase {
    /// Nothing is open; the next call is due then.
    Resting(Instant),
    /// Nothing is open until the caller has taken enough.
    Full,
    Looking,
    Subscribing(Watch),
    Open {
        watch: Watch,
        heard: bool,
    },
    Over,
}

/// A limit of waiting.
#[derive(Debug)]
struct Watch {
    since: Instant,
    limit: Duration,
}

impl Watch {
    fn new(since: Instant, limit: Duration) -> Self {
        Self { since, limit }
    }

    fn due(&self) -> Instant {
        self.since + self.limit
    }
}

/// Reads one shard.
#[derive(Debug)]
pub(crate) struct EfoMachine {
    shard: ShardRef,
    config: EfoConfig,
    buffer_bytes: usize,
    random: fastrand::Rng,
    trouble: Trouble,
    cursor: Cursor,
    phase: Phase,
    /// The consumer has to be found before the next call; `Some(true)`: anew.
    look: Option<bool>,
    last: LastCalls,
    /// Where the subscription that is asked for or open starts.
    asked: StartPosition,
    /// The last event had nothing to go on after: if the stream ends in order now, that was the shard's end.
    said_last: bool,
    /// The next call comes after a failure.
    failed: bool,
    /// Whether an event ever came: permissions and names were right then.
    worked: bool,
    /// Bytes that were handed out and not yet taken.
    held: usize,
    actions: Vec<Action>,
}

impl EfoMachine {
    /// Reads `shard` from `start`; `seed` makes the jitter repeatable, `last` is what a reader before this one did.
    pub(crate) fn new(
        shard: ShardRef,
        start: StartPosition,
        buffer_bytes: usize,
        config: &EfoConfig,
        last: LastCalls,
        now: Instant,
        seed: u64,
    ) -> Self {
        let mut machine = Self {
            phase: Phase::Resting(now),
            shard,
            buffer_bytes,
            random: fastrand::Rng::with_seed(seed),
            trouble: Trouble::new(config),
            asked: start.clone(),
            cursor: Cursor::new(start, config.latest_margin),
            config: config.clone(),
            look: Some(false),
            last,
            said_last: false,
            failed: false,
            worked: false,
            held: 0,
            actions: Vec::new(),
        };
        machine.phase = Phase::Resting(machine.rested(now));
        machine
    }

    /// Takes what happened and says what to do.
    pub(crate) fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        match event {
            Event::Wake => self.check_watch(now),
            Event::Taken(bytes) => self.taken(now, bytes),
            Event::Consumer(answer) => self.consumer(now, answer),
            Event::Subscribed { answer, service_time } => self.subscribed(now, answer, service_time),
            Event::Pushed(push) => self.pushed(now, push),
            Event::Unknown => self.heard(now),
            Event::Closed(failure) => self.closed(now, failure),
        }
        if let Phase::Resting(due) = self.phase
            && due <= now
        {
            self.call(now);
        }
        std::mem::take(&mut self.actions)
    }

    /// When to call [`step`](Self::step) with [`Event::Wake`] if nothing else happens; `None`: not at all.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Resting(due) => Some(*due),
            Phase::Subscribing(watch) | Phase::Open { watch, .. } => Some(watch.due()),
            Phase::Full | Phase::Looking | Phase::Over => None,
        }
    }

    /// Whether the end or an error was handed out.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// The calls so far, for the reader after this one.
    pub(crate) fn last_calls(&self) -> LastCalls {
        self.last
    }

    fn call(&mut self, now: Instant) {
        if let Some(anew) = self.look.take() {
            self.phase = Phase::Looking;
            self.actions.push(Action::Look { anew });
            return;
        }
        self.asked = self.cursor.opening(now);
        self.last.called = Some(now);
        self.phase = Phase::Subscribing(Watch::new(now, self.config.subscribe_timeout));
        let reconnect = std::mem::take(&mut self.failed);
        self.actions.push(Action::Subscribe { start: self.asked.clone(), reconnect });
    }

    fn subscribed(
        &mut self,
        now: Instant,
        answer: Result<(), ServiceFailure>,
        service_time: Option<Timestamp>,
    ) {
        // The service counts from when the call arrived, which was before now.
        self.last.called = Some(now);
        self.cursor.tip.learn_time(now, service_time);
        if let Err(failure) = answer {
            self.cursor.tip.lost();
            return self.refused(now, &failure, service_time);
        }
        self.last.accepted = Some(now);
        if self.cursor.tip.accepts(&self.asked) {
            self.said_last = false;
            let watch = Watch::new(now, self.config.silence_timeout);
            self.phase = Phase::Open { watch, heard: false };
        } else {
            self.actions.push(Action::Unsubscribe);
            self.phase = Phase::Resting(self.rested(now));
        }
    }

    fn pushed(&mut self, now: Instant, mut push: Push) {
        let Phase::Open { watch, heard } = &mut self.phase else { return };
        (watch.since, *heard) = (now, true);
        self.worked = true;
        self.said_last = push.is_last;
        if self.trouble.end(self.lived(now)) {
            self.actions.push(Action::Emit(SourceEvent::Recovered));
        }
        let ended = !push.children.is_empty();
        let caught_up = push.behind.is_some_and(|behind| behind.is_zero());
        let gap = self.cursor.read(now, &mut push.records, push.continuation.clone(), caught_up);
        self.actions.extend(gap.map(|gap| Action::Emit(SourceEvent::Gap(gap))));
        if !push.records.is_empty() {
            self.held += size(&push.records);
            let batch = SourceBatch::new(push.records, push.behind);
            self.actions.push(Action::Emit(SourceEvent::Records(batch)));
        } else if !ended {
            let (behind, continuation) = (push.behind, push.continuation);
            self.actions.push(Action::Emit(SourceEvent::Progress { behind, continuation }));
        }
        if ended {
            self.end(push.children);
        } else if self.held >= self.buffer_bytes {
            // What nobody reads holds up every other call on its connection.
            self.actions.push(Action::Unsubscribe);
            self.phase = Phase::Full;
        }
    }

    /// A sign of life that says nothing.
    fn heard(&mut self, now: Instant) {
        if let Phase::Open { watch, .. } = &mut self.phase {
            watch.since = now;
        }
    }

    fn taken(&mut self, now: Instant, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        let has_room = self.held == 0 || self.held < self.buffer_bytes / 2;
        if has_room && matches!(self.phase, Phase::Full) {
            self.phase = Phase::Resting(self.rested(now));
        }
    }

    fn end(&mut self, children: Vec<ShardInfo>) {
        self.phase = Phase::Over;
        self.actions.push(Action::Unsubscribe);
        self.actions.extend(self.cursor.end().map(|gap| Action::Emit(SourceEvent::Gap(gap))));
        self.actions.push(Action::Emit(SourceEvent::Ended { children }));
    }

    /// When the service's call rate lets the next call through.
    fn allowed(&self, now: Instant) -> Instant {
        self.last.called.map_or(now, |called| called + SUBSCRIBE_INTERVAL).max(now)
    }

    /// When the service does not refuse a call any more because of the last success for this shard.
    fn rested(&self, now: Instant) -> Instant {
        let allowed = self.allowed(now);
        self.last.accepted.map_or(allowed, |accepted| (accepted + SUBSCRIBE_IN_USE).max(allowed))
    }
}
