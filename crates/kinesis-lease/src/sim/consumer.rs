//! The consumers: they work on the shards that their worker holds, and check what they are told.

use std::time::Duration;

use kinesis_core::lease::{CoolDown, Lease, LeaseKey, TenureToken};
use kinesis_core::{Checkpoint, Position};

use super::fleet::{Fleet, Happening};
use super::number;
use crate::machine::{Event, ReplyId, Request};
use crate::{LeaseError, LossReason};

/// What a consumer does next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    /// Handles records for a while, then stores how far it is.
    Work(Duration),
    /// Has finished what it was asked to finish.
    Release,
    /// Says that the shard is finished.
    End,
}

/// A request that was not answered yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    key: LeaseKey,
    token: TenureToken,
    what: What,
    pub(super) since: Duration,
}

#[derive(Debug, Clone)]
enum What {
    Checkpoint(Checkpoint),
    Release,
    End,
}

impl Fleet {
    pub(super) fn acquired(&mut self, worker: usize, lease: &Lease, token: TenureToken) {
        let shard = number(&lease.key);
        self.note(|| format!("w{worker} begins {shard} in epoch {} at {}", lease.epoch, lease.checkpoint));
        self.moves += 1;
        self.coverage.tenures += 1;
        if let Some(problem) = self.problem_of_beginning(worker, lease, token) {
            return self.violated(format!("w{worker} begins {shard}: {problem}"));
        }
        self.watch.begun(shard, lease.epoch, token);
        self.coverage.recognised += u64::from(self.watch.unanswered.remove(&token));
        let parents = self.stream.shards[&shard].parents.clone();
        if let [a, b] = parents[..]
            && self.watch.ended_by.get(&a) != self.watch.ended_by.get(&b)
            && self.watch.across.insert(shard)
        {
            self.coverage.merges_across_workers += 1;
        }
        if let Some(found) = self.workers.get_mut(&worker) {
            found.believes.insert(lease.key.clone(), token);
            let sent = found.takings.remove(&token).unwrap_or_default();
            found.proven.insert(lease.key.clone(), sent);
            found.most_held = found.most_held.max(found.count_held());
        }
        self.work_on(worker, lease.key.clone(), token);
    }

    /// Why a tenure must not begin now.
    fn problem_of_beginning(&self, worker: usize, lease: &Lease, token: TenureToken) -> Option<String> {
        let shard = number(&lease.key);
        let found = self.workers.get(&worker)?;
        if found.believes.contains_key(&lease.key) {
            return Some("it holds it already".into());
        }
        // A stopped process does nothing; when it goes on, it learns first that its time is over.
        let other = self
            .workers
            .iter()
            .find(|(_, other)| other.paused_until <= self.now && other.believes.contains_key(&lease.key));
        if let (Some((other, _)), true) = (other, self.has_close_clocks()) {
            return Some(format!("w{other} believes in it, too"));
        }
        if !self.stream.may_begin(shard) {
            return Some("its parents have not ended".into());
        }
        if found.stopping_since.is_some() {
            return Some("it is stopping".into());
        }
        if found.config.max_leases.is_some_and(|limit| found.believes.len() >= limit) {
            return Some("it has as many as it may".into());
        }
        let row = self.table.rows.get(&lease.key)?;
        if row.token == Some(token) && row.checkpoint != lease.checkpoint {
            return Some(format!("at {}, but {} is stored", lease.checkpoint, row.checkpoint));
        }
        let from_start = self.stream.shards[&shard].made_at > Duration::ZERO;
        if from_start && lease.checkpoint == Checkpoint::Latest && lease.anchor.is_none() {
            return Some("at the tip, although it follows a known shard".into());
        }
        let made_anew = self.stream.shards[&shard].trimmed;
        self.watch.problem_of_tenure(shard, lease.epoch, token, made_anew)
    }

    fn work_on(&mut self, worker: usize, key: LeaseKey, token: TenureToken) {
        let length = self.millis(500..4_000);
        self.later(length, worker, Happening::Consumer(key, token, Deed::Work(length)));
    }

    pub(super) fn asked(&mut self, worker: usize, key: LeaseKey, token: TenureToken) {
        self.note(|| format!("w{worker} is asked for {}", number(&key)));
        self.coverage.hand_overs += 1;
        if !self.chance(self.settings.faults.deaf) {
            let delay = self.millis(1..3_000);
            self.later(delay, worker, Happening::Consumer(key, token, Deed::Release));
        }
    }

    pub(super) fn lost(&mut self, worker: usize, key: &LeaseKey, token: TenureToken, reason: LossReason) {
        let shard = number(key);
        self.note(|| format!("w{worker} lost {shard}: {reason}"));
        match reason {
            LossReason::Expired => self.coverage.expiries += 1,
            LossReason::HandOverOverrun => self.coverage.cut_short += 1,
            LossReason::Taken => {
                let still_there = self.table.rows.get(key).is_some_and(|row| row.token == Some(token));
                if still_there {
                    self.violated(format!("w{worker} lost {shard}, but its tenure is in the row"));
                }
            }
            _ => {}
        }
        if self.watch.gentle && reason != LossReason::ShardGone {
            self.violated(format!("w{worker} lost {shard} without a reason: {reason}"));
        }
        self.ended(worker, key);
    }

    /// A tenure is over for its consumer.
    pub(super) fn ended(&mut self, worker: usize, key: &LeaseKey) {
        let found = self.workers.get_mut(&worker);
        if found.is_some_and(|found| found.believes.remove(key).is_some()) {
            self.moves += 1;
        }
    }

    fn request(
        &mut self,
        worker: usize,
        key: &LeaseKey,
        token: TenureToken,
        what: What,
        request: impl FnOnce(ReplyId) -> Request,
    ) {
        let since = self.now;
        let Some(found) = self.workers.get_mut(&worker) else { return };
        found.next_reply += 1;
        let reply = found.next_reply;
        found.pending.insert(reply, Pending { key: key.clone(), token, what, since });
        self.step(worker, Event::Request(request(reply)));
    }

    pub(super) fn consume(&mut self, worker: usize, key: LeaseKey, token: TenureToken, deed: Deed) {
        let believes = self.workers.get(&worker).and_then(|found| found.believes.get(&key));
        if believes != Some(&token) && !matches!(deed, Deed::End) {
            return;
        }
        match deed {
            Deed::Work(length) => self.work(worker, key, token, length),
            Deed::Release => self.release(worker, &key, token, None),
            Deed::End => self.end(worker, &key, token),
        }
    }

    fn work(&mut self, worker: usize, key: LeaseKey, token: TenureToken, length: Duration) {
        let shard = number(&key);
        let Some(truth) = self.stream.shards.get_mut(&shard) else { return };
        if truth.trimmed {
            // Nothing can be read any more; the coordinator finds out by itself.
            return self.work_on(worker, key, token);
        }
        if !truth.open {
            truth.left = truth.left.saturating_sub(length);
            if truth.left.is_zero() {
                truth.consumed = true;
                self.watch.ended_by.insert(shard, worker);
                self.ended(worker, &key);
                return self.end(worker, &key, token);
            }
        }
        if self.random.u32(0..1_000) < self.settings.faults.poison {
            self.coverage.rests += 1;
            let rest = self.millis(2_000..8_000);
            return self.release(worker, &key, token, Some(CoolDown::new(rest, 1)));
        }
        if self.settings.config.worker_heartbeat && !token.get().is_multiple_of(3) {
            // Nothing is stored for it: its heartbeats are those of its worker.
            return self.work_on(worker, key, token);
        }
        let mut at = self.now.as_millis();
        let often = self.chance(20);
        if self.chance(10) {
            at = at.saturating_sub(self.random.u128(0..5_000));
        }
        self.checkpoint(worker, &key, token, at);
        if often {
            // Others of the same consumer store places at the same moment, not in their order.
            let older = at.saturating_sub(self.random.u128(0..3_000));
            for at in [older, at + 2, at + 1] {
                self.checkpoint(worker, &key, token, at);
            }
        }
        self.work_on(worker, key, token);
    }

    fn checkpoint(&mut self, worker: usize, key: &LeaseKey, token: TenureToken, at: u128) {
        let checkpoint = Checkpoint::At(Position::new(at.into(), 0));
        let what = What::Checkpoint(checkpoint.clone());
        let key = key.clone();
        self.request(worker, &key.clone(), token, what, |reply| Request::Checkpoint {
            key,
            token,
            checkpoint,
            reply,
        });
    }

    /// The consumer has stopped before it asks for the end of its tenure.
    fn release(&mut self, worker: usize, key: &LeaseKey, token: TenureToken, cool_down: Option<CoolDown>) {
        self.ended(worker, key);
        let of = key.clone();
        self.request(worker, key, token, What::Release, |reply| Request::Release {
            key: of,
            token,
            cool_down,
            reply,
        });
    }

    fn end(&mut self, worker: usize, key: &LeaseKey, token: TenureToken) {
        self.note(|| format!("w{worker} ends {}", number(key)));
        let told = !self.chance(20);
        let children = if told { self.stream.children(number(key)) } else { Vec::new() };
        let of = key.clone();
        self.request(worker, key, token, What::End, |reply| Request::End { key: of, token, children, reply });
    }

    pub(super) fn replied(&mut self, worker: usize, id: ReplyId, result: Result<(), LeaseError>) {
        let found = self.workers.get_mut(&worker).and_then(|found| found.pending.remove(&id));
        let Some(pending) = found else {
            return self.violated(format!("w{worker} was answered twice"));
        };
        let shard = number(&pending.key);
        match (&pending.what, result) {
            (What::Checkpoint(checkpoint), Ok(())) => {
                let stored = self.table.rows.get(&pending.key).map(|row| &row.checkpoint);
                if stored.is_some_and(|stored| stored < checkpoint) {
                    self.violated(format!("w{worker}: {checkpoint} of {shard} was told stored, and is not"));
                }
            }
            (What::End, Err(error)) if !error.is_lost() => {
                // The lease is still ours.
                let (key, token) = (pending.key, pending.token);
                self.later(Duration::from_secs(1), worker, Happening::Consumer(key, token, Deed::End));
            }
            _ => {}
        }
    }

    /// The row of a shard says that it is finished.
    pub(super) fn stored_end(&mut self, shard: u32) {
        let truth = &self.stream.shards[&shard];
        if truth.trimmed {
            self.coverage.gone += 1;
            return;
        }
        if !truth.consumed {
            return self.violated(format!("{shard} was closed, but it was not read to its end"));
        }
        self.coverage.ends += 1;
        let is_missing = |child: &u32| !self.has_row(*child) && !self.stream.shards[child].trimmed;
        let missing: Vec<u32> = truth.children.iter().copied().filter(is_missing).collect();
        if let Some(child) = missing.first() {
            self.violated(format!("the end of {shard} was stored, but its child {child} has no lease"));
        }
    }
}
