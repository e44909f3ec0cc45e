//! The lease task as a pure state machine: events and the time go in, actions come out. It makes no call, reads no
//! clock, and draws random numbers only from the generator that it is given; so a simulation can step whole fleets.
//!
//! It is the only holder of the counters of our leases, and so the only one who issues guarded writes: at most one per
//! lease is under way at any time.

mod balance;
mod beat;
mod close;
mod held;
mod kcl;
mod observe;
mod plan;
#[cfg(test)]
mod tests;
mod watch;
mod weigh;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{CoolDown, Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};
use kinesis_core::{Checkpoint, HashKeyRange, WorkerId};

use crate::load::Meter;
use crate::mutant::{self, Mutant};
use crate::{LeaseConfig, LeaseError, LeaseWarning, LossReason};
use beat::Beat;
use held::Held;
#[cfg(any(test, feature = "sim"))]
pub(crate) use kcl::simulates_kcl;
use observe::Seen;
use watch::Watch;

/// Names one call of `apply`.
pub(crate) type BatchId = u64;
/// Names one waiting caller.
pub(crate) type ReplyId = u64;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A caller asks for something.
    Request(Request),
    /// A call of `apply` ended: one result per write.
    Applied { batch: BatchId, results: Vec<Result<Outcome, Arc<StoreError>>> },
    /// All rows were read.
    Looked(Result<Look, Arc<StoreError>>),
    /// Some rows were read.
    Read { keys: Vec<LeaseKey>, rows: Result<Vec<Option<Lease>>, Arc<StoreError>> },
    /// The store hints that leases may have become free.
    Hinted,
    /// Shards were listed, from `began` on, and missing leases made.
    Discovered { began: Instant, result: Result<Found, Arc<DirectoryError>> },
}

/// All rows, as one look found them.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) started: Instant,
    pub(crate) rows: Vec<Lease>,
    pub(crate) unreadable: Vec<Arc<StoreError>>,
}

/// What a discovery found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Unfinished leases whose shards are not listed.
    pub(crate) gone: BTreeSet<LeaseKey>,
    /// Finished ones that nothing needs any more.
    pub(crate) spent: BTreeSet<LeaseKey>,
    /// The rows, unless some were made since they were read: as good as a look.
    pub(crate) look: Option<Look>,
    /// A part of the key space that no unfinished lease has.
    pub(crate) hole: Option<HashKeyRange>,
}

/// What a caller asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Store how far the shard is finished, in a write that begins at the earliest so long after the one before.
    Checkpoint {
        key: LeaseKey,
        token: TenureToken,
        checkpoint: Checkpoint,
        spacing: Duration,
        reply: ReplyId,
    },
    /// Give the lease up.
    Release { key: LeaseKey, token: TenureToken, cool_down: Option<CoolDown>, reply: ReplyId },
    /// The shard is finished.
    End { key: LeaseKey, token: TenureToken, children: Vec<ShardInfo>, reply: ReplyId },
    /// Take no further leases.
    StopTaking,
    /// Take no further leases and release those that are held.
    Stop,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Apply writes; answer with `Event::Applied`.
    Apply { batch: BatchId, writes: Vec<LeaseWrite> },
    /// Read all rows; answer with `Event::Looked`.
    Look,
    /// Read these rows; answer with `Event::Read`.
    Read(Vec<LeaseKey>),
    /// List shards and make missing leases, beginning now or later; answer with `Event::Discovered`.
    Discover,
    /// A tenure begins; its work is reported to the meter.
    Acquired { lease: Box<Lease>, token: TenureToken, meter: Arc<Meter> },
    /// A tenure should end before the deadline.
    HandOver { key: LeaseKey, token: TenureToken, deadline: Instant },
    /// A tenure ended against our will.
    Lost { key: LeaseKey, token: TenureToken, reason: LossReason },
    /// A tenure ended as it was asked to.
    Ended { key: LeaseKey, token: TenureToken },
    /// Answer a caller.
    Reply { id: ReplyId, result: Result<(), LeaseError> },
    /// Tell that something is wrong.
    Warn(LeaseWarning),
}

/// What one write of a batch is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Hold,
    Take {
        token: TenureToken,
    },
    /// Takes a lease from a worker that lives, as the KCL does.
    Steal {
        token: TenureToken,
        again: bool,
    },
    Request,
    GiveBack,
    /// Our own row as a worker.
    Beat,
    /// Names a lease that we ask for in the row of its holder.
    Ask,
    Child {
        of: LeaseKey,
    },
    Close {
        checkpoint: Checkpoint,
    },
    Collect,
    RemoveWorker,
}

#[derive(Debug)]
struct Batch {
    started: Instant,
    items: Vec<(LeaseKey, Purpose)>,
}

/// A taking whose outcome is unknown: recognised by its token when the row is seen.
#[derive(Debug)]
struct Doubt {
    token: TenureToken,
    started: Instant,
    read_at: Option<Instant>,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    NotTaking,
    Stopping,
}

/// The most writes of one `apply`.
const BATCH_LIMIT: usize = 256;
/// While this many calls are under way, checkpoints that no heartbeat depends on wait and are written together.
const UNHURRIED_BATCHES: usize = 4;
/// The first delay between tries of a write that failed, unless the longest one is shorter.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest one is this part of a heartbeat interval, so that many tries fit into the time that a holder believes.
const RETRIES_PER_HEARTBEAT: u32 = 6;

#[derive(Debug)]
pub(crate) struct Machine {
    me: WorkerId,
    config: LeaseConfig,
    random: fastrand::Rng,
    phase: Phase,
    held: BTreeMap<LeaseKey, Held>,
    seen: BTreeMap<LeaseKey, Seen>,
    /// The rows of workers, ours included.
    lives: BTreeMap<WorkerId, Seen>,
    /// Our own, if we have one.
    beat: Option<Box<Beat>>,
    unreadable: BTreeSet<LeaseKey>,
    /// What the last listing found: it takes two of them to believe that a shard is gone.
    found: Found,
    /// When that listing began.
    listed_at: Option<Instant>,
    /// Since when finished leases are needed by nothing.
    spent_since: BTreeMap<LeaseKey, Instant>,
    /// Rows that a take, request or other write of ours is under way for.
    busy: BTreeSet<LeaseKey>,
    doubts: BTreeMap<LeaseKey, Doubt>,
    batches: BTreeMap<BatchId, Batch>,
    next_batch: BatchId,
    looking: bool,
    /// `None` means at once.
    next_look: Option<Instant>,
    /// When the newest look that was taken in began.
    saw_at: Option<Instant>,
    /// The look under way began too early to show what we want to see.
    look_again: bool,
    look_backoff: Backoff,
    watch: Watch,
    /// When a failed write was last told.
    warned_at: Option<Instant>,
    released: Vec<LeaseKey>,
    lost_in_stop: Vec<LeaseKey>,
    kcl: kcl::Kcl,
    /// Rows that may name us, as the outcome of a write is unknown, and since when: the next look shows it.
    unsettled: BTreeMap<LeaseKey, Instant>,
    actions: Vec<Action>,
}

impl Machine {
    pub(crate) fn new(me: WorkerId, config: LeaseConfig, mut random: fastrand::Rng) -> Self {
        let slowest = (config.look_interval * 8).min(config.expiry).max(config.look_interval);
        let look_backoff = Backoff::new(BackoffConfig::new(config.look_interval, slowest), random.u64(..));
        let watch = Watch::new(config.full_look_interval.unwrap_or(config.look_interval));
        let beat = config.worker_heartbeat.then(|| Box::new(Beat::new(&mut random)));
        Self {
            me,
            config,
            random,
            phase: Phase::Running,
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            lives: BTreeMap::new(),
            beat,
            unreadable: BTreeSet::new(),
            found: Found::default(),
            listed_at: None,
            spent_since: BTreeMap::new(),
            busy: BTreeSet::new(),
            doubts: BTreeMap::new(),
            batches: BTreeMap::new(),
            next_batch: 0,
            looking: false,
            next_look: None,
            saw_at: None,
            look_again: false,
            look_backoff,
            watch,
            warned_at: None,
            released: Vec::new(),
            lost_in_stop: Vec::new(),
            #[cfg(not(test))]
            kcl: kcl::Kcl::default(),
            #[cfg(test)]
            kcl: kcl::Kcl::simulated(),
            unsettled: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    /// Handles what happened and says what to do now.
    #[cfg(test)]
    pub(crate) fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        self.handle(now, event);
        self.plan(now)
    }

    /// Handles an event without planning, so that several can be planned for together; [`plan`](Self::plan) follows.
    pub(crate) fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Request(request) => self.requested(now, request),
            Event::Applied { batch, results } => self.applied(now, batch, results),
            Event::Looked(look) => self.looked(now, look),
            Event::Read { keys, rows } => self.read(now, &keys, rows),
            Event::Hinted => self.want_look(),
            Event::Discovered { began, result } => self.discovered(now, began, result),
        }
    }

    /// How many leases are held, those of which only the last write is to be made included.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    /// The tenure whose writes of a row are ours.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn tenure_of(&self, key: &LeaseKey) -> Option<TenureToken> {
        self.held.get(key).map(|held| held.token)
    }

    /// The leases that we hold, as this worker knows their rows.
    #[cfg(test)]
    pub(crate) fn held_rows(&self) -> impl Iterator<Item = &Lease> {
        self.held.values().filter(|held| !held.is_ghost()).map(|held| &held.row)
    }

    /// Whether a stop is done: nothing is held and nothing under way.
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopping
            && self.held.is_empty()
            && self.batches.is_empty()
            && self.unsettled.is_empty()
    }

    /// What was released since the stop began, and what was not or not surely.
    pub(crate) fn stop_report(&self) -> (Vec<LeaseKey>, Vec<LeaseKey>) {
        let left = self.held.keys().chain(&self.lost_in_stop).chain(self.unsettled.keys());
        let left: BTreeSet<LeaseKey> = left.cloned().collect();
        (self.released.clone(), left.into_iter().collect())
    }

    /// Knows a row that has looked like that since then, before the first look.
    pub(crate) fn remember(&mut self, row: Lease, since: Instant) {
        self.observe(row, since, None);
    }

    fn requested(&mut self, now: Instant, request: Request) {
        match request {
            Request::Checkpoint { key, token, checkpoint, spacing, reply } => {
                match self.held.get_mut(&key).filter(|held| held.is_tenure(token)) {
                    Some(held)
                        if checkpoint > held.row.checkpoint || mutant::is_on(Mutant::CheckpointBack) =>
                    {
                        held.want(checkpoint, spacing, reply);
                    }
                    // An older place is finished already.
                    Some(_) => self.reply(reply, Ok(())),
                    None => self.reply(reply, Err(LeaseError::Lost)),
                }
            }
            Request::Release { key, token, cool_down, reply } => {
                self.begin_release(&key, token, cool_down, reply);
            }
            Request::End { key, token, children, reply } => {
                self.begin_end(now, &key, token, &children, reply);
            }
            Request::StopTaking => {
                if self.phase == Phase::Running {
                    self.phase = Phase::NotTaking;
                }
            }
            Request::Stop => self.begin_stop(now),
        }
    }

    fn reply(&mut self, id: ReplyId, result: Result<(), LeaseError>) {
        self.actions.push(Action::Reply { id, result });
    }

    /// Issues writes in calls of bounded size.
    fn issue(&mut self, now: Instant, writes: Vec<(LeaseWrite, Purpose)>) {
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let batch = self.next_batch;
            self.next_batch += 1;
            let mut items = Vec::new();
            let mut list = Vec::new();
            for (write, purpose) in writes.by_ref().take(BATCH_LIMIT) {
                if !matches!(purpose, Purpose::Hold | Purpose::Beat) {
                    self.busy.insert(write.key.clone());
                }
                items.push((write.key.clone(), purpose));
                list.push(write);
            }
            self.batches.insert(batch, Batch { started: now, items });
            self.actions.push(Action::Apply { batch, writes: list });
        }
    }

    fn applied(&mut self, now: Instant, batch: BatchId, results: Vec<Result<Outcome, Arc<StoreError>>>) {
        let Some(Batch { started, items }) = self.batches.remove(&batch) else { return };
        let (mut answered, mut unsettled) = (false, false);
        let mut results = results.into_iter();
        for (key, purpose) in items {
            let missing = || Err(Arc::new(StoreError::unavailable("the store gave too few results")));
            let result = results.next().unwrap_or_else(missing);
            // One warning per heartbeat says enough about a store in trouble.
            let quiet = self.warned_at.is_some_and(|at| now < at + self.config.heartbeat_interval);
            if let Err(error) = &result
                && !quiet
            {
                self.warned_at = Some(now);
                self.warn(LeaseWarning::Write { key: key.clone(), source: Arc::clone(error) });
            }
            if purpose == Purpose::Collect {
                self.seen.remove(&key);
            } else if purpose == Purpose::RemoveWorker && matches!(result, Ok(Outcome::Applied(_))) {
                self.worker_removed(&key);
            } else if let Ok(Outcome::Applied(row) | Outcome::Refused { current: Some(row) }) = &result {
                self.observe(row.clone(), now, Some(now));
                // The answer may be as old as the call.
                self.confirm(&key, started);
            }
            answered |= result.is_ok();
            let may_name_us = matches!(
                purpose,
                Purpose::Take { .. } | Purpose::Steal { .. } | Purpose::Request | Purpose::GiveBack
            );
            if may_name_us && result.is_err() && !mutant::is_on(Mutant::StopUnsettled) {
                unsettled = true;
                self.unsettled.insert(key.clone(), now);
            }
            match purpose {
                Purpose::Hold => self.held_write_ended(now, &key, started, result),
                Purpose::Beat => self.beat_ended(now, started, result),
                Purpose::Take { token } => self.take_ended(now, &key, token, started, result),
                Purpose::Steal { token, again } => {
                    self.steal_ended(now, &key, token, again, started, result);
                }
                Purpose::Child { of } => {
                    self.busy.remove(&key);
                    self.child_made(now, &of, &key, result);
                }
                Purpose::Close { checkpoint } => {
                    self.busy.remove(&key);
                    if let Ok(Outcome::Applied(_)) = result {
                        self.warn(LeaseWarning::ShardGone { key, checkpoint });
                    }
                }
                Purpose::Request
                | Purpose::GiveBack
                | Purpose::Ask
                | Purpose::Collect
                | Purpose::RemoveWorker => {
                    self.busy.remove(&key);
                }
            }
        }
        if self.phase == Phase::Stopping && answered {
            // A request that came too late to be taken back was answered meanwhile.
            self.give_back(now);
        }
        if self.phase == Phase::Stopping && unsettled {
            self.look_soon();
        }
    }

    fn take_ended(
        &mut self,
        now: Instant,
        key: &LeaseKey,
        token: TenureToken,
        started: Instant,
        result: Result<Outcome, Arc<StoreError>>,
    ) {
        self.busy.remove(key);
        match result {
            Ok(Outcome::Applied(row)) => self.begin_tenure(now, row, token, started),
            Ok(_) => {
                tracing::debug!(%key, "another worker was faster");
                // It left another one to us.
                self.want_look();
            }
            Err(error) if error.is_retryable() && !mutant::is_on(Mutant::DoubtForgotten) => {
                let doubt = Doubt { token, started, read_at: Some(now), failures: 0 };
                self.doubts.insert(key.clone(), doubt);
            }
            Err(_) => {}
        }
    }

    fn begin_tenure(&mut self, now: Instant, row: Lease, token: TenureToken, started: Instant) {
        self.doubts.remove(&row.key);
        if now >= started + self.config.belief() {
            // Too late to begin; the row expires and is taken anew.
            return;
        }
        tracing::debug!(key = %row.key, epoch = row.epoch, checkpoint = %row.checkpoint, "lease taken");
        let key = row.key.clone();
        let mut held = Held::new(row.clone(), token, started);
        let full = !self.has_room();
        if self.phase == Phase::Stopping || (full && !mutant::is_on(Mutant::LimitIgnored)) {
            // Too many can only come of a taking whose reply was lost.
            held.close_silently();
        } else {
            let meter = held.load.meter();
            self.actions.push(Action::Acquired { lease: Box::new(row), token, meter });
        }
        self.held.insert(key, held);
    }

    fn read(&mut self, now: Instant, keys: &[LeaseKey], rows: Result<Vec<Option<Lease>>, Arc<StoreError>>) {
        if let Some(started) = self.watch.answered(keys) {
            return self.watched(now, started, rows);
        }
        match rows {
            // Whatever is found is recognised by `observe`.
            Ok(rows) => rows.into_iter().flatten().for_each(|row| self.observe(row, now, None)),
            Err(error) => {
                tracing::debug!(error = %error, "a lease cannot be read back");
                for key in keys {
                    let Some(doubt) = self.doubts.get_mut(key) else { continue };
                    doubt.failures += 1;
                    let delay =
                        retry_delay(&mut self.random, &self.config, doubt.failures, error.retry_after());
                    doubt.read_at = Some(now + delay);
                }
            }
        }
    }

    fn warn(&mut self, warning: LeaseWarning) {
        self.actions.push(Action::Warn(warning));
    }
}

/// The delay before the next try after `failures` failures in a row, at least what the store asks for.
fn retry_delay(
    random: &mut fastrand::Rng,
    config: &LeaseConfig,
    failures: u32,
    asked: Option<Duration>,
) -> Duration {
    if mutant::is_on(Mutant::RetryAtOnce) {
        return Duration::ZERO;
    }
    let longest = config.heartbeat_interval / RETRIES_PER_HEARTBEAT;
    let factor = 1_u32 << failures.saturating_sub(1).min(16);
    let ceiling = FIRST_RETRY.saturating_mul(factor).min(longest);
    ceiling.mul_f64(0.5 + random.f64() / 2.0).max(asked.unwrap_or_default())
}
