//! A fleet of workers of the KCL 2.x, as a small model of its algorithm, and of machines of ours over one table, in
//! virtual time. Calls take a moment, so that what one has read may be old when it writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey};

use super::bench::{fresh, worker};
use crate::machine::{Action, Event, Look, Machine, Request};
use crate::memory::apply_to_rows;
use crate::{Coordination, LeaseConfig};

/// How often the world moves on.
const TICK: Duration = Duration::from_millis(100);
const FAILOVER: Duration = Duration::from_secs(10);
const EPSILON: Duration = Duration::from_millis(25);

/// A worker of the KCL 2.x: renews each third of the failover time, takes each two of them.
struct Java {
    name: WorkerId,
    random: fastrand::Rng,
    /// The counter that it has written, for each lease that it holds.
    held: BTreeMap<LeaseKey, u64>,
    /// Counter, and when it changed last: `None` is for ever ago.
    seen: BTreeMap<LeaseKey, (u64, Option<Duration>)>,
    renew_at: Duration,
    take_at: Duration,
}

impl Java {
    fn renew(&mut self, rows: &mut BTreeMap<LeaseKey, Lease>) {
        self.held.retain(|key, counter| match rows.get_mut(key) {
            Some(row) if row.counter == *counter => {
                row.counter += 1;
                *counter += 1;
                true
            }
            _ => false,
        });
    }

    fn take(&mut self, now: Duration, rows: &mut BTreeMap<LeaseKey, Lease>) {
        for (key, row) in rows.iter() {
            let changed = self.seen.get(key).is_none_or(|(counter, _)| *counter != row.counter);
            if changed {
                let first = !self.seen.contains_key(key);
                let at = if first && row.owner.is_none() { None } else { Some(now) };
                self.seen.insert(key.clone(), (row.counter, at));
            }
        }
        let age = |key: &LeaseKey| self.seen[key].1.map_or(Duration::MAX, |at| now - at);
        let is_available = |key: &LeaseKey, row: &Lease| row.owner.is_none() || age(key) > FAILOVER;
        let mut loads: BTreeMap<WorkerId, Vec<LeaseKey>> = BTreeMap::from([(self.name.clone(), Vec::new())]);
        let mut available = Vec::new();
        for (key, row) in rows.iter() {
            match &row.owner {
                Some(owner) if !is_available(key, row) => {
                    loads.entry(owner.clone()).or_default().push(key.clone());
                }
                _ => available.push(key.clone()),
            }
        }
        let target = if loads.len() >= rows.len() { 1 } else { rows.len().div_ceil(loads.len()) };
        let mut very_old: Vec<LeaseKey> =
            available.iter().filter(|key| age(key) > FAILOVER * 3).cloned().collect();
        let need = target.saturating_sub(loads[&self.name].len());
        let chosen = if !very_old.is_empty() {
            self.random.shuffle(&mut very_old);
            very_old
        } else if need == 0 {
            return;
        } else if !available.is_empty() {
            self.random.shuffle(&mut available);
            available.into_iter().take(need).collect()
        } else {
            let most = loads.values().max_by_key(|leases| leases.len()).unwrap();
            if most.len() < target {
                return;
            }
            let mut count = need.min(most.len() - target);
            if count == 0 && need > 1 {
                count = 1;
            }
            let mut most = most.clone();
            self.random.shuffle(&mut most);
            most.into_iter().take(count.min(1)).collect()
        };
        for key in chosen {
            let Some(row) = rows.get_mut(&key) else { continue };
            row.owner_switches += 1;
            row.owner = Some(self.name.clone());
            row.counter += 1;
            // It leaves the token in the row, which counts for nothing then.
            row.token = None;
            self.held.insert(key, row.counter);
        }
    }
}

/// A machine and its calls under way.
struct Rust {
    machine: Machine,
    calls: VecDeque<Action>,
    answers: VecDeque<Event>,
    replies: u64,
    /// How many leases it has lost to others that it was not asked for.
    pub(super) robbed: usize,
}

/// Workers of both kinds over one table.
pub(super) struct Mixed {
    epoch: Instant,
    pub(super) now: Duration,
    pub(super) rows: BTreeMap<LeaseKey, Lease>,
    java: BTreeMap<String, Java>,
    rust: BTreeMap<String, Rust>,
    random: fastrand::Rng,
    pub(super) config: LeaseConfig,
    /// Changes of owner: when, of which lease, from whom, to whom.
    pub(super) moves: Vec<(Duration, LeaseKey, Option<WorkerId>, Option<WorkerId>)>,
}

impl Mixed {
    pub(super) fn new(seed: u64, shards: u32) -> Self {
        Self {
            epoch: Instant::now(),
            now: Duration::ZERO,
            rows: (0..shards).map(|number| (fresh(number).key.clone(), fresh(number))).collect(),
            java: BTreeMap::new(),
            rust: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed),
            config: LeaseConfig::default(),
            moves: Vec::new(),
        }
    }

    pub(super) fn add_java(&mut self, name: &str) {
        let java = Java {
            name: worker(name),
            random: self.random.fork(),
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            renew_at: self.now,
            take_at: self.now,
        };
        self.java.insert(name.to_owned(), java);
    }

    pub(super) fn add_rust(&mut self, name: &str, coordination: Coordination) {
        let mut machine = Machine::new(worker(name), self.config.clone(), self.random.fork());
        machine.coordinate(coordination);
        let rust = Rust { machine, calls: VecDeque::new(), answers: VecDeque::new(), replies: 0, robbed: 0 };
        self.rust.insert(name.to_owned(), rust);
    }

    /// Ends without a word; also how a worker of the KCL ends, as it leaves its name in its rows.
    pub(super) fn kill(&mut self, name: &str) {
        self.java.remove(name);
        self.rust.remove(name);
    }

    pub(super) fn stop_rust(&mut self, name: &str) {
        let rust = self.rust.get_mut(name).unwrap();
        rust.answers.push_back(Event::Request(Request::Stop));
    }

    pub(super) fn robbed(&self, name: &str) -> usize {
        self.rust[name].robbed
    }

    pub(super) fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now += TICK;
            let mut names = self.busy();
            self.random.shuffle(&mut names);
            for name in names {
                let before = self.owners();
                if self.java.contains_key(&name) {
                    self.step_java(&name);
                } else {
                    self.step_rust(&name);
                }
                for (key, owner) in self.owners() {
                    let old = before.get(&key).cloned().flatten();
                    if old != owner {
                        self.moves.push((self.now, key, old, owner));
                    }
                }
            }
        }
    }

    /// Who has something to do now.
    fn busy(&self) -> Vec<String> {
        let clock = self.epoch + self.now;
        let java = self.java.iter().filter(|(_, java)| self.now >= java.renew_at.min(java.take_at));
        let is_due = |rust: &Rust| {
            let is_waiting = !rust.answers.is_empty() || !rust.calls.is_empty();
            // A machine that has planned nothing yet wants to look at once.
            is_waiting || rust.machine.next_deadline().is_none_or(|deadline| deadline <= clock)
        };
        let rust = self.rust.iter().filter(|(_, rust)| is_due(rust));
        java.map(|(name, _)| name).chain(rust.map(|(name, _)| name)).cloned().collect()
    }

    fn owners(&self) -> BTreeMap<LeaseKey, Option<WorkerId>> {
        self.rows.iter().map(|(key, row)| (key.clone(), row.owner.clone())).collect()
    }

    fn step_java(&mut self, name: &str) {
        let java = self.java.get_mut(name).unwrap();
        if self.now >= java.renew_at {
            java.renew(&mut self.rows);
            java.renew_at += FAILOVER / 3 - EPSILON;
        }
        if self.now >= java.take_at {
            java.take(self.now, &mut self.rows);
            java.take_at = self.now + (FAILOVER + EPSILON) * 2;
        }
    }

    /// Answers what was asked a moment ago, and asks anew.
    fn step_rust(&mut self, name: &str) {
        let clock = self.epoch + self.now;
        let rust = self.rust.get_mut(name).unwrap();
        while let Some(event) = rust.answers.pop_front() {
            rust.machine.handle(clock, event);
        }
        while let Some(action) = rust.calls.pop_front() {
            let answer = match action {
                Action::Apply { batch, writes } => {
                    let write = |write| Ok(apply_to_rows(&mut self.rows, write));
                    Event::Applied { batch, results: writes.iter().map(write).collect() }
                }
                Action::Read(keys) => {
                    let rows = keys.iter().map(|key| self.rows.get(key).cloned()).collect();
                    Event::Read { keys, rows: Ok(rows) }
                }
                _ => continue,
            };
            rust.answers.push_back(answer);
        }
        for action in rust.machine.plan(clock) {
            match action {
                Action::Look => {
                    let rows = self.rows.values().cloned().collect();
                    let look = Look { started: clock, rows, unreadable: Vec::new() };
                    rust.answers.push_back(Event::Looked(Ok(look)));
                }
                Action::HandOver { key, token, .. } => {
                    rust.replies += 1;
                    let release = Request::Release { key, token, cool_down: None, reply: rust.replies };
                    rust.answers.push_back(Event::Request(release));
                }
                Action::Lost { .. } => rust.robbed += 1,
                action @ (Action::Apply { .. } | Action::Read(_)) => rust.calls.push_back(action),
                _ => {}
            }
        }
        if rust.machine.is_stopped() {
            self.rust.remove(name);
        }
    }

    /// How many unfinished leases each worker has; all of them are held.
    pub(super) fn spread(&self) -> BTreeMap<String, usize> {
        let mut spread: BTreeMap<String, usize> =
            self.java.keys().chain(self.rust.keys()).map(|name| (name.clone(), 0)).collect();
        for (name, java) in &self.java {
            let rows = java.held.keys().filter_map(|key| self.rows.get(key));
            let works = |row: &&Lease| !row.is_finished() && row.owner.as_ref() == Some(&java.name);
            spread.insert(name.clone(), rows.filter(works).count());
        }
        for (name, rust) in &self.rust {
            spread.insert(name.clone(), rust.machine.held_rows().count());
        }
        spread
    }

    /// The leases of a worker of ours.
    pub(super) fn held_by(&self, name: &str) -> BTreeSet<LeaseKey> {
        self.rust[name].machine.held_rows().map(|row| row.key.clone()).collect()
    }

    pub(super) fn is_java(&self, name: &WorkerId) -> bool {
        self.java.contains_key(name.as_str())
    }
}
