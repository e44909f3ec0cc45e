//! The rows of workers in a fleet, and workers that are stopped just when they write something.

use std::time::Duration;

use kinesis_core::WorkerId;
use kinesis_core::lease::{Change, LeaseKey, Outcome};

use super::fleet::{Answer, Fleet, Happening};
use super::table::{TaggedWrite, is_ask, names};
use super::worker::Worker;
use crate::machine::{BatchId, Event};
use crate::worker_row;

impl Fleet {
    /// A worker that was told to stop just when it asks for a lease, and often does not hear of it.
    pub(super) fn grow_restless(&mut self, number: usize, writes: &[TaggedWrite]) {
        if self.restless != Some(number) || !writes.iter().any(|tagged| names(&tagged.write, number)) {
            return;
        }
        self.restless = None;
        self.coverage.hasty_stops += 1;
        self.loses = !self.watch.gentle && (!self.watch.storm || self.chance(50));
        let delay = self.millis(20..100);
        self.later(delay, number, Happening::Stop);
    }

    /// A worker that is stopped, as by a signal, while its heartbeat is on its way: that comes late, and the worker hears of
    /// it even later.
    pub(super) fn doze(&mut self, number: usize, writes: &[TaggedWrite]) {
        let beats =
            writes.iter().any(|tagged| worker_row::is_one(&tagged.write.key) && !is_ask(&tagged.write));
        if !beats || self.dozing.is_none_or(|(worker, ..)| worker != number) {
            return;
        }
        let Some((_, reach, length)) = self.dozing.take() else { return };
        self.slow = Some(reach);
        self.coverage.dozed += 1;
        self.later(Duration::from_millis(1), number, Happening::Doze(length));
    }

    /// A process that goes on after a stop finds the answer that came meanwhile, and not that it took too long.
    pub(super) fn answer_dozer(&mut self, number: usize, batch: BatchId, answer: Answer) {
        let now = self.now;
        let sleeps = |worker: &Worker| worker.paused_until > now && worker.config.worker_heartbeat;
        if !self.workers.get(&number).is_some_and(sleeps) {
            return;
        }
        let is_failure = |(of, happening): &&mut (usize, Happening)| {
            *of == number
                && matches!(happening, Happening::Deliver(Answer::Event(Event::Applied { batch: failed, .. })) if *failed == batch)
        };
        if let Some((_, failure)) = self.agenda.values_mut().find(is_failure) {
            *failure = Happening::Deliver(answer);
            self.coverage.late_answers += 1;
        }
    }

    /// Whether clocks differ by so little that no two workers may believe at once.
    pub(super) fn has_close_clocks(&self) -> bool {
        self.settings.rates.0 >= 0.95 && self.settings.rates.1 <= 1.05
    }

    /// Whether whoever holds the lease by its row believes in it. What it has lost, its heartbeats do not keep.
    pub(super) fn holder_believes(&self, key: &LeaseKey) -> bool {
        let token = self.table.rows.get(key).and_then(|row| row.token);
        let believes = |worker: &Worker| {
            worker.paused_until <= self.now && token.is_some() && worker.believes.get(key).copied() == token
        };
        self.has_close_clocks() && self.workers.values().any(believes)
    }

    pub(super) fn apply_to_worker(&mut self, worker: usize, tagged: &TaggedWrite) -> Outcome {
        let outcome = self.table.apply_to_worker(&tagged.write, self.now).unwrap_or_else(|violation| {
            self.violated(format!("{violation} (written by w{worker})"));
            Outcome::Refused { current: None }
        });
        let removes = tagged.write.change == Change::Delete;
        if let Outcome::Applied(row) = &outcome {
            let owner = row.owner.as_ref().map_or("-", WorkerId::as_str);
            let (counter, asked) = (row.counter, worker_row::asked_for(row).is_some());
            self.note(|| {
                format!("w{worker} wrote of {owner}: counter {counter}, asked {asked}, removed {removes}")
            });
            self.coverage.beats += u64::from(!removes);
            self.coverage.workers_removed += u64::from(removes && owner != format!("w{worker}"));
        }
        outcome
    }
}
