//! The machine that decides which records share a call, when calls start, and what becomes of each record. Which of them
//! share a Kinesis record, [`packing`](crate::packing) decides.
//!
//! It is pure and synchronous: time comes with every event, random numbers from a seed, and what is to be done is
//! returned as actions. The [driver](crate::driver) carries them out.

mod answers;
mod flushes;
mod pace;
mod queue;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use kinesis_core::aws::ServiceFailure;
use kinesis_core::backoff::BackoffConfig;
use kinesis_core::directory::ShardInfo;
use kinesis_core::{OutboundRecord, SequenceNumber, ShardId};

use self::answers::Stray;
pub(crate) use self::flushes::FlushId;
use self::flushes::Flushes;
use self::pace::Pace;
use self::queue::Queue;
use crate::ProducerConfig;
use crate::aggregation::Misplaced;
use crate::encoding::Encoding;
use crate::error::{Failure, RecordErrorKind};
use crate::packing::{Atlas, Load, Packer, Parcel, Put, held_cost};
use crate::receipt::Sent;
use crate::report::FlushReport;

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
    /// The shards that were asked for; `None` when they could not be listed.
    Listed(Option<Vec<ShardInfo>>),
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
    /// List the shards of the stream.
    ListShards,
    /// The final answer of a record.
    Done { put: P, outcome: Result<Sent, Failure> },
    /// A Kinesis record with a payload of `bytes` was stored at this attempt.
    Stored { bytes: usize, attempt: u32 },
    /// So many records, refused on their own, will be sent again.
    Retrying(usize),
    /// So many records were stored where readers may drop them, and will be sent again.
    Misplaced(usize),
    /// The stream distributes records by itself.
    Unpredictable,
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
    misplaced: Misplaced,
}

#[derive(Debug)]
struct Call<P> {
    items: Vec<Parcel<P>>,
    epoch: u64,
}

#[derive(Debug)]
pub(crate) struct Batcher<P> {
    settings: Settings,
    atlas: Atlas,
    packer: Packer<P>,
    /// Records that wait for the first list of shards, in order.
    unaddressed: VecDeque<Load<P>>,
    queue: Queue<P>,
    calls: BTreeMap<CallId, Call<P>>,
    /// Stored where they may not belong; a list of shards is on its way that says so.
    strays: Vec<Stray<P>>,
    pace: Pace,
    flushes: Flushes,
    next_serial: u64,
    next_call: u64,
    /// Records up to this serial do not wait for others.
    urgent_through: Option<u64>,
    given_up: Option<RecordErrorKind>,
    /// The call that finds out whether calls work again.
    probe: Option<CallId>,
    /// Records without an answer, and what they and their parcels count of the byte budget.
    held: usize,
    held_bytes: usize,
}

impl<P: Put> Batcher<P> {
    pub(crate) fn new(config: &ProducerConfig, encoding: Option<Encoding>, seed: u64) -> Self {
        Self {
            settings: Settings {
                batch_records: config.batch_records,
                batch_bytes: config.batch_bytes,
                linger: config.linger,
                in_flight: config.in_flight,
                max_attempts: config.max_retries.saturating_add(1),
                delivery_timeout: config.delivery_timeout,
                misplaced: config.misplaced,
            },
            atlas: Atlas::new(config, seed),
            packer: Packer::new(config, encoding),
            unaddressed: VecDeque::new(),
            queue: Queue::new(),
            calls: BTreeMap::new(),
            strays: Vec::new(),
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
        self.held_bytes + self.packer.open_bytes()
    }

    /// Kinesis records that wait for a call, repeated ones included, and records that wait to be packed.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len() + self.unaddressed.len()
    }

    /// The Kinesis records of a call under way, in order; none once it ended.
    pub(crate) fn records(&self, call: CallId) -> impl Iterator<Item = &OutboundRecord> {
        self.calls.get(&call).into_iter().flat_map(|call| call.items.iter().map(|item| &item.wire))
    }

    /// When the next [`Event::Tick`] is due, as things are now.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let start = |admitted: Instant, pressing: bool| {
            let lingered = (!pressing).then(|| admitted + self.settings.linger);
            lingered.max(self.pace.paused_until())
        };
        let free = self.has_free_call();
        let front = self.queue.front().filter(|front| free && self.is_of_this_epoch(front));
        let front = front.and_then(|front| start(front.admitted, self.is_pressing(front)));
        let open = self.packer.oldest().filter(|_| free).and_then(|(_, admitted)| start(admitted, false));
        let expiry = self.oldest_admitted().map(|admitted| admitted + self.settings.delivery_timeout);
        [front, open, expiry, self.queue.next_retry(), self.atlas.next_wake(), self.flushes.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Of all that can expire right now.
    fn oldest_admitted(&self) -> Option<Instant> {
        let front = self.queue.front().map(|front| front.admitted);
        let open = self.packer.oldest().map(|(_, admitted)| admitted);
        let unaddressed = self.unaddressed.front().map(|load| load.admitted);
        let strays = self.strays.iter().map(Stray::admitted).min();
        [front, open, unaddressed, strays].into_iter().flatten().min()
    }

    /// Takes an event and says what to do.
    pub(crate) fn step(&mut self, now: Instant, event: Event<P>) -> Vec<Action<P>> {
        let mut actions = Vec::new();
        match event {
            Event::Admitted(put) => self.admit(now, put),
            Event::AdmittedBatch(batch) => {
                batch.into_iter().for_each(|put| self.admit(now, put));
                self.urge_all();
            }
            Event::Flush { id, deadline } => {
                self.flushes.begin(id, deadline, self.next_serial, self.held);
                self.urge_all();
            }
            Event::Drain => self.urgent_through = Some(u64::MAX),
            Event::Answered { call, result } => self.answered(now, call, result, &mut actions),
            Event::Listed(shards) => self.listed(now, shards, &mut actions),
            Event::GiveUp(kind) => self.given_up = Some(kind),
            Event::Tick => {}
        }
        if let Some(kind) = self.given_up {
            self.give_up(kind, &mut actions);
        }
        self.advance(now, &mut actions);
        actions
    }

    fn admit(&mut self, now: Instant, put: P) {
        self.held += 1;
        self.held_bytes += held_cost(&put);
        self.atlas.want(now);
        let load = Load { serial: self.next_serial, admitted: now, attempts: 0, in_doubt: false, put };
        self.next_serial += 1;
        self.pack(load);
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
        if self.given_up.is_none() && self.atlas.begin(now) {
            actions.push(Action::ListShards);
        }
        self.close_due(now);
        self.expire(now, actions);
        while self.may_start(now) {
            let mut items = self.queue.take_batch(self.settings.batch_records, self.settings.batch_bytes);
            items.iter_mut().for_each(|item| item.attempts += 1);
            let id = CallId(self.next_call);
            self.next_call += 1;
            self.probe = self.pace.is_failing().then_some(id);
            let epoch = items.first().map(|item| item.epoch).unwrap_or_default();
            self.calls.insert(id, Call { items, epoch });
            actions.push(Action::Send(id));
        }
        let ended = self.flushes.take_ended(now);
        actions.extend(ended.into_iter().map(|(id, report)| Action::Flushed { id, report }));
    }

    fn may_start(&self, now: Instant) -> bool {
        let Some(front) = self.queue.front() else { return false };
        self.can_start(now)
            && (self.is_pressing(front) || front.admitted + self.settings.linger <= now)
            && self.is_of_this_epoch(front)
    }

    /// Whether the record may be under way together with those that are.
    fn is_of_this_epoch(&self, front: &Parcel<P>) -> bool {
        self.calls.values().all(|call| call.epoch == front.epoch)
    }

    fn can_start(&self, now: Instant) -> bool {
        self.has_free_call() && !self.pace.is_paused(now)
    }

    /// Whether one more call may be under way. After a call that failed as a whole it is a single one, until one is
    /// answered again.
    fn has_free_call(&self) -> bool {
        let probing = self.probe.is_some_and(|id| self.calls.contains_key(&id));
        self.calls.len() < self.settings.in_flight && !(probing && self.pace.is_failing())
    }

    /// Whether a call is to start without waiting for more records.
    fn is_pressing(&self, front: &Parcel<P>) -> bool {
        self.urgent_through >= Some(front.serial)
            || self.queue.ready_len() >= self.settings.batch_records
            || self.queue.ready_bytes() >= self.settings.batch_bytes
    }
}
