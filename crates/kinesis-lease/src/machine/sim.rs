//! Fleets of machines over one table, with clocks that differ, slow and failing calls, crashes and pauses. Everything
//! is drawn from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};
use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, WorkerId};

use super::{Action, BatchId, Event, Look, Machine, ReplyId, Request};
use crate::LeaseConfig;
use crate::memory::apply_to_rows;

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// Of 100 calls, how many lose their reply.
    pub(super) lost_replies: u32,
    /// Of 100 calls, how many never reach the store.
    pub(super) lost_calls: u32,
    /// Of 100 hand-overs, how many are not answered by the consumer.
    pub(super) deaf: u32,
}

impl Faults {
    pub(super) const NONE: Self = Self { lost_replies: 0, lost_calls: 0, deaf: 0 };
    pub(super) const SOME: Self = Self { lost_replies: 10, lost_calls: 10, deaf: 20 };
}

/// Something that is to happen, in the fleet's own time.
enum Happening {
    Call(Call),
    Deliver(Event),
    Ask(LeaseKey, TenureToken),
    Checkpoint(LeaseKey, TenureToken),
}

enum Call {
    Apply(BatchId, Vec<LeaseWrite>),
    Look,
    Read(Vec<LeaseKey>),
}

struct Worker {
    machine: Machine,
    /// How fast its clock runs.
    rate: f64,
    /// Until when it is stopped, as by a signal.
    paused_until: Duration,
    believes: BTreeMap<LeaseKey, TenureToken>,
    next_reply: ReplyId,
    /// The machine's own deadline, in the fleet's time.
    deadline: Option<Duration>,
}

pub(super) struct Fleet {
    random: fastrand::Rng,
    epoch: Instant,
    pub(super) now: Duration,
    config: LeaseConfig,
    pub(super) rows: BTreeMap<LeaseKey, Lease>,
    workers: BTreeMap<usize, Worker>,
    next_worker: usize,
    agenda: BTreeMap<(Duration, u64), (usize, Happening)>,
    next_entry: u64,
    pub(super) faults: Faults,
    /// Beginnings and ends of tenures since the last reset.
    pub(super) moves: usize,
    pub(super) lost: usize,
    pub(super) handed_over: usize,
    next_shard: u32,
}

pub(super) fn key(number: u32) -> LeaseKey {
    let application = ApplicationName::new("sim").unwrap();
    let shard = ShardId::new(format!("shardId-{number:012}")).unwrap();
    LeaseKey::new(application, StreamRef::new("stream").unwrap(), shard)
}

impl Fleet {
    pub(super) fn new(seed: u64, shards: u32, faults: Faults) -> Self {
        let rows = (0..shards).map(|number| (key(number), Lease::new(key(number), Checkpoint::TrimHorizon)));
        Self {
            random: fastrand::Rng::with_seed(seed),
            epoch: Instant::now(),
            now: Duration::ZERO,
            config: LeaseConfig::default(),
            rows: rows.collect(),
            workers: BTreeMap::new(),
            next_worker: 0,
            agenda: BTreeMap::new(),
            next_entry: 0,
            faults,
            moves: 0,
            lost: 0,
            handed_over: 0,
            next_shard: shards,
        }
    }

    pub(super) fn add_worker(&mut self) -> usize {
        let number = self.next_worker;
        self.next_worker += 1;
        let name = WorkerId::new(format!("w{number}")).unwrap();
        let worker = Worker {
            machine: Machine::new(name, self.config.clone(), self.random.fork()),
            rate: 0.98 + self.random.f64() * 0.04,
            paused_until: Duration::ZERO,
            believes: BTreeMap::new(),
            next_reply: 0,
            deadline: None,
        };
        self.workers.insert(number, worker);
        self.plan(number);
        number
    }

    pub(super) fn workers(&self) -> Vec<usize> {
        self.workers.keys().copied().collect()
    }

    pub(super) fn crash(&mut self, worker: usize) {
        self.workers.remove(&worker);
    }

    pub(super) fn pause(&mut self, worker: usize, length: Duration) {
        let until = self.now + length;
        self.workers.entry(worker).and_modify(|worker| worker.paused_until = until);
    }

    pub(super) fn stop(&mut self, worker: usize) {
        self.step(worker, Event::Request(Request::Stop));
    }

    /// What each worker believes to hold.
    pub(super) fn spread(&self) -> Vec<usize> {
        self.workers.values().map(|worker| worker.believes.len()).collect()
    }

    /// The shards that can be worked on.
    pub(super) fn runnable(&self) -> usize {
        self.rows.values().filter(|row| !row.is_finished() && !self.is_blocked(row)).count()
    }

    pub(super) fn unowned(&self) -> BTreeSet<LeaseKey> {
        let owned: BTreeSet<&LeaseKey> =
            self.workers.values().flat_map(|worker| worker.believes.keys()).collect();
        let open = self.rows.values().filter(|row| !row.is_finished() && !self.is_blocked(row));
        open.map(|row| row.key.clone()).filter(|key| !owned.contains(key)).collect()
    }

    fn is_blocked(&self, row: &Lease) -> bool {
        let finished =
            |parent: &ShardId| self.rows.get(&row.key.sibling(parent.clone())).is_none_or(Lease::is_finished);
        !row.parents.iter().all(finished)
    }

    /// Splits a shard that somebody holds: its holder ends it with two children.
    pub(super) fn split_one(&mut self) {
        let held: Vec<(usize, LeaseKey, TenureToken)> = self
            .workers
            .iter()
            .flat_map(|(number, worker)| {
                worker.believes.iter().map(|(key, token)| (*number, key.clone(), *token))
            })
            .collect();
        let Some((worker, parent, token)) = self.random.choice(&held).cloned() else { return };
        let child =
            |number| ShardInfo::new(key(number).shard().clone()).parents(vec![parent.shard().clone()]);
        let children = vec![child(self.next_shard), child(self.next_shard + 1)];
        self.next_shard += 2;
        self.ended(worker, &parent);
        let request = Request::End { key: parent, token, children, reply: 0 };
        self.step(worker, Event::Request(request));
    }

    /// Lets the fleet live for a while.
    pub(super) fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some((time, worker)) = self.next() {
            if time > end {
                break;
            }
            self.now = time.max(self.now);
            match self.agenda.first_key_value() {
                Some(((at, _), (of, _))) if *at <= self.now && *of == worker => {
                    let (_, (of, happening)) = self.agenda.pop_first().unwrap();
                    self.happen(of, happening);
                }
                _ => self.plan(worker),
            }
        }
        self.now = end;
    }

    /// What comes next: an entry of the agenda, or a deadline of a machine.
    fn next(&mut self) -> Option<(Duration, usize)> {
        // Replies to a crashed worker are of no use; a paused one gets its own when it goes on.
        while let Some(((at, entry), (worker, _))) = self.agenda.first_key_value() {
            let (at, entry, worker) = (*at, *entry, *worker);
            let is_call = matches!(self.agenda[&(at, entry)].1, Happening::Call(_));
            match self.workers.get(&worker) {
                None if !is_call => drop(self.agenda.remove(&(at, entry))),
                Some(found) if !is_call && found.paused_until > at => {
                    let (_, happening) = self.agenda.remove(&(at, entry)).unwrap();
                    let later = found.paused_until;
                    self.agenda.insert((later, entry), (worker, happening));
                }
                _ => break,
            }
        }
        let agenda = self.agenda.first_key_value().map(|((at, _), (worker, _))| (*at, *worker));
        let deadlines = self
            .workers
            .iter()
            .filter_map(|(number, worker)| Some((worker.deadline?.max(worker.paused_until), *number)));
        deadlines.min().into_iter().chain(agenda).min_by_key(|(at, _)| *at)
    }

    fn later(&mut self, delay: Duration, worker: usize, happening: Happening) {
        self.next_entry += 1;
        self.agenda.insert((self.now + delay, self.next_entry), (worker, happening));
    }

    fn latency(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(1..40))
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    fn clock(&self, worker: &Worker) -> Instant {
        self.epoch + self.now.mul_f64(worker.rate)
    }

    fn step(&mut self, number: usize, event: Event) {
        let Some(worker) = self.workers.get(&number) else { return };
        let clock = self.clock(worker);
        let worker = self.workers.get_mut(&number).unwrap();
        let actions = worker.machine.step(clock, event);
        self.act(number, actions);
    }

    fn plan(&mut self, number: usize) {
        let Some(worker) = self.workers.get(&number) else { return };
        let clock = self.clock(worker);
        let worker = self.workers.get_mut(&number).unwrap();
        let actions = worker.machine.plan(clock);
        self.act(number, actions);
    }

    fn act(&mut self, number: usize, actions: Vec<Action>) {
        let worker = self.workers.get_mut(&number).unwrap();
        worker.deadline = worker.machine.next_deadline().map(|deadline| {
            let passed = deadline.saturating_duration_since(self.epoch).div_f64(worker.rate);
            // Division rounds; a moment later is late enough for every deadline.
            passed + Duration::from_micros(1)
        });
        for action in actions {
            match action {
                Action::Apply { batch, writes } => self.send(number, Call::Apply(batch, writes)),
                Action::Look => self.send(number, Call::Look),
                Action::Read(keys) => self.send(number, Call::Read(keys)),
                Action::Discover => {
                    let delay = self.latency();
                    self.later(delay, number, Happening::Deliver(Event::Discovered(Ok(BTreeSet::new()))));
                }
                Action::Acquired { lease, token } => self.acquired(number, &lease, token),
                Action::HandOver { key, token, .. } => {
                    self.handed_over += 1;
                    if !self.chance(self.faults.deaf) {
                        let delay = Duration::from_millis(self.random.u64(1..5_000));
                        self.later(delay, number, Happening::Ask(key, token));
                    }
                }
                Action::Lost { key, .. } => {
                    self.lost += 1;
                    self.ended(number, &key);
                }
                Action::Ended { key, .. } => self.ended(number, &key),
                Action::Reply { .. } | Action::Warn(_) => {}
            }
        }
    }

    /// A consumer that asks for the end of its tenure has stopped before.
    fn ended(&mut self, number: usize, key: &LeaseKey) {
        let worker = self.workers.get_mut(&number).unwrap();
        if worker.believes.remove(key).is_some() {
            self.moves += 1;
        }
    }

    fn acquired(&mut self, number: usize, lease: &Lease, token: TenureToken) {
        self.moves += 1;
        for (other, worker) in &self.workers {
            // A stopped process does nothing; when it goes on, it learns first that its time is over.
            let is_stopped = worker.paused_until > self.now;
            let believes = worker.believes.contains_key(&lease.key);
            assert!(is_stopped || !believes, "w{other} and w{number} both believe in {}", lease.key);
        }
        assert!(!self.is_blocked(&self.rows[&lease.key]), "{} began before its parents ended", lease.key);
        let worker = self.workers.get_mut(&number).unwrap();
        worker.believes.insert(lease.key.clone(), token);
        self.later(Duration::from_millis(500), number, Happening::Checkpoint(lease.key.clone(), token));
    }

    fn send(&mut self, number: usize, call: Call) {
        let delay = self.latency();
        self.later(delay, number, Happening::Call(call));
    }

    fn happen(&mut self, number: usize, happening: Happening) {
        match happening {
            Happening::Call(call) => self.store(number, call),
            Happening::Deliver(event) => self.step(number, event),
            Happening::Ask(key, token) => {
                let Some(worker) = self.workers.get(&number) else { return };
                if worker.believes.get(&key) != Some(&token) {
                    return;
                }
                self.ended(number, &key);
                let request = Request::Release { key, token, cool_down: None, reply: 0 };
                self.step(number, Event::Request(request));
            }
            Happening::Checkpoint(key, token) => {
                let now = self.now.as_millis();
                let Some(worker) = self.workers.get_mut(&number) else { return };
                if worker.believes.get(&key) != Some(&token) {
                    return;
                }
                worker.next_reply += 1;
                let reply = worker.next_reply;
                let checkpoint = Checkpoint::At(Position::new(now.into(), 0));
                let request = Request::Checkpoint { key: key.clone(), token, checkpoint, reply };
                self.step(number, Event::Request(request));
                let delay = Duration::from_millis(self.random.u64(200..3_000));
                self.later(delay, number, Happening::Checkpoint(key, token));
            }
        }
    }

    /// The store's side of a call.
    fn store(&mut self, number: usize, call: Call) {
        let timeout = self.config.call_timeout();
        let (lost_call, lost_reply) =
            (self.chance(self.faults.lost_calls), self.chance(self.faults.lost_replies));
        let failure = || Arc::new(StoreError::unavailable("lost"));
        let event = match call {
            Call::Apply(batch, writes) => {
                let mut results = Vec::new();
                for write in &writes {
                    let outcome = if lost_call { None } else { Some(self.apply(write)) };
                    results.push(outcome.filter(|_| !lost_reply).ok_or_else(failure));
                }
                Event::Applied { batch, results }
            }
            Call::Look if lost_call || lost_reply => Event::Looked(Err(failure())),
            Call::Look => {
                let Some(worker) = self.workers.get(&number) else { return };
                // Long enough ago: the call was under way for less.
                let started = self.clock(worker).checked_sub(Duration::from_millis(40)).unwrap_or(self.epoch);
                let rows = self.rows.values().cloned().collect();
                Event::Looked(Ok(Look { started, rows, unreadable: Vec::new() }))
            }
            Call::Read(keys) if lost_call || lost_reply => Event::Read { keys, rows: Err(failure()) },
            Call::Read(keys) => {
                let rows = keys.iter().map(|key| self.rows.get(key).cloned()).collect();
                Event::Read { keys, rows: Ok(rows) }
            }
        };
        let delay = if lost_call || lost_reply { timeout } else { self.latency() };
        self.later(delay, number, Happening::Deliver(event));
    }

    fn apply(&mut self, write: &LeaseWrite) -> Outcome {
        let before = self.rows.get(&write.key).map(|row| row.checkpoint.clone());
        let outcome = apply_to_rows(&mut self.rows, write);
        if let Outcome::Applied(row) = &outcome {
            assert!(
                before.is_none_or(|before| before <= row.checkpoint),
                "the checkpoint of {} went back",
                row.key
            );
        }
        outcome
    }
}
