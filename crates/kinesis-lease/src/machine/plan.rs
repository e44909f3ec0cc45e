//! What is due: looks, renewals, checkpoints, ends of tenures, reads of doubtful rows.

use std::time::{Duration, Instant};

use kinesis_core::lease::LeaseKey;

use super::held::{Closing, EndStage};
use super::{Action, FIRST_RETRY, Machine, Purpose, RETRIES_PER_HEARTBEAT, UNHURRIED_BATCHES};
use crate::mutant::{self, Mutant};
use crate::{LossReason, ops};

impl Machine {
    /// Says what to do now.
    pub(crate) fn plan(&mut self, now: Instant) -> Vec<Action> {
        self.end_what_is_over(now);
        self.write_held(now);
        self.write_beat(now);
        self.read_doubts(now);
        self.watch_rows(now);
        if !self.looking && self.next_look.is_none_or(|at| at <= now) {
            self.looking = true;
            self.next_look = None;
            self.look_begins();
            self.actions.push(Action::Look);
        }
        std::mem::take(&mut self.actions)
    }

    /// When to plan again, unless something happens before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let look = self.next_look.into_iter().chain(self.next_watch()).filter(|_| !self.looking);
        let doubts = self.doubts.values().filter_map(|doubt| doubt.read_at);
        let calm = self.batches.len() < UNHURRIED_BATCHES;
        let (due, belief) = (self.due(), self.belief());
        let held = self.held.values().flat_map(|held| {
            let renewal = due.of(held);
            let due = held.wanted_at().filter(|_| calm).map_or(renewal, |at| renewal.min(at));
            let write = (!held.in_flight()).then(|| match held.retry_at {
                Some(retry) if held.can_close() => retry,
                Some(retry) => retry.max(due),
                None => due,
            });
            // The end of a hand-over is of no interest once the tenure is being closed.
            let hand_over = held.hand_over.filter(|_| held.closing.is_none());
            [Some(belief.until(held)), hand_over, write]
        });
        look.chain(doubts).chain(self.beat_at()).chain(held.flatten()).min()
    }

    /// The next look is made at once, or right after the one under way.
    pub(super) fn look_soon(&mut self) {
        if self.is_sparing() {
            return self.want_look();
        }
        // Any time in the past will do, and `None` is that.
        self.next_look = None;
        self.look_again = self.looking;
    }

    pub(super) fn heartbeat(&self) -> Duration {
        self.config.heartbeat_interval * if mutant::is_on(Mutant::RenewedLate) { 4 } else { 1 }
    }

    fn end_what_is_over(&mut self, now: Instant) {
        let belief = self.belief();
        let expired: Vec<LeaseKey> = self
            .held
            .iter()
            .filter(|(_, held)| now >= belief.until(held))
            .map(|(key, _)| key.clone())
            .collect();
        for key in expired {
            self.lose(&key, LossReason::Expired);
        }
        let overrun: Vec<LeaseKey> = self
            .held
            .iter()
            .filter(|(_, held)| held.closing.is_none() && held.hand_over.is_some_and(|at| now >= at))
            .filter(|_| !mutant::is_on(Mutant::HandOverEndless))
            .map(|(key, _)| key.clone())
            .collect();
        for key in overrun {
            self.give_away(&key, LossReason::HandOverOverrun);
        }
    }

    /// Ends the tenure for its consumer at once and makes the last write afterwards.
    pub(super) fn give_away(&mut self, key: &LeaseKey, reason: LossReason) {
        let Some(mut held) = self.held.remove(key) else { return };
        self.lost_for_consumer(&mut held, reason);
        held.close_silently();
        self.held.insert(key.clone(), held);
    }

    fn write_held(&mut self, now: Instant) {
        let calm = self.batches.len() < UNHURRIED_BATCHES;
        let due = self.due();
        let is_due = |held: &super::Held, slack| now + slack >= due.of(held);
        let may_write =
            |held: &super::Held, slack| !held.in_flight() && held.retry_at.is_none_or(|at| at <= now + slack);
        // Once one lease is due, others that soon will be go with it: one call instead of many.
        let any_due =
            self.held.values().any(|held| may_write(held, Duration::ZERO) && is_due(held, Duration::ZERO));
        let slack = if any_due { self.heartbeat() / 4 } else { Duration::ZERO };
        let is_retried = |held: &super::Held| held.retry_at.is_some() && may_write(held, Duration::ZERO);
        let any_retried = self.held.values().any(is_retried);
        let retry_slack = if any_retried { FIRST_RETRY / 4 } else { Duration::ZERO };
        let window = self.load_window();
        let mut writes = Vec::new();
        for held in self.held.values_mut().filter(|held| may_write(held, retry_slack)) {
            if let Some(Closing::End { children, stage: stage @ EndStage::Children, .. }) = &mut held.closing
            {
                *stage = EndStage::Creating(children.len());
                let of = held.row.key.clone();
                writes.extend(
                    children
                        .iter()
                        .map(|child| (ops::create(child.clone()), Purpose::Child { of: of.clone() })),
                );
                if children.is_empty() {
                    *stage = EndStage::Ready;
                }
            }
            if let Some(write) = held.closing_write() {
                held.sent(now, true);
                writes.push((write, Purpose::Hold));
            } else if is_due(held, slack) || (calm && held.wanted_at().is_some_and(|at| at <= now)) {
                let mut write = held.keeping_write();
                if let Some(window) = window {
                    held.load.note(&mut write, now, window);
                }
                held.sent(now, false);
                writes.push((write, Purpose::Hold));
            }
        }
        self.issue(now, writes);
    }

    fn read_doubts(&mut self, now: Instant) {
        let is_due = |doubt: &super::Doubt, slack| doubt.read_at.is_some_and(|at| at <= now + slack);
        if !self.doubts.values().any(|doubt| is_due(doubt, Duration::ZERO)) {
            return;
        }
        // Others that soon will be go with it: one call instead of many.
        let slack = self.config.heartbeat_interval / RETRIES_PER_HEARTBEAT;
        let mut keys = Vec::new();
        for (key, doubt) in &mut self.doubts {
            if is_due(doubt, slack) {
                doubt.read_at = None;
                keys.push(key.clone());
            }
        }
        self.actions.push(Action::Read(keys));
    }
}
