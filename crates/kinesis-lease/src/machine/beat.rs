//! One write for the heartbeat of a whole worker, instead of one for each of its leases: with
//! [`worker_heartbeat`](crate::LeaseConfig::worker_heartbeat), a worker that holds leases has a row of its own, and moves
//! its counter each heartbeat interval. Held leases are then not renewed by writes of their own.
//!
//! # Who is alive
//!
//! A lease may be taken when both its row and that of its holder have stood still for an expiry, by the observer's clock
//! and by reads that began after that. Where the holder has no row, a look at all rows that began after that must have
//! found none. Rows without a token are held by nobody, and no worker's row speaks for them. Observers need no option for
//! that, so that workers with and without it can live side by side.
//!
//! # What a holder believes
//!
//! A write of a lease's own row is safe however late its reply comes: had another worker taken the lease before, the
//! guard would have refused it. A heartbeat proves less, as a taking does not touch the worker's row. So a heartbeat
//! counts for a lease (from its start on, like all writes) only if its reply comes while the worker believes in that
//! lease by what it knew before. Then it was applied before any observer could judge by what came before it: such a
//! judgement needs a read that begins an expiry after the last sign of life was seen, and belief ends 0.9 expiries after
//! that was begun. That read sees the heartbeat. From one heartbeat to the next this holds for all of them. A reply that
//! comes later, as to a process that was stopped, counts for nothing, though the write may be in the row.
//!
//! # Requests
//!
//! Who asks for a lease writes into its row, and a worker that does not write that row sees it by looks alone. So belief
//! also ends [`unasked_limit`](Machine::unasked_limit) after the last read or write that showed the row ours and not
//! asked for, and a hand-over ends then at the latest; who asked waits longer than that, by the same settings, before it
//! takes the lease by force. Leases that were not seen for most of that time are renewed by writes of their own. Where
//! all rows are read seldom, who asks also names the lease in the holder's row; the holder finds that in the answer to
//! its next heartbeat, and reads the lease.
//!
//! # Leases that are lost
//!
//! A lease that we have lost and whose row still names us would be protected by our own heartbeats for ever. We know
//! what we hold, so our own row does not count for us: we take such a lease again, or give it up where we may not.
//!
//! # When it does not work
//!
//! As long as the row is not there or not ours (a second worker of our name, two names with one hash), leases are renewed
//! one by one; so they are when no heartbeat has come through for a while. A worker that stops removes its row; others
//! remove rows that have stood still for a discovery interval. Both are guarded, and at that time nobody believes in
//! anything by that row.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};

use super::held::Held;
use super::observe::Seen;
use super::{Machine, Phase, Purpose, retry_delay};
use crate::mutant::{self, Mutant};
use crate::{LeaseConfig, ops, worker_row};

/// How often a load is stored in the time over which it is averaged, where nothing else writes its row.
const LOADS_PER_WINDOW: u32 = 4;

/// Our row as a worker.
#[derive(Debug)]
pub(super) struct Beat {
    /// Ours in all rows that we make or take over.
    token: TenureToken,
    /// The row, as long as it is ours as far as we know.
    row: Option<Lease>,
    /// The highest counter that we have written.
    counter: u64,
    in_flight: bool,
    retry_at: Option<Instant>,
    failures: u32,
    /// When the first write began whose outcome is unknown.
    unsure: Option<Instant>,
    /// Whether the last answer was that it works.
    works: bool,
}

/// When a held lease is due for a write of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    renewal: Duration,
    refresh: Option<Duration>,
    /// How old the load in the row may become.
    load: Option<Duration>,
}

impl Due {
    pub(super) fn of(self, held: &Held) -> Instant {
        let renewal = held.valid_from + self.renewal;
        // Once it is asked for there is nothing more to see.
        let refresh = self.refresh.filter(|_| held.row.checkpoint_owner.is_none());
        let refresh = refresh.map(|refresh| held.unasked + refresh);
        let load = self.load.map(|load| held.sent_at() + load);
        refresh.into_iter().chain(load).fold(renewal, Instant::min)
    }
}

/// For how long a holder believes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    by_writes: Duration,
    unasked: Option<Duration>,
}

impl Belief {
    /// The last moment at which we believe in the lease.
    pub(super) fn until(self, held: &Held) -> Instant {
        let by_writes = held.valid_from + self.by_writes;
        self.unasked.map_or(by_writes, |unasked| by_writes.min(held.unasked + unasked))
    }
}

impl Beat {
    pub(super) fn new(random: &mut fastrand::Rng) -> Self {
        Self {
            token: TenureToken::from_random(random.u128(..)),
            row: None,
            counter: 0,
            in_flight: false,
            retry_at: None,
            failures: 0,
            unsure: None,
            works: false,
        }
    }

    fn keep(&mut self, row: Lease) {
        self.counter = self.counter.max(row.counter);
        self.row = Some(row);
    }
}

impl Machine {
    /// How long a holder may go without seeing that its lease is not asked for, and work on it after it was: with clocks
    /// whose rates differ by less than 5 % less than the [`patience`](Self::patience) of who asks.
    fn unasked_limit(&self) -> Duration {
        self.patience().mul_f64(LeaseConfig::BELIEF)
    }

    /// How long a worker waits for a lease that it has asked for.
    pub(super) fn patience(&self) -> Duration {
        self.config.hand_over_timeout + self.config.expiry + self.look_gap()
    }

    pub(super) fn belief(&self) -> Belief {
        let factor = if mutant::is_on(Mutant::BeliefTooLong) { 1.5 } else { 1.0 };
        let unasked = self.beat.is_some().then(|| self.unasked_limit());
        Belief { by_writes: self.config.belief().mul_f64(factor), unasked }
    }

    /// When a hand-over that is noticed now has to be over.
    pub(super) fn hand_over_deadline(&self, now: Instant, held: &Held) -> Instant {
        let whole = now + self.config.hand_over_timeout;
        if self.beat.is_some() { whole.min(held.unasked + self.unasked_limit()) } else { whole }
    }

    pub(super) fn due(&self) -> Due {
        let heartbeat = self.heartbeat();
        let Some(beat) = &self.beat else { return Due { renewal: heartbeat, refresh: None, load: None } };
        // A heartbeat has the time of one call to come through.
        let patient = heartbeat + self.config.call_timeout();
        let latest = self.config.belief().saturating_sub(self.config.call_timeout());
        let renewal = if beat.works { patient.min(latest).max(heartbeat) } else { heartbeat };
        let load = self.load_window().map(|window| window / LOADS_PER_WINDOW);
        Due { renewal, refresh: Some(self.unasked_limit().mul_f64(0.75)), load }
    }

    /// When the next heartbeat is due: as soon as a lease would have to be renewed.
    pub(super) fn beat_at(&self) -> Option<Instant> {
        let beat = self.beat.as_ref().filter(|beat| !beat.in_flight)?;
        if beat.row.is_none()
            && let Some(life) = self.lives.get(&self.me)
            && !self.is_our_row(&life.row)
            && !self.stands_still(life, life.confirmed)
        {
            // Of a predecessor, or of a second worker: the next look tells.
            return None;
        }
        let oldest = self.held.values().filter(|held| held.is_kept()).map(|held| held.valid_from).min()?;
        let due = oldest + self.heartbeat();
        Some(beat.retry_at.map_or(due, |retry| retry.max(due)))
    }

    /// Writes our row when that is due, and removes it when we have stopped.
    pub(super) fn write_beat(&mut self, now: Instant) {
        self.remove_own_row(now);
        if self.beat_at().is_none_or(|at| at > now) {
            return;
        }
        let Some(beside) = self.held.keys().next() else { return };
        let Some(beat) = &self.beat else { return };
        let write = match (&beat.row, self.lives.get(&self.me)) {
            (Some(row), _) => ops::beat(row, beat.token),
            (None, Some(life)) => ops::take(&life.row, &self.me, beat.token),
            (None, None) => {
                let key = worker_row::key(beside, &self.me);
                ops::create(worker_row::new(key, &self.me, beat.token, beat.counter + 1))
            }
        };
        if let Some(beat) = &mut self.beat {
            beat.in_flight = true;
            beat.retry_at = None;
        }
        self.issue(now, vec![(write, Purpose::Beat)]);
    }

    pub(super) fn beat_ended(
        &mut self,
        now: Instant,
        started: Instant,
        result: Result<Outcome, Arc<StoreError>>,
    ) {
        let ours = matches!(&result, Ok(Outcome::Refused { current: Some(row) }) if self.is_our_row(row));
        let Some(beat) = &mut self.beat else { return };
        beat.in_flight = false;
        let row = match result {
            Ok(Outcome::Applied(row)) => {
                beat.works = true;
                beat.unsure = None;
                beat.keep(row.clone());
                self.count_beat(now, started);
                row
            }
            Ok(Outcome::Refused { current: Some(row) }) if ours => {
                // One of the tries before was applied after all, and maybe only the first.
                let first = beat.unsure.take();
                beat.keep(row.clone());
                first.into_iter().for_each(|first| self.count_beat(now, first));
                row
            }
            Ok(refused) => {
                beat.works = false;
                beat.unsure = None;
                beat.row = None;
                if matches!(refused, Outcome::Refused { current: Some(_) }) {
                    beat.retry_at = Some(now + self.config.heartbeat_interval);
                } else {
                    // It is made anew at once.
                    self.lives.remove(&self.me);
                }
                return;
            }
            Err(error) => {
                beat.unsure.get_or_insert(started);
                beat.failures += 1;
                let (failures, asked) = (beat.failures, error.retry_after());
                let delay = retry_delay(&mut self.random, &self.config, failures, asked);
                beat.retry_at = Some(now + delay);
                return;
            }
        };
        if let Some(beat) = &mut self.beat {
            beat.failures = 0;
            beat.retry_at = None;
        }
        if let Some(shard) = worker_row::asked_for(&row) {
            self.watch.asked_for(row.key.sibling(shard));
        }
    }

    /// A heartbeat that began at `from` is in our row: it counts for what we believe in by what we knew before.
    fn count_beat(&mut self, now: Instant, from: Instant) {
        let belief = self.belief();
        let counts = |held: &Held| now < belief.until(held) || mutant::is_on(Mutant::LateBeatBelieved);
        for held in self.held.values_mut().filter(|held| held.is_kept() && counts(held)) {
            held.valid_from = held.valid_from.max(from);
        }
    }

    /// Two workers whose random numbers begin alike may have the same token.
    fn is_our_row(&self, row: &Lease) -> bool {
        row.owner.as_ref() == Some(&self.me)
            && self.beat.as_ref().is_some_and(|beat| row.token == Some(beat.token))
    }

    /// Keeps the row of a worker.
    pub(super) fn observe_worker(&mut self, row: Lease, now: Instant, told_at: Option<Instant>) {
        let Some(owner) = row.owner.clone() else { return };
        let ours = self.is_our_row(&row);
        if let Some(beat) = self.beat.as_mut().filter(|beat| ours && beat.row.is_none() && !beat.in_flight) {
            // Made by a write whose answer was lost.
            beat.keep(row.clone());
        }
        let Some(life) = self.lives.get_mut(&owner) else {
            self.lives.insert(owner, Seen::new(row, now, told_at));
            return;
        };
        let is_news = owner == self.me && !ours && life.shows_namesake(&row);
        let other = row.clone();
        life.update(row, now, told_at);
        if is_news {
            let warning = self.namesake(&other);
            self.warn(warning);
        }
    }

    /// Takes in the rows of workers that a look has found.
    pub(super) fn saw_workers(&mut self, now: Instant, started: Instant, rows: Vec<Lease>) {
        let is_older = |life: &Seen| life.told_at.is_some_and(|told| told >= started);
        let found: BTreeSet<&WorkerId> = rows.iter().filter_map(|row| row.owner.as_ref()).collect();
        self.lives.retain(|owner, life| found.contains(owner) || is_older(life));
        for row in rows {
            let Some(owner) = row.owner.clone() else { continue };
            if !self.lives.get(&owner).is_some_and(is_older) {
                self.saw_worker(now, started, &owner, row);
            }
        }
    }

    fn saw_worker(&mut self, now: Instant, started: Instant, owner: &WorkerId, row: Lease) {
        self.observe_worker(row, now, None);
        if let Some(life) = self.lives.get_mut(owner) {
            life.confirmed = life.confirmed.max(started);
        }
    }

    /// Takes in the row of a worker that was read by key.
    pub(super) fn watched_worker(&mut self, now: Instant, started: Instant, row: Lease) {
        let Some(owner) = row.owner.clone() else { return };
        if self.lives.get(&owner).is_none_or(|life| life.told_at.is_some_and(|told| told >= started)) {
            return;
        }
        self.saw_worker(now, started, &owner, row);
        if self.lives.get(&owner).is_some_and(|life| self.stands_still(life, started)) {
            // What it held is free once all rows were read.
            self.want_look();
        }
    }

    /// Whether no worker's row shows that the holder of a lease lives, so that its own row decides.
    pub(super) fn is_without_beat(&self, seen: &Seen, now: Instant) -> bool {
        let holder = seen.row.holder().filter(|_| seen.row.token.is_some());
        let Some(holder) = holder.filter(|_| !mutant::is_on(Mutant::BeatIgnored)) else { return true };
        match self.lives.get(holder) {
            Some(life) if self.is_our_row(&life.row) && !mutant::is_on(Mutant::LostLeaseKept) => true,
            Some(life) if mutant::is_on(Mutant::OldLookTrusted) => self.stands_still(life, now),
            // It may have begun to move when the lease was taken.
            Some(life) => now.min(life.confirmed) >= seen.since.max(life.since) + self.expiry(),
            // In tables that the KCL uses there is no such row.
            None if self.is_kcl_compatible() || mutant::is_on(Mutant::OldLookTrusted) => true,
            None => self.saw_at.is_some_and(|at| now.min(at) >= seen.since + self.expiry()),
        }
    }

    /// The row of a worker that shows whether it lives: its own while that moves, else that of a lease.
    pub(super) fn sign_of_life(
        &self,
        holder: &WorkerId,
        lease: &LeaseKey,
        now: Instant,
    ) -> (LeaseKey, Instant) {
        match self.lives.get(holder).filter(|life| !self.stands_still(life, now)) {
            Some(life) => (life.row.key.clone(), life.since),
            None => (lease.clone(), self.seen.get(lease).map_or(now, |seen| seen.since)),
        }
    }

    /// Tells the holder of a lease that we ask for it, where that reads all rows seldom.
    pub(super) fn ask_holder(&self, row: &Lease) -> Option<(LeaseWrite, Purpose)> {
        let life = self.lives.get(row.holder()?).filter(|_| self.is_sparing())?;
        Some((ops::ask(&life.row.key, row.key.shard()), Purpose::Ask))
    }

    /// Gives up the leases that still name us and that we neither hold nor may take again.
    pub(super) fn give_up_lost(&mut self, now: Instant, seen_at: Instant) {
        if self.beat.is_none() || mutant::is_on(Mutant::LostLeaseKept) {
            return;
        }
        let may_take = self.phase == Phase::Running && self.has_room();
        let is_lost = |(key, seen): &(&LeaseKey, &Seen)| {
            let row = &seen.row;
            let is_left = row.token.is_some() && row.holder() == Some(&self.me);
            let ours =
                self.held.contains_key(*key) || self.busy.contains(*key) || self.doubts.contains_key(*key);
            is_left
                && !ours
                && (!may_take || row.checkpoint_owner.is_some())
                && self.is_expired(seen, seen_at)
        };
        let lost = self.seen.iter().filter(is_lost);
        let writes = lost.map(|(_, seen)| (ops::evict(&seen.row), Purpose::GiveBack)).collect();
        self.issue(now, writes);
    }

    /// Removes the rows of workers that have stood still for a discovery interval.
    pub(super) fn remove_dead_workers(&mut self, now: Instant) {
        let age = self.config.discovery_interval.max(self.expiry());
        let is_dead = |life: &&Seen| {
            let is_old = now.min(life.confirmed) >= life.since + age;
            (is_old || mutant::is_on(Mutant::WorkerRemovedEarly)) && !self.is_our_row(&life.row)
        };
        let dead = self.lives.values().filter(is_dead);
        let dead = dead.filter(|life| !self.busy.contains(&life.row.key));
        let writes = dead.map(|life| (ops::collect(&life.row), Purpose::RemoveWorker)).collect();
        self.issue(now, writes);
    }

    /// Forgets the row of a worker that was removed.
    pub(super) fn worker_removed(&mut self, key: &LeaseKey) {
        self.lives.retain(|_, life| life.row.key != *key);
    }

    fn remove_own_row(&mut self, now: Instant) {
        if self.phase != Phase::Stopping || !self.held.is_empty() {
            return;
        }
        let Some(beat) = self.beat.as_mut().filter(|beat| !beat.in_flight) else { return };
        if let Some(row) = beat.row.take() {
            self.issue(now, vec![(ops::collect(&row), Purpose::RemoveWorker)]);
        }
    }
}
