//! Who should have which lease: everything that is free is taken, and an uneven spread is evened out one lease at a
//! time by asking for it.
//!
//! Only leases that can be worked on count: not finished ones, not those that wait for their parents, not those that
//! rest. A worker asks only one that has at least two leases more than itself, so that no lease ever moves back. Where leases
//! are shared by their loads, `weigh.rs` says what is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey, TenureToken};

use super::observe::Seen;
use super::{Machine, Purpose};
use crate::mutant::{self, Mutant};
use crate::{load, ops};

/// What the rows say about the spread.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Ours, on the way to us, or asked for.
    pub(super) mine: Vec<LeaseKey>,
    /// Still ours, but on the way to others.
    leaving: usize,
    /// Ready to be begun by us, with nobody to wait for.
    addressed: Vec<LeaseKey>,
    /// Asked for, but the holder does not answer.
    overdue: Vec<LeaseKey>,
    /// Free to be taken by anybody.
    free: Vec<LeaseKey>,
    /// What other live workers have, or will have after hand-overs.
    pub(super) others: BTreeMap<WorkerId, Vec<LeaseKey>>,
}

impl Machine {
    /// Whether neither the row nor its holder has shown a sign of life within an expiry.
    pub(super) fn is_expired(&self, seen: &Seen, now: Instant) -> bool {
        self.stands_still(seen, now) && self.is_without_beat(seen, now)
    }

    /// Whether the row itself has not moved within an expiry.
    pub(super) fn stands_still(&self, seen: &Seen, now: Instant) -> bool {
        // What was not read since is not known to have stood still until now.
        now.min(seen.confirmed) >= seen.since + self.expiry()
    }

    /// Whether another lease may be held.
    pub(super) fn has_room(&self) -> bool {
        self.config.max_leases.is_none_or(|most| self.held.len() < most)
    }

    pub(super) fn expiry(&self) -> Duration {
        self.config.expiry / if mutant::is_on(Mutant::ExpiryHalved) { 2 } else { 1 }
    }

    pub(super) fn is_resting(row: &Lease, seen: &Seen, now: Instant) -> bool {
        !mutant::is_on(Mutant::RestIgnored)
            && row.owner.is_none()
            && row.cool_down.is_some_and(|cool_down| now < seen.since + cool_down.rest)
    }

    fn spread(&self, now: Instant) -> Spread {
        let mut spread = Spread::default();
        for (key, seen) in &self.seen {
            let row = &seen.row;
            if self.held.contains_key(key) || self.busy.contains(key) {
                // A lease that is about to be given up, or handed over, is the next owner's.
                let leaving = self.held.get(key).is_some_and(|held| {
                    held.hand_over.is_some() || held.is_ghost() || held.closing.is_some()
                });
                spread.leaving += usize::from(leaving);
                match &row.owner {
                    Some(owner) if leaving && *owner != self.me => {
                        spread.others.entry(owner.clone()).or_default().push(key.clone());
                    }
                    _ if leaving => {}
                    _ => spread.mine.push(key.clone()),
                }
                continue;
            }
            if row.is_finished() || self.is_blocked(row) || Self::is_resting(row, seen, now) {
                continue;
            }
            self.place(&mut spread, key, seen, now);
        }
        spread
    }

    /// Counts one lease that we do not hold and that can be worked on.
    fn place(&self, spread: &mut Spread, key: &LeaseKey, seen: &Seen, now: Instant) {
        let row = &seen.row;
        let expired = self.is_expired(seen, now);
        match (&row.owner, &row.checkpoint_owner) {
            (None, _) => spread.free.push(key.clone()),
            (Some(owner), Some(holder)) if *owner == self.me => {
                spread.mine.push(key.clone());
                if expired || seen.hand_over_since.is_some_and(|since| now >= since + self.patience()) {
                    spread.overdue.push(key.clone());
                } else {
                    spread.others.entry(holder.clone()).or_default();
                }
            }
            (Some(owner), None)
                if *owner == self.me && (row.token.is_none() || mutant::is_on(Mutant::SelfTakeOver)) =>
            {
                spread.mine.push(key.clone());
                spread.addressed.push(key.clone());
            }
            _ if expired => spread.free.push(key.clone()),
            (Some(owner), holder) => {
                let leases = spread.others.entry(owner.clone()).or_default();
                leases.push(key.clone());
                if let Some(holder) = holder {
                    spread.others.entry(holder.clone()).or_default();
                }
            }
        }
    }

    /// Takes what is free and asks for what is too much elsewhere, as a look showed it that began at `seen_at`: what
    /// is older than that is not known to have lasted until now. Nobody is asked when only some rows were read: what
    /// the others have may have changed since.
    pub(super) fn balance(&mut self, now: Instant, seen_at: Instant, of_all: bool) {
        if self.is_kcl_compatible() {
            return self.balance_with_kcl(now, seen_at, of_all);
        }
        let mut spread = self.spread(seen_at);
        let orphans = self.orphans(&spread.free, now);
        let others: usize = spread.others.values().map(Vec::len).sum();
        let mut mine = spread.mine.len();
        let runnable = mine + others + spread.free.len();
        // A worker without a row in the table is one of its workers, too, if it is us.
        let workers = spread.others.keys().filter(|owner| **owner != self.me).count() + 1;
        let target = runnable.div_ceil(workers);
        let room = self.config.max_leases.map_or(usize::MAX, |most| most.saturating_sub(spread.leaving));
        let mut writes = Vec::new();
        while mine > room
            && let Some(key) = spread.addressed.pop()
        {
            // An answer to a request that came too late.
            mine -= 1;
            if let Some(seen) = self.seen.get(&key) {
                writes.push((ops::decline(&seen.row), Purpose::GiveBack));
            }
        }
        if !of_all && !spread.addressed.is_empty() && mine < target.min(room) {
            // What was asked for has come: the next one can be asked for.
            self.want_look();
        }
        let mut taken: Vec<LeaseKey> = spread.addressed.drain(..).chain(spread.overdue.drain(..)).collect();
        self.random.shuffle(&mut spread.free);
        let mut left = false;
        for key in &spread.free {
            // Up to the target at once; beyond it only what nobody has taken since the last look.
            let is_left = orphans.contains(key) && !mutant::is_on(Mutant::OrphansLeft);
            if (mine < room || mutant::is_on(Mutant::LimitIgnored)) && (mine < target || is_left) {
                mine += 1;
                taken.push(key.clone());
            } else {
                left |= mine < room;
            }
        }
        if left {
            self.look_at_orphans(seen_at);
        }
        for key in taken {
            let token = self.fresh_token();
            let Some(seen) = self.seen.get(&key) else { continue };
            let mut write = ops::take(&seen.row, &self.me, token);
            if self.load_window().is_none() {
                load::forget(&seen.row, &mut write);
            }
            writes.push((write, Purpose::Take { token }));
        }
        if of_all
            && spread.free.is_empty()
            && !mutant::is_on(Mutant::NeverAsks)
            && let Some(key) = self.wanted(now, &spread, mine, target, room)
            && let Some(seen) = self.seen.get(&key)
        {
            tracing::debug!(%key, "lease of a busier worker asked for");
            writes.push((ops::request(&seen.row, &self.me), Purpose::Request));
            writes.extend(self.ask_holder(&seen.row));
        }
        self.issue(now, writes);
    }

    pub(super) fn fresh_token(&mut self) -> TenureToken {
        if mutant::is_on(Mutant::TokenReused) {
            return TenureToken::from_random(self.me.as_str().len() as u128);
        }
        TenureToken::from_random(self.random.u128(..))
    }

    /// A lease to ask for.
    fn wanted(
        &mut self,
        now: Instant,
        spread: &Spread,
        mine: usize,
        target: usize,
        room: usize,
    ) -> Option<LeaseKey> {
        if self.weighs(spread, now) {
            return if mine < room { self.choose_by_load(spread, now) } else { None };
        }
        let wants = mine < room.min(target) || mutant::is_on(Mutant::NoDeadBand);
        if wants { self.choose(spread, mine) } else { None }
    }

    /// A lease of the worker with the most leases, if that has at least two more than we.
    fn choose(&mut self, spread: &Spread, mine: usize) -> Option<LeaseKey> {
        let most =
            spread.others.iter().filter(|(owner, _)| **owner != self.me).map(|(_, leases)| leases.len());
        let band = if mutant::is_on(Mutant::NoDeadBand) { 0 } else { 2 };
        let most = most.max().filter(|most| *most >= mine + band)?;
        let fitting: Vec<&LeaseKey> = spread
            .others
            .iter()
            .filter(|(owner, leases)| **owner != self.me && leases.len() == most)
            .flat_map(|(_, leases)| leases)
            .filter(|key| self.can_be_asked_for(key))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let chosen = self.random.usize(..fitting.len());
        Some(fitting[chosen].clone())
    }

    /// Not what is already on its way from somewhere else, or what its new owner has not begun with.
    pub(super) fn can_be_asked_for(&self, key: &LeaseKey) -> bool {
        let row = self.seen.get(key).map(|seen| &seen.row);
        let is_settled = row.is_some_and(|row| row.checkpoint_owner.is_none() && row.token.is_some());
        is_settled && !self.held.contains_key(key)
    }

    /// What is free and was so a look ago.
    pub(super) fn orphans(&mut self, free: &[LeaseKey], now: Instant) -> BTreeSet<LeaseKey> {
        let free: BTreeSet<&LeaseKey> = free.iter().collect();
        let patience = self.orphan_patience();
        let mut orphans = BTreeSet::new();
        for (key, seen) in &mut self.seen {
            if !free.contains(key) {
                seen.free_since = None;
            } else if now >= *seen.free_since.get_or_insert(now) + patience {
                orphans.insert(key.clone());
            }
        }
        orphans
    }
}
