//! What we know of all rows, and since when they have looked like that on our own clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::lease::{Lease, LeaseKey, StoreError, TenureToken};
use kinesis_core::{ShardId, WorkerId};

use super::held::Held;
use super::{Action, Look, Machine, Phase, Purpose};
use crate::mutant::{self, Mutant};
use crate::{LeaseWarning, LossReason, ops, worker_row};

/// A row and how long it has looked like that.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) row: Lease,
    /// When it was first seen.
    pub(super) first_seen: Instant,
    /// Since when it is known to be of the present tenure.
    pub(super) tenure_since: Instant,
    /// When it was seen to go from one worker to another.
    pub(super) moved_at: Option<Instant>,
    /// Since when its counter stands still.
    pub(super) since: Instant,
    /// Since when looks have found it free to take.
    pub(super) free_since: Option<Instant>,
    /// Since when the same workers have been handing it over.
    pub(super) hand_over_since: Option<Instant>,
    /// How often its counter moved under our name and not by us.
    foreign_moves: u8,
    /// When a write of ours told us; an older look knows less.
    pub(super) told_at: Option<Instant>,
    /// When it was last seen like that: until then it is known to have stood still.
    pub(super) confirmed: Instant,
    /// Whether a look at all rows has shown it, and with it the rows of its parents.
    pub(super) among_all: bool,
}

/// Moves of a counter under our name that are not ours, until a second worker is suspected.
const NAMESAKE_MOVES: u8 = 3;

/// What changes with every sign of life.
fn pulse(row: &Lease) -> (u64, u64, Option<TenureToken>) {
    (row.counter, row.epoch, row.token)
}

fn owners(row: &Lease) -> (Option<&WorkerId>, Option<&WorkerId>) {
    (row.owner.as_ref(), row.checkpoint_owner.as_ref())
}

impl Seen {
    pub(super) fn new(row: Lease, now: Instant, told_at: Option<Instant>) -> Self {
        let hand_over_since = row.checkpoint_owner.is_some().then_some(now);
        let since = if mutant::is_on(Mutant::FirstSightExpired) {
            // duration-ok: a fault for the simulation to find
            now.checked_sub(Duration::from_secs(60)).unwrap_or(now)
        } else {
            now
        };
        Self {
            row,
            first_seen: now,
            tenure_since: now,
            moved_at: None,
            since,
            free_since: None,
            hand_over_since,
            foreign_moves: 0,
            told_at,
            confirmed: now,
            among_all: false,
        }
    }

    /// Counts a row under our name that was not written by us: whether it is the one that shows that there is a second
    /// worker. Fewer may be late writes of a tenure that we have lost.
    pub(super) fn shows_namesake(&mut self, row: &Lease) -> bool {
        let moved = row.token.is_some() && row.token == self.row.token && row.counter > self.row.counter;
        self.foreign_moves = self.foreign_moves.saturating_add(u8::from(moved));
        moved && self.foreign_moves == NAMESAKE_MOVES
    }

    pub(super) fn update(&mut self, row: Lease, now: Instant, told_at: Option<Instant>) {
        let moved = pulse(&self.row) != pulse(&row) && !mutant::is_on(Mutant::MovesIgnored);
        if moved || mutant::is_on(Mutant::ExpiryRestarted) {
            self.since = now;
            self.free_since = None;
        }
        if self.row.epoch != row.epoch {
            self.tenure_since = now;
        }
        if self.row.holder().zip(row.holder()).is_some_and(|(before, after)| before != after) {
            self.moved_at = Some(now);
        }
        if row.checkpoint_owner.is_none() {
            self.hand_over_since = None;
        } else if self.hand_over_since.is_none() || owners(&self.row) != owners(&row) {
            self.hand_over_since = Some(now);
        }
        self.row = row;
        self.told_at = told_at.or(self.told_at);
    }
}

impl Machine {
    /// Keeps a row; recognises a taking of ours whose outcome was unknown.
    pub(super) fn observe(&mut self, row: Lease, now: Instant, told_at: Option<Instant>) {
        if worker_row::is_one(&row.key) {
            return self.observe_worker(row, now, told_at);
        }
        if let Some(doubt) = self.doubts.get(&row.key)
            && row.token == Some(doubt.token)
            // Also when somebody has asked for it meanwhile.
            && row.holder() == Some(&self.me)
        {
            let (token, started) = (doubt.token, doubt.started);
            self.begin_tenure(now, row.clone(), token, started);
        }
        self.notice_namesake(&row);
        self.notice_kcl(&row);
        match self.seen.get_mut(&row.key) {
            Some(seen) => seen.update(row, now, told_at),
            None => {
                self.seen.insert(row.key.clone(), Seen::new(row, now, told_at));
            }
        }
    }

    /// A counter that moves under our name, and not by us, is that of a second worker.
    fn notice_namesake(&mut self, row: &Lease) {
        let ours = self.held.contains_key(&row.key)
            || self.busy.contains(&row.key)
            || self.doubts.contains_key(&row.key);
        if ours || row.holder() != Some(&self.me) {
            return;
        }
        if self.seen.get_mut(&row.key).is_some_and(|seen| seen.shows_namesake(row)) {
            let warning = self.namesake(row);
            self.warn(warning);
        }
    }

    /// Another worker of our name has a row.
    pub(super) fn namesake(&self, row: &Lease) -> LeaseWarning {
        LeaseWarning::Namesake {
            worker: self.me.clone(),
            key: row.key.clone(),
            token: row.token,
            ours: self.held.values().next().map(|held| held.token),
        }
    }

    pub(super) fn looked(&mut self, now: Instant, look: Result<Look, Arc<StoreError>>) {
        self.looking = false;
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                self.warn(LeaseWarning::Look(Arc::clone(&error)));
                let delay = self.look_backoff.next_delay().max(error.retry_after().unwrap_or_default());
                self.next_look = Some(now + delay);
                self.look_again = false;
                return;
            }
        };
        self.look_backoff.reset();
        self.saw(now, look);
    }

    /// Takes in what all rows look like, and acts upon it.
    pub(super) fn saw(&mut self, now: Instant, look: Look) {
        if self.saw_at.is_some_and(|at| look.started < at) {
            // Of a discovery, and overtaken: what is older than what is known would look like a change.
            return;
        }
        self.saw_at = Some(look.started);
        let next = look.started + self.until_next_look();
        self.next_look = (!std::mem::take(&mut self.look_again)).then_some(next);
        self.watch_anew(now);
        self.keep_unreadable(look.unreadable);
        let (workers, rows): (Vec<Lease>, Vec<Lease>) =
            look.rows.into_iter().partition(|row| worker_row::is_one(&row.key));
        self.saw_workers(now, look.started, workers);
        let found: BTreeSet<&LeaseKey> = rows.iter().map(|row| &row.key).collect();
        let vanished = |(key, held): &(&LeaseKey, &Held)| {
            !found.contains(key) && !held.in_flight() && held.valid_from < look.started
        };
        let vanished: Vec<LeaseKey> =
            self.held.iter().filter(vanished).map(|(key, _)| (*key).clone()).collect();
        let is_older = |seen: &Seen| seen.told_at.is_some_and(|told| told >= look.started);
        self.seen.retain(|key, seen| found.contains(key) || is_older(seen));
        for key in vanished {
            // A listing makes the row anew.
            self.lose(&key, LossReason::Deleted);
            self.actions.push(Action::Discover);
        }
        for row in rows {
            let key = row.key.clone();
            if !self.seen.get(&key).is_some_and(is_older) {
                self.look_at_held(now, look.started, &row);
                self.observe(row, now, None);
                self.confirm(&key, look.started);
            }
            self.seen.entry(key).and_modify(|seen| seen.among_all = true);
        }
        self.doubts.retain(|_, doubt| now < doubt.started + self.config.expiry);
        self.unsettled.retain(|_, at| *at > look.started);
        self.give_up_lost(now, look.started);
        match self.phase {
            Phase::Running => self.balance(now, look.started, true),
            Phase::NotTaking => {}
            Phase::Stopping if mutant::is_on(Mutant::TakesWhileStopping) => {
                self.balance(now, look.started, true)
            }
            Phase::Stopping if mutant::is_on(Mutant::RequestsLeft) => {}
            Phase::Stopping => {
                self.give_back(now);
                if !self.unsettled.is_empty() {
                    self.look_soon();
                }
            }
        }
    }

    /// A look that began at `started` can tell earlier than the next renewal that a lease is asked for or taken.
    pub(super) fn look_at_held(&mut self, now: Instant, started: Instant, row: &Lease) {
        let Some(held) = self.held.get_mut(&row.key) else { return };
        if row.token == Some(held.token) {
            held.row.owner.clone_from(&row.owner);
            held.row.checkpoint_owner.clone_from(&row.checkpoint_owner);
            held.noted(started);
            self.notice_hand_over(now, &row.key);
        } else if row.epoch > held.row.epoch && !held.in_flight() {
            // Reads may be old, but epochs never go back.
            self.refused(now, &row.key, started, Some(row.clone()));
        }
    }

    fn keep_unreadable(&mut self, errors: Vec<Arc<StoreError>>) {
        let mut unreadable = BTreeSet::new();
        for error in errors {
            if let StoreError::Corrupt { key, .. } = &*error {
                unreadable.insert((**key).clone());
                if self.unreadable.contains(key) {
                    continue;
                }
            }
            self.warn(LeaseWarning::Unreadable(error));
        }
        self.unreadable = unreadable;
    }

    /// Whether a shard has a parent that is not finished. Rows decide: a parent without a row does not count, once a look
    /// at all rows has shown the shard's. A row that only a write showed may have a parent whose row we have not seen yet.
    pub(super) fn is_blocked(&self, row: &Lease) -> bool {
        let among_all = self.seen.get(&row.key).is_some_and(|seen| seen.among_all);
        let is_unfinished = |parent: &ShardId| {
            let key = row.key.sibling(parent.clone());
            let finished = self.seen.get(&key).map_or(among_all, |seen| seen.row.is_finished());
            self.unreadable.contains(&key) || !finished
        };
        if mutant::is_on(Mutant::ChildEarly) {
            return false;
        }
        if mutant::is_on(Mutant::ChildAfterOneParent) {
            return !row.parents.is_empty() && row.parents.iter().all(is_unfinished);
        }
        row.parents.iter().any(is_unfinished)
    }

    /// Takes back what we asked other workers for, and gives back what they handed over.
    pub(super) fn give_back(&mut self, now: Instant) {
        let mut writes = Vec::new();
        for (key, seen) in &self.seen {
            let ours = seen.row.owner.as_ref() == Some(&self.me);
            if !ours || self.held.contains_key(key) || self.busy.contains(key) {
                continue;
            }
            if seen.row.checkpoint_owner.is_some() {
                writes.push((ops::withdraw(&seen.row), Purpose::GiveBack));
            } else if seen.row.token.is_none() && self.kcl.is_asked_for(key) {
                writes.push((ops::decline(&seen.row), Purpose::GiveBack));
            }
        }
        self.issue(now, writes);
    }
}
