//! A lease that we hold: its row, the write under way, and what callers want of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::lease::{CoolDown, Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};
use kinesis_core::{Checkpoint, ShardId};

use super::{Action, Machine, Phase, ReplyId, retry_delay};
use crate::load::Average;
use crate::mutant::{self, Mutant};
use crate::{LeaseError, LossReason, ops};

/// How a tenure is to end.
#[derive(Debug)]
pub(super) enum Closing {
    /// By giving the lease up.
    Release { cool_down: Option<CoolDown>, reply: Option<ReplyId> },
    /// By the end of the shard.
    End { children: Vec<Lease>, ids: Vec<ShardId>, stage: EndStage, reply: Option<ReplyId> },
}

/// How far the end of a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndStage {
    /// Waits for a listing of the shards that begins after this time, and makes the rows of the children and of
    /// their other parents.
    Discovering(Instant),
    /// The children's rows are to be made.
    Children,
    /// The children's rows are being made; how many are left.
    Creating(usize),
    /// The children have rows; the end can be stored.
    Ready,
}

/// A write whose outcome is unknown.
#[derive(Debug, Clone, Copy)]
struct Unsure {
    /// When the first try began.
    since: Instant,
    /// Whether one of the tries would have ended the tenure.
    closing: bool,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) row: Lease,
    pub(super) token: TenureToken,
    /// When the last successful write began; we believe in the lease for a while from then on.
    pub(super) valid_from: Instant,
    /// When the last read or write began that showed that nobody asks for the lease.
    pub(super) unasked: Instant,
    /// Whether a write is under way, and whether that write ends the tenure.
    flight: Option<bool>,
    unsure: Option<Unsure>,
    pub(super) retry_at: Option<Instant>,
    failures: u32,
    wanted: Option<Checkpoint>,
    /// How long after the last write that may be written; the least of those who wait.
    spacing: Option<Duration>,
    /// When the last write began.
    sent_at: Instant,
    waiters: Vec<(Checkpoint, ReplyId)>,
    pub(super) closing: Option<Closing>,
    pub(super) hand_over: Option<Instant>,
    /// The tenure is over for its consumer; only the last write is still to be made.
    ghost: bool,
    pub(super) load: Average,
}

impl Held {
    pub(super) fn new(row: Lease, token: TenureToken, valid_from: Instant) -> Self {
        Self {
            load: Average::new(&row, valid_from),
            row,
            token,
            valid_from,
            unasked: valid_from,
            flight: None,
            unsure: None,
            retry_at: None,
            failures: 0,
            wanted: None,
            spacing: None,
            sent_at: valid_from,
            waiters: Vec::new(),
            closing: None,
            hand_over: None,
            ghost: false,
        }
    }

    pub(super) fn is_ghost(&self) -> bool {
        self.ghost
    }

    pub(super) fn in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether this is that tenure and its consumer may still use it.
    pub(super) fn is_tenure(&self, token: TenureToken) -> bool {
        self.token == token && !self.ghost
    }

    pub(super) fn want(&mut self, checkpoint: Checkpoint, spacing: Duration, reply: ReplyId) {
        self.spacing = Some(self.spacing.map_or(spacing, |least| least.min(spacing)));
        self.waiters.push((checkpoint.clone(), reply));
        let is_later = self.wanted.as_ref().is_none_or(|wanted| *wanted < checkpoint);
        if is_later || mutant::is_on(Mutant::WantedLost) {
            self.wanted = Some(checkpoint);
        }
    }

    /// When the last write began.
    pub(super) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// When a checkpoint that waits is to be written.
    pub(super) fn wanted_at(&self) -> Option<Instant> {
        self.wanted.as_ref().and(self.spacing).map(|spacing| self.sent_at + spacing)
    }

    /// Whether the tenure is being closed and does not wait for something else.
    pub(super) fn can_close(&self) -> bool {
        match &self.closing {
            Some(Closing::Release { .. }) => true,
            Some(Closing::End { stage, .. }) => matches!(stage, EndStage::Children | EndStage::Ready),
            None => false,
        }
    }

    /// Whether it is to be kept: its next write is not its last.
    pub(super) fn is_kept(&self) -> bool {
        !self.ghost && !self.can_close()
    }

    /// Ends the tenure for its consumer and releases the lease without anybody waiting for it.
    pub(super) fn close_silently(&mut self) {
        self.ghost = true;
        self.hand_over = None;
        if self.closing.is_none() {
            self.closing = Some(Closing::Release { cool_down: None, reply: None });
        }
    }

    /// The write that ends the tenure, if it can be made now.
    pub(super) fn closing_write(&self) -> Option<LeaseWrite> {
        match self.closing.as_ref()? {
            Closing::Release { cool_down, .. } => {
                Some(ops::release(&self.row, self.token, self.wanted.clone(), *cool_down))
            }
            Closing::End { ids, stage: EndStage::Ready, .. } => {
                Some(ops::end(&self.row, self.token, ids.clone()))
            }
            Closing::End { .. } => None,
        }
    }

    /// The write that keeps the tenure: a checkpoint where one is wanted, else a renewal.
    pub(super) fn keeping_write(&self) -> LeaseWrite {
        match &self.wanted {
            Some(checkpoint) => ops::checkpoint(&self.row, self.token, checkpoint.clone()),
            None => ops::renew(&self.row, self.token),
        }
    }

    pub(super) fn sent(&mut self, now: Instant, closing: bool) {
        self.sent_at = now;
        self.flight = Some(closing);
        self.retry_at = None;
    }

    /// A write of ours is in the row, as it was read at `read_at` or later: takes over what the row says, and returns who
    /// waited for it.
    fn confirmed(&mut self, row: Lease, valid_from: Instant, read_at: Instant) -> Vec<ReplyId> {
        self.row = row;
        self.noted(read_at);
        self.valid_from = self.valid_from.max(valid_from);
        self.unsure = None;
        self.failures = 0;
        let stored = &self.row.checkpoint;
        if self.wanted.as_ref().is_some_and(|wanted| wanted <= stored) {
            self.wanted = None;
            self.spacing = None;
        }
        let is_stored = |at: &Checkpoint| at <= stored || mutant::is_on(Mutant::WatermarkEarly);
        let (done, waiting) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(at, _)| is_stored(at));
        self.waiters = waiting;
        done.into_iter().map(|(_, reply): (Checkpoint, ReplyId)| reply).collect()
    }

    /// The row looked like that at `read_at` or later.
    pub(super) fn noted(&mut self, read_at: Instant) {
        if self.row.checkpoint_owner.is_none() {
            self.unasked = self.unasked.max(read_at);
        }
    }

    /// Everybody who waits for something.
    fn all_waiters(&mut self) -> Vec<ReplyId> {
        let closing = match self.closing.take() {
            Some(Closing::Release { reply, .. } | Closing::End { reply, .. }) => reply,
            None => None,
        };
        self.wanted = None;
        std::mem::take(&mut self.waiters).into_iter().map(|(_, reply)| reply).chain(closing).collect()
    }
}

impl Machine {
    pub(super) fn held_write_ended(
        &mut self,
        now: Instant,
        key: &LeaseKey,
        started: Instant,
        result: Result<Outcome, Arc<StoreError>>,
    ) {
        // Not held any more, or anew since: the row was observed, nothing else matters.
        let Some(held) = self.held.get_mut(key).filter(|held| held.sent_at == started) else { return };
        let Some(closing) = held.flight.take() else { return };
        match result {
            Ok(Outcome::Applied(row)) if closing => self.close(now, key, &row),
            Ok(Outcome::Applied(row)) => {
                let valid_from = if mutant::is_on(Mutant::BeliefFromReply) { now } else { started };
                let done = held.confirmed(row, valid_from, started);
                done.into_iter().for_each(|reply| self.reply(reply, Ok(())));
                self.notice_hand_over(now, key);
            }
            Ok(Outcome::Refused { current }) => self.refused(now, key, started, current),
            Err(error) => self.failed(now, key, started, closing, &error),
            Ok(_) => {}
        }
    }

    /// A guard of ours did not hold: either an earlier write of ours was applied after all, or we lost the lease.
    pub(super) fn refused(&mut self, now: Instant, key: &LeaseKey, read_at: Instant, current: Option<Lease>) {
        let Some(held) = self.held.get_mut(key) else { return };
        let Some(row) = current else { return self.lose(key, LossReason::Deleted) };
        if row.token == Some(held.token) && !mutant::is_on(Mutant::OwnWriteForeign) {
            // Every taking changes the token: the tenure is still ours, and the row shows what we wrote. Nobody can
            // have seen that counter before our first try began.
            let valid_from = held.unsure.map_or(held.valid_from, |unsure| unsure.since);
            let done = held.confirmed(row, valid_from, read_at);
            done.into_iter().for_each(|reply| self.reply(reply, Ok(())));
            return self.notice_hand_over(now, key);
        }
        let released = match &held.closing {
            Some(Closing::Release { .. }) => true,
            Some(Closing::End { .. }) => row.is_finished(),
            None => false,
        };
        if held.unsure.is_some_and(|unsure| unsure.closing) && released {
            self.close(now, key, &row);
        } else if row.token.is_none() && row.owner.is_none() {
            // No worker leaves a row like that: neither a taking nor an end of ours.
            self.lose(key, LossReason::Changed);
        } else {
            self.lose(key, LossReason::Taken);
        }
    }

    fn failed(
        &mut self,
        now: Instant,
        key: &LeaseKey,
        started: Instant,
        closing: bool,
        error: &Arc<StoreError>,
    ) {
        let Some(held) = self.held.get_mut(key) else { return };
        let unsure = held.unsure.get_or_insert(Unsure { since: started, closing: false });
        unsure.closing |= closing;
        held.failures += 1;
        held.retry_at =
            Some(now + retry_delay(&mut self.random, &self.config, held.failures, error.retry_after()));
        if !error.is_retryable() && !held.ghost {
            let waiters = held.all_waiters();
            for reply in waiters {
                self.reply(reply, Err(LeaseError::Store(Arc::clone(error))));
            }
        }
    }

    /// The tenure ended as it was asked to.
    fn close(&mut self, now: Instant, key: &LeaseKey, row: &Lease) {
        let Some(mut held) = self.held.remove(key) else { return };
        self.kcl.handed_back(now, &self.me, row);
        tracing::debug!(%key, checkpoint = %row.checkpoint, "lease given up");
        let ended = matches!(held.closing, Some(Closing::End { .. }));
        let closing = match held.closing.take() {
            Some(Closing::Release { reply, .. } | Closing::End { reply, .. }) => reply,
            None => None,
        };
        for (at, reply) in std::mem::take(&mut held.waiters) {
            let result = if at <= row.checkpoint { Ok(()) } else { Err(LeaseError::Lost) };
            self.reply(reply, result);
        }
        if let Some(reply) = closing {
            self.reply(reply, Ok(()));
        }
        if !held.ghost {
            self.actions.push(Action::Ended { key: key.clone(), token: held.token });
        }
        if self.phase == Phase::Stopping {
            self.released.push(key.clone());
        }
        if ended {
            // The children wait for this.
            self.look_soon();
        }
    }

    /// The tenure ended against our will.
    pub(super) fn lose(&mut self, key: &LeaseKey, reason: LossReason) {
        let Some(mut held) = self.held.remove(key) else { return };
        self.lost_for_consumer(&mut held, reason);
        if self.phase == Phase::Stopping {
            self.lost_in_stop.push(key.clone());
        }
    }

    /// Tells the consumer that its tenure is over.
    pub(super) fn lost_for_consumer(&mut self, held: &mut Held, reason: LossReason) {
        if held.ghost {
            return;
        }
        tracing::warn!(key = %held.row.key, %reason, "lease lost");
        let (key, token) = (held.row.key.clone(), held.token);
        self.actions.push(Action::Lost { key, token, reason });
        for reply in held.all_waiters() {
            self.reply(reply, Err(LeaseError::Lost));
        }
    }

    /// Begins a hand-over when the row says that another worker wants the lease, or drops it when it no longer does.
    pub(super) fn notice_hand_over(&mut self, now: Instant, key: &LeaseKey) {
        let Some(held) = self.held.get(key) else { return };
        let deadline = self.hand_over_deadline(now, held);
        let Some(held) = self.held.get_mut(key) else { return };
        let wanted = held.row.checkpoint_owner.as_ref() == Some(&self.me) && held.row.owner.is_some();
        match held.hand_over {
            None if wanted && !held.ghost && held.closing.is_none() => {
                held.hand_over = Some(deadline);
                if mutant::is_on(Mutant::ReleaseBeforeDrain) {
                    held.closing = Some(Closing::Release { cool_down: None, reply: None });
                }
                tracing::debug!(%key, to = held.row.owner.as_ref().map(tracing::field::display), "lease asked for");
                let token = held.token;
                self.actions.push(Action::HandOver { key: key.clone(), token, deadline });
            }
            Some(_) if !wanted => held.hand_over = None,
            _ => {}
        }
    }
}
