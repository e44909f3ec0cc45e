//! The machine that decides which records share a call, when calls start, and what becomes of each record.
//!
//! It is pure and synchronous: time comes with every event, random numbers from a seed, and what is to be done is
//! returned as actions. The [driver](crate::driver) carries them out.

mod flushes;
mod pace;
mod queue;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::backoff::BackoffConfig;
use kinesis_core::{OutboundRecord, SequenceNumber, ShardId};

pub(crate) use self::flushes::FlushId;
use self::flushes::Flushes;
use self::pace::Pace;
use self::queue::{Item, Queue};
use crate::ProducerConfig;
use crate::config::RECORD_OVERHEAD;
use crate::error::{Failure, RecordErrorKind};
use crate::receipt::Sent;
use crate::report::FlushReport;

/// What a record counts of the byte budget.
pub(crate) fn cost(record: &OutboundRecord) -> usize {
    record.wire_len() + RECORD_OVERHEAD
}

/// Names a call, in the order in which calls start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallId(u64);

/// Where the service stored a record, or why it did not.
pub(crate) type EntryResult = Result<(ShardId, SequenceNumber), ServiceFailure>;

/// What happens to the machine. `P` is a record with whatever the driver wants to have back with its answer.
#[derive(Debug)]
pub(crate) enum Event<P> {
    /// A record was put.
    Admitted(P),
    /// Records were put together, to be sent without waiting for others.
    AdmittedBatch(Vec<P>),
    /// Everything that is here now is to be sent without waiting for others, and reported once all of it has
    /// answers, or at `deadline`.
    Flush { id: FlushId, deadline: Option<Instant> },
    /// From now on nothing waits for others.
    Drain,
    /// A call ended: with one result per record in order, or as a whole.
    Answered { call: CallId, result: Result<Vec<EntryResult>, ServiceFailure> },
    /// Everything that is here fails with this kind, calls under way included, and whatever is put later. No call
    /// starts any more.
    GiveUp(RecordErrorKind),
    /// Time passed.
    Tick,
}

/// What the driver is to do.
#[derive(Debug)]
pub(crate) enum Action<P> {
    /// Start a call with the records of [`Batcher::records`].
    Send(CallId),
    /// The final answer of a record with a payload of `bytes`.
    Done { pending: P, bytes: usize, outcome: Result<Sent, Failure> },
    /// So many records, refused on their own, will be sent again.
    Retrying(usize),
    /// A flush is complete, or its time is over.
    Flushed { id: FlushId, report: FlushReport },
}

/// What the machine needs of the configuration.
#[derive(Debug, Clone)]
struct Settings {
    batch_records: usize,
    batch_bytes: usize,
    linger: Duration,
    in_flight: usize,
    max_attempts: u32,
    delivery_timeout: Duration,
}

#[derive(Debug)]
struct Call<P> {
    items: Vec<Item<P>>,
}

#[derive(Debug)]
pub(crate) struct Batcher<P> {
    settings: Settings,
    queue: Queue<P>,
    calls: BTreeMap<CallId, Call<P>>,
    pace: Pace,
    flushes: Flushes,
    next_serial: u64,
    next_call: u64,
    /// Records up to this serial do not wait for others.
    urgent_through: Option<u64>,
    given_up: Option<RecordErrorKind>,
    /// The call that finds out whether calls work again.
    probe: Option<CallId>,
    /// Records without an answer, and what they count of the byte budget.
    held: usize,
    held_bytes: usize,
}

impl<P: Borrow<OutboundRecord>> Batcher<P> {
    pub(crate) fn new(config: &ProducerConfig, seed: u64) -> Self {
        Self {
            settings: Settings {
                batch_records: config.batch_records,
                batch_bytes: config.batch_bytes,
                linger: config.linger,
                in_flight: config.in_flight,
                max_attempts: config.max_retries.saturating_add(1),
                delivery_timeout: config.delivery_timeout,
            },
            queue: Queue::new(),
            calls: BTreeMap::new(),
            pace: Pace::new(BackoffConfig::new(config.retry_initial, config.retry_max), seed),
            flushes: Flushes::default(),
            next_serial: 0,
            next_call: 0,
            urgent_through: None,
            given_up: None,
            probe: None,
            held: 0,
            held_bytes: 0,
        }
    }

    /// Records without an answer.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// What the records without an answer count of the byte budget.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Records that wait for a call, repeated ones included.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The records of a call under way, in order; none once it ended.
    pub(crate) fn records(&self, call: CallId) -> impl Iterator<Item = &OutboundRecord> {
        self.calls.get(&call).into_iter().flat_map(|call| call.items.iter().map(Item::record))
    }

    /// When the next [`Event::Tick`] is due, as things are now.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let start = self.queue.front().filter(|_| self.has_free_call()).and_then(|front| {
            let lingered = (!self.is_pressing(front)).then(|| self.lingered(front));
            lingered.max(self.pace.paused_until())
        });
        let expiry = self.queue.front().map(|front| self.deadline(front));
        [start, expiry, self.queue.next_retry(), self.flushes.next_deadline()].into_iter().flatten().min()
    }

    /// Takes an event and says what to do.
    pub(crate) fn step(&mut self, now: Instant, event: Event<P>) -> Vec<Action<P>> {
        let mut actions = Vec::new();
        match event {
            Event::Admitted(pending) => self.admit(now, pending),
            Event::AdmittedBatch(batch) => {
                batch.into_iter().for_each(|pending| self.admit(now, pending));
                self.urge_all();
            }
            Event::Flush { id, deadline } => {
                self.flushes.begin(id, deadline, self.next_serial, self.held);
                self.urge_all();
            }
            Event::Drain => self.urgent_through = Some(u64::MAX),
            Event::Answered { call, result } => self.answered(now, call, result, &mut actions),
            Event::GiveUp(kind) => self.given_up = Some(kind),
            Event::Tick => {}
        }
        if let Some(kind) = self.given_up {
            self.give_up(kind, &mut actions);
        }
        self.advance(now, &mut actions);
        actions
    }

    fn admit(&mut self, now: Instant, pending: P) {
        let record: &OutboundRecord = pending.borrow();
        self.held += 1;
        self.held_bytes += cost(record);
        let item = Item {
            serial: self.next_serial,
            size: record.wire_len(),
            admitted: now,
            attempts: 0,
            in_doubt: false,
            pending,
        };
        self.next_serial += 1;
        self.queue.push(item);
    }

    /// Everything admitted so far is to be sent without waiting for others.
    fn urge_all(&mut self) {
        if let Some(last) = self.next_serial.checked_sub(1) {
            self.urge(last);
        }
    }

    fn urge(&mut self, serial: u64) {
        self.urgent_through = self.urgent_through.max(Some(serial));
    }

    /// Does everything that is due.
    fn advance(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        if let Some(last) = self.queue.take_due_retries(now) {
            self.urge(last);
        }
        while let Some(front) = self.queue.front()
            && self.deadline(front) <= now
        {
            let item = self.queue.pop_front().expect("there is a front");
            self.fail(item, RecordErrorKind::Expired, None, actions);
        }
        while self.may_start(now) {
            let mut items = self.queue.take_batch(self.settings.batch_records, self.settings.batch_bytes);
            items.iter_mut().for_each(|item| item.attempts += 1);
            let id = CallId(self.next_call);
            self.next_call += 1;
            self.probe = self.pace.is_failing().then_some(id);
            self.calls.insert(id, Call { items });
            actions.push(Action::Send(id));
        }
        let ended = self.flushes.take_ended(now);
        actions.extend(ended.into_iter().map(|(id, report)| Action::Flushed { id, report }));
    }

    fn may_start(&self, now: Instant) -> bool {
        let Some(front) = self.queue.front() else { return false };
        self.has_free_call()
            && !self.pace.is_paused(now)
            && (self.is_pressing(front) || self.lingered(front) <= now)
    }

    /// Whether one more call may be under way. After a call that failed as a whole it is a single one, until one is
    /// answered again.
    fn has_free_call(&self) -> bool {
        let probing = self.probe.is_some_and(|id| self.calls.contains_key(&id));
        self.calls.len() < self.settings.in_flight && !(probing && self.pace.is_failing())
    }

    /// Whether a call is to start without waiting for more records.
    fn is_pressing(&self, front: &Item<P>) -> bool {
        self.urgent_through >= Some(front.serial)
            || self.queue.ready_len() >= self.settings.batch_records
            || self.queue.ready_bytes() >= self.settings.batch_bytes
    }

    /// When the record has waited long enough for others.
    fn lingered(&self, item: &Item<P>) -> Instant {
        item.admitted + self.settings.linger
    }

    fn deadline(&self, item: &Item<P>) -> Instant {
        item.admitted + self.settings.delivery_timeout
    }

    fn answered(
        &mut self,
        now: Instant,
        id: CallId,
        result: Result<Vec<EntryResult>, ServiceFailure>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Calls that were given up have answers already.
        let Some(Call { items }) = self.calls.remove(&id) else { return };
        self.queue.release_keys(&items);
        match result {
            Ok(results) if results.len() == items.len() => self.answered_each(now, items, results, actions),
            Ok(results) => {
                let problem = format!("the answer has {} results for {} records", results.len(), items.len());
                let failure = ServiceFailure::local(FailureKind::Other, problem);
                self.failed_as_a_whole(now, items, failure, actions);
            }
            Err(failure) => self.failed_as_a_whole(now, items, failure, actions),
        }
    }

    /// The service took the call; each record's own result decides.
    fn answered_each(
        &mut self,
        now: Instant,
        items: Vec<Item<P>>,
        results: Vec<EntryResult>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.pace.call_succeeded();
        let delays = self.pace.delays();
        let mut retrying = 0;
        for (item, result) in items.into_iter().zip(results) {
            match result {
                Ok((shard, sequence)) => {
                    let sent = Sent { shard, sequence, attempts: item.attempts };
                    self.finish(item, Ok(sent), actions);
                }
                Err(failure) => {
                    let due = now + delays.before_retry(item.attempts);
                    let retried =
                        self.retry(item, due, RecordErrorKind::Refused, &Arc::new(failure), actions);
                    retrying += usize::from(retried);
                }
            }
        }
        if retrying > 0 {
            actions.push(Action::Retrying(retrying));
        }
    }

    /// The call failed: all its records share the failure and come back together.
    fn failed_as_a_whole(
        &mut self,
        now: Instant,
        items: Vec<Item<P>>,
        failure: ServiceFailure,
        actions: &mut Vec<Action<P>>,
    ) {
        let in_doubt = may_have_had_effect(failure.kind());
        // Only the request is at fault when it is invalid; anything else would hit the next call too.
        let due = match failure.kind() {
            FailureKind::Invalid => now,
            _ => self.pace.call_failed(now),
        };
        let failure = Arc::new(failure);
        for mut item in items {
            item.in_doubt |= in_doubt;
            self.retry(item, due, RecordErrorKind::CallFailed, &failure, actions);
        }
    }

    /// Repeats the record at `due`, or gives it up. Whether it will be repeated.
    fn retry(
        &mut self,
        item: Item<P>,
        due: Instant,
        kind: RecordErrorKind,
        failure: &Arc<ServiceFailure>,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let kind = if !failure.is_retryable() || item.attempts >= self.settings.max_attempts {
            kind
        } else if due >= self.deadline(&item) {
            RecordErrorKind::Expired
        } else {
            self.queue.push_retry(due, item);
            return true;
        };
        self.fail(item, kind, Some(Arc::clone(failure)), actions);
        false
    }

    fn give_up(&mut self, kind: RecordErrorKind, actions: &mut Vec<Action<P>>) {
        let mut items = self.queue.take_all();
        for mut item in std::mem::take(&mut self.calls).into_values().flat_map(|call| call.items) {
            item.in_doubt = true;
            items.push(item);
        }
        items.sort_by_key(|item| item.serial);
        items.into_iter().for_each(|item| self.fail(item, kind, None, actions));
    }

    fn fail(
        &mut self,
        item: Item<P>,
        kind: RecordErrorKind,
        cause: Option<Arc<ServiceFailure>>,
        actions: &mut Vec<Action<P>>,
    ) {
        let failure = Failure { kind, attempts: item.attempts, in_doubt: item.in_doubt, cause };
        self.finish(item, Err(failure), actions);
    }

    fn finish(&mut self, item: Item<P>, outcome: Result<Sent, Failure>, actions: &mut Vec<Action<P>>) {
        let record = item.record();
        let bytes = record.data.len();
        self.held -= 1;
        self.held_bytes -= cost(record);
        self.flushes.record_done(item.serial, outcome.is_ok());
        actions.push(Action::Done { pending: item.pending, bytes, outcome });
    }
}

/// Whether records of a call that failed this way may be stored all the same.
fn may_have_had_effect(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Timeout | FailureKind::Transport | FailureKind::Server | FailureKind::Other)
}
