//! When to look. Where all rows cost no more than one, all are read each time. Where each row read is paid for, all are
//! read now and then, and in between by key only those that something hangs on: what is on its way to us, what is free,
//! and one lease (or the row) of each of two other workers, as a sign that these live. With a ring of workers each has two
//! that watch it, so that a worker that dies is noticed when its lease has stood still for the expiry; then all rows are
//! read.
//!
//! A hint of the store, and whatever makes another look worth while before its time, is answered by a look at all rows;
//! where these cost something they are limited in number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey, StoreError};

use super::{Action, Machine, Phase};
use crate::{LeaseWarning, worker_row};

/// The most rows that are read by key at a time.
const ROWS: usize = 100;
/// How many other workers a worker watches.
const WATCHED: usize = 2;
/// So many looks before their time may come one after the other;
const BURST: u32 = 3;
/// after that, they read so many rows a second, but one look each full interval is always allowed.
const EXTRA_ROWS: f64 = 100.0;

#[derive(Debug)]
pub(super) struct Watch {
    /// How often all rows are read.
    interval: Duration,
    /// When rows are read by key the next time.
    next: Option<Instant>,
    /// What is being read by key, and since when.
    under_way: Option<(Instant, Vec<LeaseKey>)>,
    /// When the newest look at all rows was taken in.
    looked_at: Option<Instant>,
    /// A look before its time is wanted.
    wanted: bool,
    /// Until when the looks before their time are paid for.
    paid_until: Option<Instant>,
    /// Leases of ours that somebody asks for, as our row as a worker says.
    asked_for: BTreeSet<LeaseKey>,
}

impl Watch {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            next: None,
            under_way: None,
            looked_at: None,
            wanted: false,
            paid_until: None,
            asked_for: BTreeSet::new(),
        }
    }

    /// A lease of ours is to be read, as it may be asked for.
    pub(super) fn asked_for(&mut self, key: LeaseKey) {
        self.asked_for.insert(key);
    }

    /// Whether these rows were read for us; since when.
    pub(super) fn answered(&mut self, keys: &[LeaseKey]) -> Option<Instant> {
        let (started, _) = self.under_way.take_if(|(_, asked)| asked == keys)?;
        Some(started)
    }
}

impl Machine {
    /// Says how often all rows are read; before the first look.
    pub(crate) fn look_at_all_rows_each(&mut self, interval: Duration) {
        self.watch.interval = interval;
    }

    /// Whether reading all rows costs more than reading a few.
    pub(super) fn is_sparing(&self) -> bool {
        self.watch.interval > self.config.look_interval
    }

    /// How long what others write can go unseen where reading all rows costs more than reading a few.
    pub(super) fn look_gap(&self) -> Duration {
        if self.is_sparing() { self.watch.interval } else { Duration::ZERO }
    }

    /// The time from one look at all rows to the next. Workers that started together should not go on looking at the same
    /// moments.
    pub(super) fn until_next_look(&mut self) -> Duration {
        let random = self.random.f64();
        if self.is_sparing() {
            // Not before the listing of the shards that reads all rows as well: three looks a minute, not four.
            self.watch.interval.mul_f64(1.02 + random * 0.01)
        } else {
            self.watch.interval.mul_f64(0.9 + random * 0.1)
        }
    }

    /// What is free is left to others for so long: they look as often as we do, give or take a tenth.
    pub(super) fn orphan_patience(&self) -> Duration {
        self.config.look_interval.mul_f64(0.8)
    }

    /// Some of what is free was left to others: looks again when they have had their time.
    pub(super) fn look_at_orphans(&mut self, seen_at: Instant) {
        let at = seen_at + self.orphan_patience();
        let next = if self.is_sparing() { &mut self.watch.next } else { &mut self.next_look };
        *next = next.map(|next| next.min(at));
    }

    /// Looks at all rows before the time, as soon as that is allowed.
    pub(super) fn want_look(&mut self) {
        self.watch.wanted = true;
    }

    /// All rows are being read.
    pub(super) fn look_begins(&mut self) {
        self.watch.wanted = false;
    }

    /// All rows were read.
    pub(super) fn watch_anew(&mut self, now: Instant) {
        self.watch.looked_at = Some(now);
        self.watch.next = Some(now + self.config.look_interval);
    }

    /// When looks and reads by key are due, beside the regular looks.
    pub(super) fn next_watch(&self) -> Option<Instant> {
        let wanted = self.watch.wanted.then(|| self.extra_look_at()).flatten();
        let rows = self.watch.next.filter(|_| self.is_sparing() && self.watch.under_way.is_none());
        wanted.into_iter().chain(rows).min()
    }

    /// How many looks before their time are paid for by so much time.
    fn extra_spacing(&self) -> Duration {
        let (shortest, longest) =
            (self.config.look_interval, self.watch.interval.max(self.config.look_interval));
        Duration::from_secs_f64(self.seen.len() as f64 / EXTRA_ROWS).clamp(shortest, longest)
    }

    /// When the next look before its time is allowed; `None` means at once.
    fn extra_look_at(&self) -> Option<Instant> {
        if self.phase == Phase::Stopping {
            return None;
        }
        self.watch.paid_until?.checked_sub(self.extra_spacing() * (BURST - 1))
    }

    /// Begins a look that is wanted, or reads the rows that something hangs on.
    pub(super) fn watch_rows(&mut self, now: Instant) {
        if self.looking {
            return;
        }
        if self.watch.wanted && self.extra_look_at().is_none_or(|at| at <= now) {
            self.watch.wanted = false;
            if self.next_look.is_some_and(|at| at > now) {
                let paid = self.watch.paid_until.map_or(now, |paid| paid.max(now));
                self.watch.paid_until = Some(paid + self.extra_spacing());
            }
            self.next_look = None;
        }
        let is_due = self.watch.next.is_some_and(|at| at <= now);
        if !self.is_sparing() || self.watch.under_way.is_some() || !is_due {
            return;
        }
        self.watch.next = Some(now + self.config.look_interval);
        if self.next_look.is_none_or(|at| at <= now) {
            // All rows are about to be read.
            return;
        }
        let keys = self.rows_to_watch(now);
        if !keys.is_empty() {
            self.watch.under_way = Some((now, keys.clone()));
            self.actions.push(Action::Read(keys));
        }
    }

    fn rows_to_watch(&mut self, now: Instant) -> Vec<LeaseKey> {
        let mut asked_for = std::mem::take(&mut self.watch.asked_for);
        asked_for.retain(|key| self.held.contains_key(key));
        if self.phase != Phase::Running {
            return asked_for.into_iter().collect();
        }
        let has_room = self.has_room();
        let is_of_interest = |row: &Lease, key: &LeaseKey| {
            if row.owner.as_ref() == Some(&self.me) {
                // Asked for, or ready to be begun.
                return true;
            }
            row.owner.is_none() && has_room && !self.is_blocked(row) && !self.is_resting_now(key, now)
        };
        let ours = |key: &LeaseKey| {
            self.held.contains_key(key) || self.busy.contains(key) || self.doubts.contains_key(key)
        };
        let rows = self
            .seen
            .iter()
            .filter(|(key, seen)| !seen.row.is_finished() && !ours(key) && is_of_interest(&seen.row, key));
        let mut keys: Vec<LeaseKey> = rows.map(|(key, _)| key.clone()).take(ROWS).collect();
        keys.extend(asked_for);
        keys.extend(self.signs_of_life(now));
        keys
    }

    fn is_resting_now(&self, key: &LeaseKey, now: Instant) -> bool {
        self.seen.get(key).is_some_and(|seen| Self::is_resting(&seen.row, seen, now))
    }

    /// One lease of each of the workers that follow us in the order of names, unless these have shown signs of life since
    /// all rows were read, or had no time for it.
    fn signs_of_life(&self, now: Instant) -> Vec<LeaseKey> {
        let (Some(looked_at), Some(saw_at)) = (self.watch.looked_at, self.saw_at) else { return Vec::new() };
        if now < saw_at + self.config.heartbeat_interval + self.config.look_interval {
            return Vec::new();
        }
        let mut workers: BTreeMap<&WorkerId, Option<LeaseKey>> = BTreeMap::new();
        for (key, seen) in &self.seen {
            let Some(holder) = seen.row.holder().filter(|holder| **holder != self.me) else { continue };
            if seen.row.is_finished() || self.busy.contains(key) || self.is_expired(seen, now) {
                continue;
            }
            let (sign, since) = self.sign_of_life(holder, key, now);
            let watched = workers.entry(holder).or_insert(Some(sign));
            if since > looked_at {
                *watched = None;
            }
        }
        let (before, after): (Vec<_>, Vec<_>) =
            workers.into_iter().partition(|(worker, _)| **worker < self.me);
        after.into_iter().chain(before).take(WATCHED).filter_map(|(_, key)| key).collect()
    }

    /// Rows were read by key.
    pub(super) fn watched(
        &mut self,
        now: Instant,
        started: Instant,
        rows: Result<Vec<Option<Lease>>, Arc<StoreError>>,
    ) {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                tracing::debug!(error = %error, "leases cannot be looked at by key");
                if let StoreError::Corrupt { key, .. } = &*error
                    && self.unreadable.insert((**key).clone())
                {
                    // A look at all rows gets along without it.
                    self.seen.remove(&**key);
                    self.warn(LeaseWarning::Unreadable(error));
                }
                return;
            }
        };
        for row in rows.into_iter().flatten() {
            if worker_row::is_one(&row.key) {
                self.watched_worker(now, started, row);
                continue;
            }
            let Some(before) = self.seen.get(&row.key) else { continue };
            if before.told_at.is_some_and(|told| told >= started) {
                continue;
            }
            let was_theirs = before.row.holder().is_some_and(|holder| *holder != self.me);
            let key = row.key.clone();
            self.look_at_held(now, started, &row);
            self.observe(row, now, None);
            self.confirm(&key, started);
            // Whether a worker's row speaks for it is seen by a look at all rows.
            let is_free = self
                .seen
                .get(&key)
                .is_some_and(|seen| seen.row.owner.is_none() || self.stands_still(seen, now));
            if was_theirs && is_free {
                // Its other leases are likely to be free as well.
                self.want_look();
            }
        }
        if self.phase == Phase::Running {
            self.balance(now, started, false);
        }
    }

    /// The row was seen as it is known, in what was read from `at` on.
    pub(super) fn confirm(&mut self, key: &LeaseKey, at: Instant) {
        let seen = if worker_row::is_one(key) {
            self.lives.values_mut().find(|life| life.row.key == *key)
        } else {
            self.seen.get_mut(key)
        };
        if let Some(seen) = seen {
            seen.confirmed = seen.confirmed.max(at);
        }
    }
}
