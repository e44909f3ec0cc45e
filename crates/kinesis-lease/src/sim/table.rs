//! The table of the leases, and what must be true of every write that it accepts.

use std::collections::BTreeMap;
use std::time::Duration;

use kinesis_core::lease::{Change, FieldWrite, Guard, Lease, LeaseKey, LeaseWrite, Outcome, TenureToken};
use kinesis_core::{Checkpoint, WorkerId};

use crate::LeaseConfig;
use crate::memory::apply_to_rows;
use crate::worker_row;

/// A write and the tenure that its worker held on that row when it was issued.
#[derive(Debug, Clone)]
pub(super) struct TaggedWrite {
    pub(super) write: LeaseWrite,
    pub(super) tenure: Option<TenureToken>,
}

/// What is known of one row besides the row.
#[derive(Debug, Clone, Default)]
struct Past {
    /// The furthest checkpoint that was ever stored, also if the row was removed since.
    furthest: Option<Checkpoint>,
    /// When the row last showed a sign of life.
    moved_at: Duration,
    /// Since when the present hand-over is asked for.
    asked_at: Option<Duration>,
}

/// How a lease was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// Nobody held it.
    Free,
    /// Its holder had expired.
    Expired,
    /// Its holder did not answer a hand-over.
    Overdue,
}

/// Rows, shared by all workers.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: BTreeMap<LeaseKey, Lease>,
    /// The rows of workers.
    pub(super) workers: BTreeMap<LeaseKey, Lease>,
    /// When each worker last showed a sign of life in its row.
    beats: BTreeMap<WorkerId, Duration>,
    past: BTreeMap<LeaseKey, Past>,
    /// How long a live holder must have stood still before its lease may be taken.
    shortest_expiry: Duration,
    /// How long a holder that lives must have been asked before it may be robbed.
    shortest_patience: Duration,
    /// The fastest rate of a clock.
    fastest: f64,
}

/// What an accepted write did.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) outcome: Outcome,
    pub(super) taking: Option<Taking>,
}

impl Table {
    /// An empty table of workers with these settings, whose fastest clock has the given rate.
    pub(super) fn new(config: &LeaseConfig, fastest: f64) -> Self {
        Self {
            rows: BTreeMap::new(),
            workers: BTreeMap::new(),
            beats: BTreeMap::new(),
            past: BTreeMap::new(),
            shortest_expiry: config.expiry.div_f64(fastest),
            shortest_patience: (config.hand_over_timeout + config.expiry).div_f64(fastest),
            fastest,
        }
    }

    /// When the row last showed a sign of life.
    pub(super) fn moved_at(&self, key: &LeaseKey) -> Duration {
        self.past.get(key).map(|past| past.moved_at).unwrap_or_default()
    }

    /// All rows, as a scan reads them.
    pub(super) fn all_rows(&self) -> Vec<Lease> {
        self.rows.values().chain(self.workers.values()).cloned().collect()
    }

    /// One row by its key.
    pub(super) fn row(&self, key: &LeaseKey) -> Option<Lease> {
        self.rows.get(key).or_else(|| self.workers.get(key)).cloned()
    }

    /// Applies a write to the row of a worker.
    ///
    /// # Errors
    /// What must never happen.
    pub(super) fn apply_to_worker(&mut self, write: &LeaseWrite, now: Duration) -> Result<Outcome, String> {
        let before = self.workers.get(&write.key).cloned();
        let outcome = apply_to_rows(&mut self.workers, write);
        let (Outcome::Applied(after), false) = (&outcome, write.change == Change::Delete) else {
            return Ok(outcome);
        };
        let counter = before.as_ref().map(|row| row.counter);
        if counter.is_some_and(|counter| counter > after.counter) {
            return Err(format!("the counter of {} went back", write.key));
        }
        if counter != Some(after.counter) {
            self.beats.extend(after.owner.clone().map(|owner| (owner, now)));
        }
        Ok(outcome)
    }

    /// Applies a write as a store does; `is_past` says that the service has nothing of the shard any more, and
    /// `holder_believes` that its holder does, so that its heartbeats count.
    ///
    /// # Errors
    /// What must never happen.
    pub(super) fn apply(
        &mut self,
        tagged: &TaggedWrite,
        is_past: bool,
        holder_believes: bool,
        now: Duration,
    ) -> Result<Applied, String> {
        let write = &tagged.write;
        let before = self.rows.get(&write.key).cloned();
        let outcome = apply_to_rows(&mut self.rows, write);
        let mut applied = Applied { outcome, taking: None };
        let Outcome::Applied(after) = &applied.outcome else { return Ok(applied) };
        let shard = write.key.shard();
        let past = self.past.entry(write.key.clone()).or_default();
        if let (Some(tenure), Some(before)) = (tagged.tenure, &before)
            && before.token != Some(tenure)
        {
            return Err(format!("a write of a former tenure of {shard} was accepted"));
        }
        if before.is_none() && is_past {
            // A listing from before its end of a shard that has nothing to read any more: no record is repeated.
            past.furthest = None;
        }
        if past.furthest.as_ref().is_some_and(|furthest| *furthest > after.checkpoint) {
            return Err(format!("the checkpoint of {shard} went back to {}", after.checkpoint));
        }
        past.furthest = Some(after.checkpoint.clone());
        if let Some(before) = &before {
            if before.counter > after.counter || before.epoch > after.epoch {
                return Err(format!("the counter or the epoch of {shard} went back"));
            }
            let begins = after.token.is_some() && after.token != before.token;
            if begins && (before.counter == after.counter || before.epoch == after.epoch) {
                return Err(format!("{shard} was taken without a trace in its counter and epoch"));
            }
            let rest = before.cool_down.filter(|_| before.token.is_none()).map(|cool_down| cool_down.rest);
            if begins && rest.is_some_and(|rest| now - past.moved_at < rest.div_f64(self.fastest)) {
                return Err(format!("{shard} was taken although it rests"));
            }
            if begins {
                let taking = past.taking(before);
                let beat =
                    before.holder().filter(|_| holder_believes).and_then(|holder| self.beats.get(holder));
                let beat = beat.copied().unwrap_or_default();
                let (still, asked) = (now - past.moved_at.max(beat), past.asked_at.map(|at| now - at));
                let long = asked.is_some_and(|asked| asked >= self.shortest_patience);
                match taking {
                    Taking::Expired if still < self.shortest_expiry && long => {
                        applied.taking = Some(Taking::Overdue);
                    }
                    Taking::Expired if still < self.shortest_expiry => {
                        let still = still.as_secs_f64();
                        return Err(format!("{shard} was taken from a holder that moved {still:.3} s ago"));
                    }
                    taking => applied.taking = Some(taking),
                }
            }
            if (before.counter, before.token) != (after.counter, after.token) {
                past.moved_at = now;
            }
        } else {
            past.moved_at = now;
        }
        match (&after.checkpoint_owner, past.asked_at) {
            (None, _) => past.asked_at = None,
            (Some(_), None) => past.asked_at = Some(now),
            (Some(_), Some(_)) => {}
        }
        Ok(applied)
    }
}

impl Past {
    fn taking(&self, before: &Lease) -> Taking {
        if before.token.is_some() { Taking::Expired } else { Taking::Free }
    }
}

/// The token of a taking.
pub(super) fn token_of(write: &LeaseWrite) -> Option<TenureToken> {
    let Change::Update(fields) = &write.change else { return None };
    fields.iter().find_map(|field| match field {
        FieldWrite::Token(token) => *token,
        _ => None,
    })
}

/// Whether the write makes that worker the owner.
pub(super) fn names(write: &LeaseWrite, worker: usize) -> bool {
    let name = format!("w{worker}");
    let is_name =
        |field: &FieldWrite| matches!(field, FieldWrite::Owner(Some(owner)) if owner.as_str() == name);
    matches!(&write.change, Change::Update(fields) if fields.iter().any(is_name))
}

/// Whether the write stores the end of a shard.
pub(super) fn is_end(write: &LeaseWrite) -> bool {
    let ends =
        |field: &FieldWrite| matches!(field, FieldWrite::Checkpoint(checkpoint) if checkpoint.is_shard_end());
    matches!(&write.change, Change::Update(fields) if fields.iter().any(ends))
}

/// Whether the write tells a worker that it is asked for a lease.
pub(super) fn is_ask(write: &LeaseWrite) -> bool {
    write.guard == Guard::Exists
}

/// Whether the write is the heartbeat of a whole worker.
pub(super) fn is_beat(write: &LeaseWrite) -> bool {
    worker_row::is_one(&write.key) && !is_ask(write) && write.change != Change::Delete
}
