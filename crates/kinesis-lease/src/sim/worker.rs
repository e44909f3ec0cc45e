//! One worker: its machine, and what is known of it besides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::lease::{LeaseKey, Outcome, StoreError, TenureToken};

use super::consumer::Pending;
use super::discover::Discovery;
use super::table::{TaggedWrite, is_beat, token_of};
use crate::load::Meter;
use crate::machine::{BatchId, Machine, ReplyId};
use crate::{LeaseConfig, worker_row};

/// No write is tried again sooner, on the fastest clock.
const SHORTEST_RETRY: Duration = Duration::from_millis(15);

/// The leases that a batch writes, each with the tenure that it claims.
type Tenures = Vec<(LeaseKey, Option<TenureToken>)>;

pub(super) struct Worker {
    pub(super) machine: Machine,
    pub(super) config: LeaseConfig,
    /// How fast its clock runs.
    pub(super) rate: f64,
    /// Until when it is stopped, as by a signal.
    pub(super) paused_until: Duration,
    /// Until when it does not reach the store.
    pub(super) cut_until: Duration,
    /// When the first discovery was done.
    pub(super) started: Option<Duration>,
    pub(super) stopping_since: Option<Duration>,
    pub(super) believes: BTreeMap<LeaseKey, TenureToken>,
    /// Where consumers report their work.
    pub(super) meters: BTreeMap<LeaseKey, Arc<Meter>>,
    /// When the last write began that the worker knows to be in the row: what it may go on believing from.
    pub(super) proven: BTreeMap<LeaseKey, Duration>,
    /// When calls were sent, and whether they are heartbeats.
    sent: BTreeMap<BatchId, (Duration, bool, Tenures)>,
    /// When a write of a tenure failed last.
    failed: BTreeMap<LeaseKey, (TenureToken, Duration)>,
    /// When the first write of a tenure was sent whose outcome is unknown.
    unsure: BTreeMap<LeaseKey, (TenureToken, Duration)>,
    /// When the first heartbeat was sent whose outcome is unknown.
    unsure_beat: Option<Duration>,
    pub(super) takings: BTreeMap<TenureToken, Duration>,
    pub(super) pending: BTreeMap<ReplyId, Pending>,
    pub(super) next_reply: ReplyId,
    pub(super) discovery: Option<Discovery>,
    pub(super) discover_again: bool,
    /// Whether the next periodic listing is on the agenda.
    pub(super) scheduled: bool,
    /// Whether its last listing missed a shard.
    pub(super) missed: bool,
    /// The shard that one of its listings missed.
    pub(super) last_missed: Option<u32>,
    /// Calls in the present second.
    pub(super) calls: u32,
    /// The most leases that it held in the present second.
    pub(super) most_held: u32,
    /// The machine's own deadline, in the fleet's time.
    pub(super) deadline: Option<Duration>,
}

impl Worker {
    pub(super) fn new(machine: Machine, config: LeaseConfig, rate: f64) -> Self {
        Self {
            machine,
            config,
            rate,
            paused_until: Duration::ZERO,
            cut_until: Duration::ZERO,
            started: None,
            stopping_since: None,
            believes: BTreeMap::new(),
            meters: BTreeMap::new(),
            proven: BTreeMap::new(),
            sent: BTreeMap::new(),
            failed: BTreeMap::new(),
            unsure: BTreeMap::new(),
            unsure_beat: None,
            takings: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_reply: 0,
            discovery: None,
            discover_again: false,
            scheduled: false,
            missed: false,
            last_missed: None,
            calls: 0,
            most_held: 0,
            deadline: None,
        }
    }

    /// Whether it takes whatever is free.
    pub(super) fn is_able(&self) -> bool {
        self.started.is_some() && self.stopping_since.is_none() && self.config.max_leases.is_none()
    }

    /// How many leases it calls for: those that it is giving up included.
    pub(super) fn count_held(&self) -> u32 {
        u32::try_from(self.machine.held_count()).unwrap_or(u32::MAX)
    }

    /// Writes are sent; returns one that is sent too soon after a failure.
    pub(super) fn sending(
        &mut self,
        batch: BatchId,
        writes: &[TaggedWrite],
        now: Duration,
    ) -> Option<LeaseKey> {
        let tenures: Tenures =
            writes.iter().map(|tagged| (tagged.write.key.clone(), tagged.tenure)).collect();
        let is_hasty = |(key, tenure): &&(LeaseKey, Option<TenureToken>)| {
            self.failed.get(key).is_some_and(|(of, at)| *tenure == Some(*of) && now - *at < SHORTEST_RETRY)
        };
        let hasty = tenures.iter().find(is_hasty).map(|(key, _)| key.clone());
        let beats = writes.iter().any(|tagged| is_beat(&tagged.write));
        self.sent.insert(batch, (now, beats, tenures));
        self.takings
            .extend(writes.iter().filter_map(|tagged| token_of(&tagged.write)).map(|token| (token, now)));
        hasty
    }

    /// What the worker learns from the replies to its writes.
    pub(super) fn replied(
        &mut self,
        batch: BatchId,
        results: &[Result<Outcome, Arc<StoreError>>],
        now: Duration,
    ) {
        let Some((sent, beats, writes)) = self.sent.remove(&batch) else { return };
        for (result, (key, tenure)) in results.iter().zip(writes) {
            if worker_row::is_one(&key) {
                // Others ask in the row of a worker, and remove it.
                if beats {
                    self.beat_replied(sent, result, now);
                }
                continue;
            }
            match tenure.filter(|_| result.is_err()) {
                Some(tenure) => self.failed.insert(key.clone(), (tenure, now)),
                None => self.failed.remove(&key),
            };
            let Some(tenure) = tenure else { continue };
            let unsure = self.unsure.get(&key).filter(|(of, _)| *of == tenure).map(|(_, since)| *since);
            // Replies do not come in the order of the calls. A refusal that shows the tenure proves that one of the
            // tries before is in the row, and maybe only the first.
            let proof = match result {
                Ok(Outcome::Applied(row)) if row.token == Some(tenure) => Some(sent),
                Ok(Outcome::Refused { current: Some(row) }) if row.token == Some(tenure) => unsure,
                Ok(_) => None,
                Err(_) => {
                    self.unsure.insert(key, (tenure, unsure.unwrap_or(sent)));
                    continue;
                }
            };
            self.unsure.remove(&key);
            if let (Some(proof), true) = (proof, self.believes.get(&key) == Some(&tenure)) {
                let proven = self.proven.entry(key).or_default();
                *proven = proof.max(*proven);
            }
        }
    }

    /// A heartbeat counts for what the worker believes in by what it knew before.
    fn beat_replied(&mut self, sent: Duration, result: &Result<Outcome, Arc<StoreError>>, now: Duration) {
        let belief = self.config.belief().div_f64(self.rate);
        let first = self.unsure_beat;
        let proof = match result {
            Ok(Outcome::Applied(_)) => Some(sent),
            Ok(Outcome::Refused { current: Some(_) }) => first,
            Ok(_) => None,
            Err(_) => {
                self.unsure_beat = Some(first.unwrap_or(sent));
                return;
            }
        };
        self.unsure_beat = None;
        for key in self.believes.keys().filter(|_| proof.is_some()) {
            let proven = self.proven.entry(key.clone()).or_default();
            if now <= *proven + belief {
                *proven = proof.unwrap_or_default().max(*proven);
            }
        }
    }
}
