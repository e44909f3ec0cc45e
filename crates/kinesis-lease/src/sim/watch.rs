//! What must be true of a whole fleet at any time, looked at every second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kinesis_core::lease::{Lease, TenureToken};

use super::fleet::Fleet;
use super::key;
use super::worker::Worker;

/// What the checks remember.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The first thing that went wrong.
    pub(super) violation: Option<String>,
    /// Nothing but crashes, stops and reshards happens in this run.
    pub(super) gentle: bool,
    /// Faults may begin.
    pub(super) storm: bool,
    /// When each call went wrong, in order.
    pub(super) faults: Vec<Duration>,
    /// Who said that a shard is finished.
    pub(super) ended_by: BTreeMap<u32, usize>,
    /// Children of parents that ended on different workers.
    pub(super) across: BTreeSet<u32>,
    /// Takings whose replies did not come.
    pub(super) unanswered: BTreeSet<TenureToken>,
    /// The last crash, pause or cut, or its end.
    pub(super) disturbed_at: Duration,
    unowned_since: BTreeMap<u32, Duration>,
    epochs: BTreeMap<u32, u64>,
    tokens: BTreeSet<TenureToken>,
    /// How often each shard was begun with.
    begins: BTreeMap<u32, u32>,
}

impl Watch {
    /// The fleet is disturbed until then.
    pub(super) fn until(&mut self, until: Duration) {
        self.disturbed_at = self.disturbed_at.max(until);
    }

    /// Why a tenure cannot be a new one. `made_anew`: its row may have been removed before.
    pub(super) fn problem_of_tenure(
        &self,
        shard: u32,
        epoch: u64,
        token: TenureToken,
        made_anew: bool,
    ) -> Option<String> {
        if self.tokens.contains(&token) {
            return Some("its token was used before".into());
        }
        let last = self.epochs.get(&shard).copied().unwrap_or(0);
        (epoch <= last && !made_anew).then(|| format!("epoch {epoch} comes after {last}"))
    }

    pub(super) fn begun(&mut self, shard: u32, epoch: u64, token: TenureToken) {
        self.tokens.insert(token);
        self.epochs.insert(shard, epoch);
        *self.begins.entry(shard).or_default() += 1;
    }

    fn faults_since(&self, since: Duration) -> u32 {
        let count = self.faults.len() - self.faults.partition_point(|at| *at < since);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl Fleet {
    pub(super) fn disturbed(&mut self) {
        self.watch.until(self.now);
    }

    pub(super) fn has_row(&self, shard: u32) -> bool {
        self.table.rows.contains_key(&key(shard))
    }

    fn is_blocked(&self, row: &Lease) -> bool {
        let is_done = |parent| self.table.rows.get(&row.key.sibling(parent)).is_none_or(Lease::is_finished);
        !row.parents.iter().cloned().all(is_done)
    }

    /// The shards that can be worked on: they have an unfinished row, which waits for nothing.
    pub(crate) fn runnable(&self) -> BTreeSet<u32> {
        let is_open = |row: &&Lease| !row.is_finished() && !self.is_blocked(row);
        self.table.rows.values().filter(is_open).map(|row| super::number(&row.key)).collect()
    }

    pub(super) fn is_owned(&self, shard: u32) -> bool {
        let key = key(shard);
        self.workers
            .values()
            .any(|worker| worker.paused_until <= self.now && worker.believes.contains_key(&key))
    }

    /// How long a crash or pause leaves traces: leases of the dead, and leases on their way to them.
    pub(super) fn aftermath(&self) -> Duration {
        let config = &self.settings.config;
        let hand_over = if self.watch.gentle { Duration::ZERO } else { config.hand_over_timeout };
        config.expiry.mul_f64(1.1) + Duration::from_secs(3) + hand_over + self.sparing()
    }

    /// How much longer everything takes where all rows are read seldom.
    fn sparing(&self) -> Duration {
        self.settings.config.full_look_interval.map_or(Duration::ZERO, |interval| interval.mul_f64(1.1))
    }

    /// How long a shard may be without an owner: one expiry and two looks of the slowest clock.
    fn bound(&self, since: Duration, after_crash: bool) -> Duration {
        let config = &self.settings.config;
        let mut expiry = if after_crash { config.expiry } else { Duration::ZERO };
        if after_crash && !self.watch.gentle {
            // Looks that failed one after the other are up to eight intervals apart.
            expiry += config.look_interval * 8;
        }
        let looks = config.look_interval.mul_f64(2.2) + self.sparing();
        let faults = self.watch.faults_since(since.saturating_sub(Duration::from_secs(5)));
        // A failed call is tried again after its time limit and a delay that grows.
        let grace = Duration::from_secs(if faults <= 2 { 3 } else { 10 }) * faults;
        // What was under way, a release, a look and a taking, there and back.
        let calls = self.settings.faults.latency * 8;
        (expiry + looks).div_f64(self.settings.rates.0) + calls + Duration::from_millis(2_200) + grace
    }

    /// Whether there is a worker that can take whatever is free.
    fn is_able(&self) -> bool {
        let is_there = |worker: &Worker| worker.paused_until <= self.now && worker.cut_until <= self.now;
        self.workers.values().any(|worker| worker.is_able() && is_there(worker))
    }

    /// Looks at everything.
    pub(super) fn survey(&mut self) {
        if !self.is_able() {
            self.disturbed();
        }
        self.survey_owners();
        self.survey_rows();
        self.survey_calls();
        self.survey_stops();
        self.survey_beliefs();
        self.survey_answers();
        self.survey_takings();
    }

    /// A lease that was taken is not left without a consumer because the reply was lost.
    fn survey_takings(&mut self) {
        let mut late = None;
        for row in self.table.rows.values() {
            let Some(token) = row.token else { continue };
            let taker = self.workers.iter().find_map(|(number, worker)| {
                let sent = *worker.takings.get(&token)?;
                let free = worker.stopping_since.is_none() && worker.config.max_leases.is_none();
                free.then_some((*number, sent))
            });
            let Some((number, sent)) = taker else { continue };
            let age = self.now - sent;
            // The taking and a first read run into their time limits, and a second read is answered.
            let due = self.workers.get(&number).map(|worker| {
                let failures = (worker.config.call_timeout() * 2).div_f64(worker.rate);
                failures + self.settings.faults.latency * 2 + Duration::from_secs(1)
            });
            let due = due.unwrap_or_default().max(Duration::from_secs(5));
            // More failures on the way, and it takes longer; when it is too old, it may not begin any more.
            let is_due = age > due && age < Duration::from_secs(8);
            let in_time = self.table.moved_at(&row.key).saturating_sub(sent) < Duration::from_secs(2);
            if is_due && in_time && self.watch.disturbed_at < sent && self.watch.faults_since(sent) <= 2 {
                late = Some(format!("w{number} took {} and does not know it", super::number(&row.key)));
            }
        }
        if let Some(late) = late {
            self.violated(late);
        }
    }

    /// A holder stops believing 0.9 expiries after the start of its last successful write.
    fn survey_beliefs(&mut self) {
        let mut late = None;
        for (number, worker) in self.workers.iter().filter(|(_, worker)| worker.paused_until <= self.now) {
            let belief = worker.config.belief().div_f64(worker.rate) + Duration::from_millis(10);
            let until = |key| worker.proven.get(key).copied().unwrap_or_default() + belief;
            if let Some(key) = worker.believes.keys().find(|key| self.now > until(key)) {
                late = Some(format!("w{number} goes on believing in {}", super::number(key)));
            }
        }
        if let Some(late) = late {
            self.violated(late);
        }
    }

    /// Where nothing fails, callers are answered soon.
    fn survey_answers(&mut self) {
        let limit = Duration::from_secs(2);
        let waits = |(_, worker): &(&usize, &Worker)| {
            worker.pending.values().any(|pending| self.now.saturating_sub(pending.since) > limit)
        };
        let late = self.workers.iter().find(waits).map(|(number, _)| *number);
        if let (true, Some(number)) = (self.watch.gentle, late) {
            self.violated(format!("w{number} does not answer a caller"));
        }
    }

    fn survey_owners(&mut self) {
        let mut since = std::mem::take(&mut self.watch.unowned_since);
        let is_idle = |shard: &u32| {
            let truth = &self.stream.shards[shard];
            let rests = self.table.rows.get(&key(*shard)).is_some_and(|row| row.cool_down.is_some());
            // A consumer that has said the end is done with it, whatever the row says.
            !truth.trimmed && !truth.consumed && !rests && !self.is_owned(*shard)
        };
        let idle: BTreeSet<u32> = self.runnable().into_iter().filter(is_idle).collect();
        since.retain(|shard, _| idle.contains(shard));
        let mut late = None;
        for shard in idle {
            let began = *since.entry(shard).or_insert(self.now);
            // A crash just before leaves its traces for an expiry.
            let calm_for = began.saturating_sub(self.watch.disturbed_at);
            let after_crash = calm_for < self.aftermath();
            let from = began.max(self.watch.disturbed_at);
            if self.now.saturating_sub(from) > self.bound(from, after_crash) {
                late = Some((shard, (self.now - from).as_secs_f64()));
            }
        }
        self.watch.unowned_since = since;
        if let Some((shard, seconds)) = late {
            self.violated(format!("{shard} has been without an owner for {seconds:.1} s"));
        }
    }

    /// A shard that may be read has a lease, at the latest after two listings.
    fn survey_rows(&mut self) {
        let limit = self.settings.config.discovery_interval.mul_f64(2.1).div_f64(self.settings.rates.0);
        let missing = self.stream.shards.iter().find(|(number, shard)| {
            let from = shard.made_at.max(self.watch.disturbed_at);
            let faults = self.watch.faults_since(from);
            let old = self.now.saturating_sub(from) > limit + Duration::from_secs(10) * (faults + 1);
            old && !shard.trimmed && !shard.skipped && !self.has_row(**number)
        });
        if let Some(number) = missing.map(|(number, _)| *number) {
            self.violated(format!("{number} has no lease"));
        }
    }

    fn survey_calls(&mut self) {
        let mut busy = None;
        for (number, worker) in &mut self.workers {
            let held = worker.count_held();
            let limit = 16 + 4 * held.max(std::mem::replace(&mut worker.most_held, held));
            let calls = std::mem::take(&mut worker.calls);
            if calls > limit {
                busy = Some(format!("w{number} made {calls} calls in a second, for {limit} at most"));
            }
        }
        if let Some(busy) = busy {
            self.violated(busy);
        }
    }

    /// A worker whose stop is done goes at once.
    pub(super) fn leave(&mut self, number: usize) {
        let is_done = |worker: &Worker| worker.stopping_since.is_some() && worker.machine.is_stopped();
        let Some(worker) = self.workers.get(&number).filter(|worker| is_done(worker)) else { return };
        let name = format!("w{number}");
        let (released, _) = worker.machine.stop_report();
        let is_left = |row: &&Lease| {
            let named = row.owner.as_ref().is_some_and(|owner| owner.as_str() == name);
            named && row.token.is_none() && row.checkpoint_owner.is_none()
        };
        let rows = released.iter().filter_map(|key| self.table.rows.get(key));
        let left = rows.filter(is_left).map(|row| super::number(&row.key)).next();
        self.note(|| format!("w{number} has stopped"));
        self.workers.remove(&number);
        if let Some(shard) = left {
            self.violated(format!("{shard} was released, and still names the worker that stopped"));
        }
    }

    /// A stop ends; what it could not release in time it abandons.
    fn survey_stops(&mut self) {
        let limit = Duration::from_secs(10);
        let is_late = |worker: &Worker| worker.stopping_since.is_some_and(|since| self.now - since > limit);
        let late: Vec<usize> =
            self.workers.iter().filter(|(_, worker)| is_late(worker)).map(|(number, _)| *number).collect();
        for number in late {
            if self.watch.gentle {
                self.violated(format!("w{number} does not stop"));
            } else {
                self.note(|| format!("w{number} is stopped at its deadline"));
                self.workers.remove(&number);
                self.disturbed();
            }
        }
    }

    /// Why the fleet is not as it should be once it is left alone, or nothing.
    pub(super) fn unbalanced(&self) -> Option<String> {
        let runnable = self.runnable();
        let trimmed = runnable.iter().find(|shard| self.stream.shards[shard].trimmed);
        if let Some(shard) = trimmed {
            return Some(format!("{shard} is gone and not closed"));
        }
        if let Some(shard) = runnable.iter().find(|shard| !self.is_owned(**shard)) {
            return Some(format!("{shard} has no owner"));
        }
        if self.loads.is_some() && self.all_weigh() {
            return self.uneven();
        }
        let limited = self.workers.values().any(|worker| worker.config.max_leases.is_some());
        let target = runnable.len().div_ceil(self.workers.len().max(1));
        let (number, most) = self
            .workers
            .iter()
            .map(|(number, worker)| (number, worker.believes.len()))
            .max_by_key(|(_, held)| *held)?;
        (most > target && !limited).then(|| format!("w{number} has {most} leases, and {target} are its part"))
    }

    /// A caller that waits for an answer for too long.
    pub(super) fn forgotten(&self) -> Option<String> {
        let limit = Duration::from_secs(30);
        self.workers.iter().find_map(|(number, worker)| {
            let old = worker.pending.values().any(|pending| self.now.saturating_sub(pending.since) > limit);
            old.then(|| format!("w{number} has not answered a caller"))
        })
    }

    /// What each worker believes to hold.
    #[cfg(test)]
    pub(crate) fn spread(&self) -> Vec<usize> {
        self.workers.values().map(|worker| worker.believes.len()).collect()
    }

    /// How often each shard was begun with since this was asked for last.
    #[cfg(test)]
    pub(crate) fn take_begins(&mut self) -> BTreeMap<u32, u32> {
        std::mem::take(&mut self.watch.begins)
    }

    /// Shards that can be worked on and that nobody works on.
    #[cfg(test)]
    pub(crate) fn unowned(&self) -> std::collections::BTreeSet<u32> {
        let is_owned = |number: &u32| self.is_owned(*number);
        self.runnable().into_iter().filter(|number| !is_owned(number)).collect()
    }
}
