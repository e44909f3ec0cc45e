//! One machine, step by step, against a table that the test changes by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::directory::DirectoryError;
use kinesis_core::lease::{CoolDown, Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};
use kinesis_core::{Checkpoint, Position, WorkerId};

use crate::load::Meter;
use crate::machine::{Action, BatchId, Event, Found, Look, Machine, Request};
use crate::memory::apply_to_rows;
use crate::sim::key;
use crate::{LeaseConfig, LossReason};

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(super) fn at(sequence: u128) -> Checkpoint {
    Checkpoint::At(Position::new(sequence.into(), 0))
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a call to the store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    Works,
    LosesReplies,
    Fails,
    /// Keeps calls until they are let go.
    Hangs,
}

/// A machine, its table and its clock.
pub(super) struct Bench {
    pub(super) machine: Machine,
    pub(super) rows: BTreeMap<LeaseKey, Lease>,
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) store: Store,
    /// Whether looks fail, and nothing else does.
    pub(super) looks_fail: bool,
    pub(super) kept: Vec<(BatchId, Vec<LeaseWrite>)>,
    /// What the machine told its consumer, and the answers to callers.
    pub(super) told: Vec<Action>,
    pub(super) writes: usize,
    /// Where work is reported.
    pub(super) meters: BTreeMap<LeaseKey, Arc<Meter>>,
}

impl Bench {
    pub(super) fn new(rows: impl IntoIterator<Item = Lease>) -> Self {
        Self::with(LeaseConfig::default(), rows)
    }

    pub(super) fn with(config: LeaseConfig, rows: impl IntoIterator<Item = Lease>) -> Self {
        let now = Instant::now();
        let mut bench = Self {
            machine: Machine::new(worker("me"), config, fastrand::Rng::with_seed(5)),
            rows: rows.into_iter().map(|row| (row.key.clone(), row)).collect(),
            start: now,
            now,
            store: Store::Works,
            looks_fail: false,
            kept: Vec::new(),
            told: Vec::new(),
            writes: 0,
            meters: BTreeMap::new(),
        };
        let actions = bench.machine.plan(now);
        bench.act(actions);
        bench
    }

    /// Moves the clock, stopping wherever the machine wants to do something.
    pub(super) fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some(deadline) = self.machine.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            let actions = self.machine.plan(self.now);
            self.act(actions);
        }
        self.now = end;
    }

    pub(super) fn step(&mut self, event: Event) {
        let actions = self.machine.step(self.now, event);
        self.act(actions);
    }

    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Apply { batch, writes } if self.store == Store::Hangs => {
                    self.kept.push((batch, writes))
                }
                Action::Apply { batch, writes } => self.apply(batch, &writes),
                Action::Look if matches!(self.store, Store::Works | Store::Hangs) && !self.looks_fail => {
                    let rows = self.rows.values().cloned().collect();
                    let look = Look { started: self.now, rows, unreadable: Vec::new() };
                    self.step(Event::Looked(Ok(look)));
                }
                Action::Look => self.step(Event::Looked(Err(failure()))),
                Action::Read(keys) => {
                    let rows = match self.store {
                        Store::Works => Ok(keys.iter().map(|key| self.rows.get(key).cloned()).collect()),
                        _ => Err(failure()),
                    };
                    self.step(Event::Read { keys, rows });
                }
                other => {
                    if let Action::Acquired { lease, meter, .. } = &other {
                        self.meters.insert(lease.key.clone(), Arc::clone(meter));
                    }
                    self.told.push(other);
                }
            }
        }
    }

    pub(super) fn apply(&mut self, batch: BatchId, writes: &[LeaseWrite]) {
        self.writes += writes.len();
        let works = self.store != Store::Fails;
        let results = writes.iter().map(|write| works.then(|| apply_to_rows(&mut self.rows, write)));
        let results: Vec<Option<Outcome>> = results.collect();
        let answers = self.store == Store::Works;
        let results =
            results.into_iter().map(|outcome| outcome.filter(|_| answers).ok_or_else(failure)).collect();
        self.step(Event::Applied { batch, results });
    }

    /// A listing that began now has ended.
    pub(super) fn discovered(&mut self, gone: Result<BTreeSet<LeaseKey>, Arc<DirectoryError>>) {
        let result = gone.map(|gone| Found { gone, ..Found::default() });
        self.step(Event::Discovered { began: self.now, result });
    }

    pub(super) fn look(&mut self) {
        self.run(millis(1_100));
    }

    pub(super) fn row(&self, number: u32) -> &Lease {
        &self.rows[&key(number)]
    }

    pub(super) fn change(&mut self, write: &LeaseWrite) -> Outcome {
        apply_to_rows(&mut self.rows, write)
    }

    pub(super) fn acquired(&mut self) -> Vec<(u32, TenureToken)> {
        let mut found = Vec::new();
        self.told.retain(|action| match action {
            Action::Acquired { lease, token, .. } => {
                found.push((number(&lease.key), *token));
                false
            }
            _ => true,
        });
        found
    }

    pub(super) fn only_token(&mut self) -> TenureToken {
        let acquired = self.acquired();
        assert_eq!(acquired.len(), 1, "{acquired:?}");
        acquired[0].1
    }

    pub(super) fn losses(&self) -> Vec<(u32, LossReason)> {
        let lost = |action: &Action| match action {
            Action::Lost { key, reason, .. } => Some((number(key), *reason)),
            _ => None,
        };
        self.told.iter().filter_map(lost).collect()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let warned = |action: &Action| match action {
            Action::Warn(warning) => Some(warning.to_string()),
            _ => None,
        };
        self.told.iter().filter_map(warned).collect()
    }

    pub(super) fn hand_overs(&self) -> Vec<(u32, Duration)> {
        let asked = |action: &Action| match action {
            Action::HandOver { key, deadline, .. } => Some((number(key), *deadline - self.start)),
            _ => None,
        };
        self.told.iter().filter_map(asked).collect()
    }

    pub(super) fn replies(&mut self) -> Vec<(u64, Result<(), String>)> {
        let mut found = Vec::new();
        self.told.retain(|action| match action {
            Action::Reply { id, result } => {
                found.push((*id, result.clone().map_err(|error| error.to_string())));
                false
            }
            _ => true,
        });
        found
    }

    pub(super) fn checkpoint(&mut self, token: TenureToken, sequence: u128, reply: u64) {
        self.checkpoint_spaced(token, sequence, Duration::ZERO, reply);
    }

    pub(super) fn checkpoint_spaced(
        &mut self,
        token: TenureToken,
        sequence: u128,
        spacing: Duration,
        reply: u64,
    ) {
        self.step(Event::Request(Request::Checkpoint {
            key: key(0),
            token,
            checkpoint: at(sequence),
            spacing,
            reply,
        }));
    }

    pub(super) fn release(&mut self, token: TenureToken, cool_down: Option<CoolDown>) {
        self.step(Event::Request(Request::Release { key: key(0), token, cool_down, reply: 99 }));
    }
}

pub(super) fn number(key: &LeaseKey) -> u32 {
    key.shard().as_str().rsplit('-').next().unwrap().parse().unwrap()
}

pub(super) fn failure() -> Arc<StoreError> {
    Arc::new(StoreError::unavailable("lost"))
}

pub(super) fn fresh(shard: u32) -> Lease {
    Lease::new(key(shard), Checkpoint::TrimHorizon)
}

pub(super) fn owned(shard: u32, owner: &str) -> Lease {
    let mut lease = fresh(shard);
    lease.owner = Some(worker(owner));
    lease.token = Some(TenureToken::from_random(77));
    lease.counter = 5;
    lease.epoch = 3;
    lease
}
