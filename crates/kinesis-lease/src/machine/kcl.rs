//! Who should have which lease on a table that workers of the KCL 2.x use, too. They know no hand-over: whoever has too
//! few leases takes one of the most loaded worker, and that worker learns it when its next write is refused.
//!
//! The target, the limit and the conditions are the KCL's. It differs in these points:
//! - Leases that nobody holds and that cannot be worked on (finished, waiting for their parents, resting) are left alone
//!   and count for nobody. Workers of the KCL take them, too, and then they count for those.
//! - Leases that were never owned are taken up to the target, and not all by the first worker that sees them.
//! - A lease of a worker of this library is asked for instead of taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};

use super::observe::Seen;
use super::{Machine, Phase, Purpose};
use crate::{Coordination, LeaseWarning, ops};

/// A lease that nobody has renewed for so many expiries is taken whatever the target is, like the KCL's very old leases;
/// without a worker of the KCL it is enough that nobody has taken it since the last look.
const VERY_OLD: u32 = 3;

#[cfg(any(test, feature = "sim"))]
thread_local! {
    /// How the machines that this thread makes share leases, so that tests can simulate fleets of either kind.
    pub(super) static SIMULATED: std::cell::Cell<Coordination> = const { std::cell::Cell::new(Coordination::Native) };
}

/// Whether they share them as the KCL does.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn simulates_kcl() -> bool {
    SIMULATED.get() == Coordination::KclCompatible
}

/// What the taking beside workers of the KCL remembers.
#[derive(Debug, Default)]
pub(super) struct Kcl {
    coordination: Coordination,
    /// When a lease was last taken from a worker of the KCL that lives.
    stole_at: Option<Instant>,
    /// What was asked for, and when: a row under our name and without a token is then ready for us, and not that of a worker
    /// of the KCL with our name.
    asked: BTreeMap<LeaseKey, Instant>,
    /// Whether it was told that a worker of the KCL is there, or has our name.
    told: bool,
}

impl Kcl {
    #[cfg(test)]
    pub(super) fn simulated() -> Self {
        Self { coordination: SIMULATED.get(), ..Self::default() }
    }

    /// A lease that we held was released, to ourselves if whoever had asked for it does not want it any more.
    pub(super) fn handed_back(&mut self, now: Instant, me: &WorkerId, row: &Lease) {
        if row.owner.as_ref() == Some(me) && row.token.is_none() && !row.is_finished() {
            self.asked.insert(row.key.clone(), now);
        }
    }

    /// Whether a row under our name and without a token is ours to begin with.
    pub(super) fn is_asked_for(&self, key: &LeaseKey) -> bool {
        self.coordination == Coordination::Native || self.asked.contains_key(key)
    }
}

/// What a live worker other than this one has.
#[derive(Debug, Default)]
struct Load {
    /// Everything that names it as the owner, also what is finished.
    leases: usize,
    /// What can be taken from it, or asked for.
    workable: Vec<LeaseKey>,
}

/// What the rows say about the spread, counted as the KCL counts.
#[derive(Debug, Default)]
struct View {
    /// Ours, on the way to us, or asked for.
    mine: usize,
    /// Still ours, but on the way to others.
    leaving: usize,
    /// Ready to be begun by us, with nobody to wait for.
    addressed: Vec<LeaseKey>,
    /// Asked for, but the holder does not answer.
    overdue: Vec<LeaseKey>,
    /// Free to be taken by anybody.
    free: Vec<LeaseKey>,
    /// What of that has been so for very long.
    very_old: BTreeSet<LeaseKey>,
    /// Whether a worker of the KCL holds a lease.
    beside_java: bool,
    others: BTreeMap<WorkerId, Load>,
    /// What Java has taken while we were handing it over.
    left_behind: Vec<LeaseKey>,
}

impl Machine {
    /// Says how leases are shared; before the first look.
    pub(crate) fn coordinate(&mut self, coordination: Coordination) {
        self.kcl.coordination = coordination;
    }

    pub(super) fn is_kcl_compatible(&self) -> bool {
        self.kcl.coordination == Coordination::KclCompatible
    }

    /// Whether somebody holds the lease, as far as we can tell.
    pub(super) fn is_alive(&self, seen: &Seen, now: Instant) -> bool {
        seen.row.owner.is_some() && !self.is_expired(seen, now)
    }

    /// Takes what is free, and a part of what is too much elsewhere, as a look showed it that began at `seen_at`. Nothing
    /// is taken from others when only some rows were read: what they have may have changed since.
    pub(super) fn balance_with_kcl(&mut self, now: Instant, seen_at: Instant, of_all: bool) {
        let mut view = self.view(seen_at);
        let target = view.target(&self.me, self.config.max_leases);
        let room = self.config.max_leases.map_or(usize::MAX, |most| most.saturating_sub(view.leaving));
        let mut mine = view.mine;
        let mut writes = Vec::new();
        while mine > room
            && let Some(key) = view.addressed.pop()
        {
            // An answer to a request that came too late.
            mine -= 1;
            writes.extend(self.write_to(&key, Purpose::GiveBack, ops::decline));
        }
        if !of_all && !view.addressed.is_empty() && mine < target.min(room) {
            // What was asked for has come: the next one can be asked for.
            self.want_look();
        }
        // Only workers of the KCL look as seldom as that.
        let orphans = self.orphans(&view.free, now);
        if !view.beside_java {
            view.very_old.extend(orphans);
        }
        let mut taken: Vec<LeaseKey> = view.addressed.drain(..).chain(view.overdue.drain(..)).collect();
        let mut left = false;
        self.random.shuffle(&mut view.free);
        // What has waited for the longest time comes first, and for that the target does not count.
        view.free.sort_by_key(|key| !view.very_old.contains(key));
        for key in &view.free {
            if mine < room && (mine < target || view.very_old.contains(key)) {
                mine += 1;
                taken.push(key.clone());
            } else {
                left |= mine < room;
            }
        }
        if left && !view.beside_java {
            self.look_at_orphans(seen_at);
        }
        for key in taken {
            let token = self.fresh_token();
            let me = self.me.clone();
            writes.extend(self.write_to(&key, Purpose::Take { token }, |row| ops::take(row, &me, token)));
        }
        for key in &view.left_behind {
            writes.extend(self.write_to(key, Purpose::GiveBack, ops::forget_request));
        }
        let need = target.min(room).saturating_sub(mine);
        if of_all && need > 0 && view.free.is_empty() {
            writes.extend(self.take_from_others(now, &mut view, target, need));
        }
        self.issue(now, writes);
    }

    fn write_to(
        &self,
        key: &LeaseKey,
        purpose: Purpose,
        write: impl FnOnce(&Lease) -> LeaseWrite,
    ) -> Option<(LeaseWrite, Purpose)> {
        self.seen.get(key).map(|seen| (write(&seen.row), purpose))
    }

    /// Counts every lease for its owner.
    fn view(&mut self, now: Instant) -> View {
        let mut view = View::default();
        let (seen, held) = (&self.seen, &self.held);
        self.kcl.asked.retain(|key, at| {
            let still = seen.get(key).is_some_and(|seen| seen.row.owner.as_ref() == Some(&self.me));
            // A request may arrive late.
            let is_fresh = now < *at + self.config.expiry;
            (still || is_fresh || self.busy.contains(key)) && !held.contains_key(key)
        });
        // Also what was asked for by a write whose answer was lost.
        let asked = |(_, seen): &(&LeaseKey, &Seen)| {
            let row = &seen.row;
            row.owner.as_ref() == Some(&self.me) && row.checkpoint_owner.is_some() && row.token.is_some()
        };
        let asked: Vec<LeaseKey> = seen.iter().filter(asked).map(|(key, _)| key.clone()).collect();
        for key in asked {
            self.kcl.asked.entry(key).or_insert(now);
        }
        for (key, seen) in &self.seen {
            let row = &seen.row;
            if self.held.contains_key(key) || (self.busy.contains(key) && !row.is_finished()) {
                let leaving = self.held.get(key).is_some_and(|held| {
                    held.hand_over.is_some() || held.is_ghost() || held.closing.is_some()
                });
                view.leaving += usize::from(leaving);
                match &row.owner {
                    Some(owner) if leaving && *owner != self.me => view.load(owner).leases += 1,
                    _ if leaving => {}
                    _ => view.mine += 1,
                }
                continue;
            }
            self.place_with_kcl(&mut view, key, seen, now);
        }
        view
    }

    /// Counts one lease that we do not hold.
    fn place_with_kcl(&self, view: &mut View, key: &LeaseKey, seen: &Seen, now: Instant) {
        let row = &seen.row;
        let is_workable = !row.is_finished() && !self.is_blocked(row) && !Self::is_resting(row, seen, now);
        let handing_over = row.checkpoint_owner.is_some() && row.token.is_some();
        match &row.owner {
            Some(owner) if *owner == self.me && handing_over => {
                view.mine += 1;
                let patience = self.config.hand_over_timeout + self.config.expiry;
                let waited = seen.hand_over_since.is_some_and(|since| now >= since + patience);
                if waited || self.is_expired(seen, now) {
                    view.overdue.push(key.clone());
                }
            }
            Some(owner)
                if *owner == self.me
                    && row.token.is_none()
                    && is_workable
                    && self.kcl.asked.contains_key(key) =>
            {
                view.mine += 1;
                view.addressed.push(key.clone());
            }
            Some(owner) if self.is_alive(seen, now) => {
                if row.checkpoint_owner.as_ref() == Some(&self.me) && row.token.is_none() {
                    view.left_behind.push(key.clone());
                }
                view.beside_java |= row.token.is_none();
                let load = view.load(owner);
                load.leases += 1;
                if is_workable && !handing_over {
                    load.workable.push(key.clone());
                }
            }
            _ if is_workable => {
                view.free.push(key.clone());
                if now >= seen.since + self.config.expiry * VERY_OLD {
                    view.very_old.insert(key.clone());
                }
            }
            _ => {}
        }
    }

    /// Takes from the most loaded worker, or asks it if it is one of ours.
    fn take_from_others(
        &mut self,
        now: Instant,
        view: &mut View,
        target: usize,
        need: usize,
    ) -> Vec<(LeaseWrite, Purpose)> {
        let me = self.me.clone();
        let mut loads: Vec<&mut Load> =
            view.others.iter_mut().filter(|(owner, _)| **owner != me).map(|(_, load)| load).collect();
        self.random.shuffle(&mut loads);
        loads.sort_by_key(|load| std::cmp::Reverse(load.leases));
        // All that it has may be finished; then it is the next one's turn.
        let Some(most) = loads.into_iter().find(|load| !load.workable.is_empty()) else { return Vec::new() };
        let count = part_to_take(need, most.leases, target, self.config.max_leases_to_steal);
        self.random.shuffle(&mut most.workable);
        let mut writes = Vec::new();
        let may_steal = self.may_steal(now);
        for key in most.workable.iter().take(count) {
            if self.seen.get(key).is_some_and(|seen| seen.row.token.is_some()) {
                tracing::debug!(%key, "lease of a busier worker asked for");
                writes.extend(self.write_to(key, Purpose::Request, |row| ops::request(row, &me)));
                self.kcl.asked.insert(key.clone(), now);
            } else if may_steal {
                tracing::debug!(%key, "lease of a busier worker of the KCL taken");
                let token = self.fresh_token();
                let purpose = Purpose::Steal { token, again: false };
                writes.extend(self.write_to(key, purpose, |row| ops::take(row, &me, token)));
                self.kcl.stole_at = Some(now);
            }
        }
        writes
    }

    /// The KCL takes from live workers once in two expiries. Looks come when they come, give or take half of one.
    fn may_steal(&self, now: Instant) -> bool {
        let slack = self.config.look_interval / 2;
        self.kcl.stole_at.is_none_or(|at| now + slack >= at + self.config.steal_interval())
    }

    /// A taking from a live worker ended. When it was refused because the worker had written in between, it is made once
    /// more with what the row is now.
    pub(super) fn steal_ended(
        &mut self,
        now: Instant,
        key: &LeaseKey,
        token: TenureToken,
        again: bool,
        started: Instant,
        result: Result<Outcome, Arc<StoreError>>,
    ) {
        if let Ok(Outcome::Refused { current: Some(row) }) = &result {
            self.busy.remove(key);
            let is_java = row.token.is_none() && row.owner.as_ref().is_some_and(|owner| *owner != self.me);
            if is_java && !again && !row.is_finished() && self.phase == Phase::Running {
                let write = ops::take(row, &self.me, token);
                return self.issue(now, vec![(write, Purpose::Steal { token, again: true })]);
            }
            self.kcl.stole_at = None;
        }
        self.take_ended(now, key, token, started, result);
    }

    /// Only workers of the KCL count on in rows without a token.
    pub(super) fn notice_kcl(&mut self, row: &Lease) {
        let Some(seen) = self.seen.get(&row.key) else { return };
        let Some(owner) = row.owner.as_ref().filter(|_| !self.kcl.told) else { return };
        let without_token = row.token.is_none() && seen.row.token.is_none();
        let same_owner = seen.row.owner.as_ref() == Some(owner) && row.checkpoint_owner.is_none();
        let ours = self.held.contains_key(&row.key) || self.busy.contains(&row.key);
        if !without_token || !same_owner || ours || row.counter <= seen.row.counter {
            return;
        }
        let warning = match self.kcl.coordination {
            Coordination::KclCompatible if *owner == self.me => self.namesake(row),
            Coordination::KclCompatible => return,
            Coordination::Native => LeaseWarning::KclWorker { worker: owner.clone(), key: row.key.clone() },
        };
        self.kcl.told = true;
        self.warn(warning);
    }
}

impl View {
    fn load(&mut self, owner: &WorkerId) -> &mut Load {
        self.others.entry(owner.clone()).or_default()
    }

    /// How many leases a worker should have: the KCL's formula.
    fn target(&self, me: &WorkerId, max_leases: Option<usize>) -> usize {
        let others: usize = self.others.values().map(|load| load.leases).sum();
        let leases = self.mine + others + self.free.len();
        let workers = self.others.keys().filter(|owner| *owner != me).count() + 1;
        let target = if workers >= leases { 1 } else { leases.div_ceil(workers) };
        target.min(max_leases.unwrap_or(usize::MAX))
    }
}

/// How many leases are taken from a worker that has `leases`: the KCL's formula.
fn part_to_take(need: usize, leases: usize, target: usize, most: usize) -> usize {
    if leases < target {
        return 0;
    }
    let count = need.min(leases - target);
    let count = if count == 0 && need > 1 { 1 } else { count };
    count.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the KCL's algorithm: what is above the target, at least one if two are missing, and the limit.
    #[test]
    fn the_part_to_take_is_the_kcls() {
        for ((need, leases, target, most), count) in [
            ((3, 10, 4, 1), 1),
            ((3, 10, 4, 9), 3),
            ((5, 6, 4, 9), 2),
            ((1, 4, 4, 9), 0),
            ((2, 4, 4, 9), 1),
            ((2, 3, 4, 9), 0),
        ] {
            assert_eq!(part_to_take(need, leases, target, most), count, "{need} {leases} {target} {most}");
        }
    }

    #[test]
    fn the_target_is_the_kcls() {
        let me = WorkerId::new("me").unwrap();
        let view = |mine: usize, others: &[usize]| {
            let load = |(number, leases): (usize, &usize)| {
                let owner = WorkerId::new(format!("w{number}")).unwrap();
                (owner, Load { leases: *leases, ..Load::default() })
            };
            View { mine, others: others.iter().enumerate().map(load).collect(), ..View::default() }
        };
        assert_eq!(view(0, &[4]).target(&me, None), 2);
        assert_eq!(view(0, &[5]).target(&me, None), 3);
        assert_eq!(view(0, &[1, 1]).target(&me, None), 1, "more workers than leases");
        assert_eq!(view(0, &[]).target(&me, None), 1);
        assert_eq!(view(0, &[9]).target(&me, Some(2)), 2);
    }
}
