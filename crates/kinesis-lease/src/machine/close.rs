//! The end of a tenure: release, end of the shard, a shard that is gone, stop.

use std::sync::Arc;
use std::time::Instant;

use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{CoolDown, Lease, LeaseKey, Outcome, StoreError, TenureToken};

use super::held::{Closing, EndStage};
use super::observe::Seen;
use super::{Action, Found, Machine, Phase, Purpose, ReplyId, retry_delay};
use crate::mutant::{self, Mutant};
use crate::{LeaseError, LeaseWarning, LossReason, discovery, identity, ops};

impl Machine {
    pub(super) fn begin_release(
        &mut self,
        key: &LeaseKey,
        token: TenureToken,
        cool_down: Option<CoolDown>,
        reply: ReplyId,
    ) {
        match self.held.get_mut(key).filter(|held| held.is_tenure(token)) {
            Some(held) if held.closing.is_none() => {
                held.closing = Some(Closing::Release { cool_down, reply: Some(reply) });
            }
            // One of the two callers is told that the tenure ends by the other's call.
            _ => self.reply(reply, Err(LeaseError::Lost)),
        }
    }

    pub(super) fn begin_end(
        &mut self,
        now: Instant,
        key: &LeaseKey,
        token: TenureToken,
        children: &[ShardInfo],
        reply: ReplyId,
    ) {
        let is_open = self.held.get(key).is_some_and(|held| held.is_tenure(token) && held.closing.is_none());
        if !is_open {
            return self.reply(reply, Err(LeaseError::Lost));
        }
        // A child of a merge must not start before its other parent is finished, and rows decide that: a parent
        // without a row may be one that nobody has discovered yet.
        let has_row = |shard: &_| {
            let parent = key.sibling(Clone::clone(shard));
            self.seen.contains_key(&parent) || self.unreadable.contains(&parent)
        };
        let all_known = children.iter().flat_map(|child| &child.parents).all(has_row);
        let discover = children.is_empty() || (!all_known && !mutant::is_on(Mutant::OtherParentForgotten));
        if discover {
            self.actions.push(Action::Discover);
        }
        let closing = Closing::End {
            ids: children.iter().map(|child| child.id.clone()).collect(),
            children: self.leases_of(key, children),
            stage: if mutant::is_on(Mutant::EndBeforeChildren) {
                EndStage::Ready
            } else if discover {
                EndStage::Discovering(now)
            } else {
                EndStage::Children
            },
            reply: Some(reply),
        };
        self.held.entry(key.clone()).and_modify(|held| held.closing = Some(closing));
    }

    fn leases_of(&self, parent: &LeaseKey, children: &[ShardInfo]) -> Vec<Lease> {
        let row = self.held.get(parent).map(|held| &held.row);
        let lease = |child| {
            let mut lease = discovery::child(parent, child);
            row.into_iter().for_each(|row| identity::inherit(row, &mut lease));
            lease
        };
        children.iter().map(lease).collect()
    }

    /// A child's row was made, or was there already.
    pub(super) fn child_made(
        &mut self,
        now: Instant,
        of: &LeaseKey,
        key: &LeaseKey,
        result: Result<Outcome, Arc<StoreError>>,
    ) {
        let Some(held) = self.held.get_mut(of) else { return };
        let Some(Closing::End { stage, reply, .. }) = &mut held.closing else { return };
        match result {
            Ok(_) => {
                tracing::debug!(%key, parent = %of, "lease of a child made");
                match *stage {
                    EndStage::Creating(left) if left <= 1 => *stage = EndStage::Ready,
                    EndStage::Creating(left) => *stage = EndStage::Creating(left - 1),
                    _ => {}
                }
            }
            Err(error) if error.is_retryable() => {
                // All are made again: making is idempotent.
                *stage = EndStage::Children;
                held.retry_at =
                    Some(now + retry_delay(&mut self.random, &self.config, 1, error.retry_after()));
            }
            Err(error) => {
                let reply = reply.take();
                held.closing = None;
                if let Some(reply) = reply {
                    self.reply(reply, Err(LeaseError::Store(error)));
                }
            }
        }
    }

    pub(super) fn discovered(
        &mut self,
        now: Instant,
        began: Instant,
        result: Result<Found, Arc<DirectoryError>>,
    ) {
        let mut failed = Vec::new();
        for held in self.held.values_mut() {
            let Some(Closing::End { stage: stage @ EndStage::Discovering(_), reply, .. }) = &mut held.closing
            else {
                continue;
            };
            // An earlier listing may not show the children yet.
            if matches!(stage, EndStage::Discovering(asked) if began < *asked) {
                continue;
            }
            // A stream that is gone has no children.
            if let Some(error) = result.as_ref().err().filter(|error| error.is_retryable()) {
                failed.extend(reply.take().map(|reply| (reply, Arc::clone(error))));
                held.closing = None;
            } else {
                *stage = EndStage::Children;
            }
        }
        for (reply, error) in failed {
            self.reply(reply, Err(LeaseError::Directory(error)));
        }
        match result {
            Ok(found) => self.listed(now, began, found),
            Err(error) => {
                if !mutant::is_on(Mutant::GoneAcrossFailure) {
                    // It may have shown what the others missed.
                    self.found = Found::default();
                    self.spent_since.clear();
                }
                self.warn(LeaseWarning::Discovery(error));
            }
        }
    }

    fn listed(&mut self, now: Instant, began: Instant, mut found: Found) {
        let look = found.look.take();
        // Overtaken by a later one, it is not the one after the last.
        if self.listed_at.is_none_or(|last| last <= began) {
            self.listed_at = Some(began);
            // It cannot show a shard that was made after it began.
            let is_older = |key: &LeaseKey| {
                self.seen.get(key).is_some_and(|seen| seen.first_seen <= began)
                    || mutant::is_on(Mutant::GoneBeforeMade)
            };
            found.gone.retain(is_older);
            found.spent.retain(is_older);
            let last = std::mem::replace(&mut self.found, found);
            let twice = |key: &&LeaseKey| last.gone.contains(*key) || mutant::is_on(Mutant::GoneAtOnce);
            let gone: Vec<LeaseKey> = self.found.gone.iter().filter(twice).cloned().collect();
            if let Some(range) = self.found.hole.filter(|range| last.hole == Some(*range)) {
                self.warn(LeaseWarning::Hole(range));
            }
            self.close_gone(now, gone);
            self.collect(now);
        }
        match look {
            Some(look) => self.saw(now, look),
            None => self.look_soon(),
        }
    }

    /// Closes the leases of shards that were missing in two listings in a row.
    fn close_gone(&mut self, now: Instant, keys: Vec<LeaseKey>) {
        let mut writes = Vec::new();
        for key in keys {
            let Some(seen) = self.seen.get(&key) else { continue };
            let checkpoint = seen.row.checkpoint.clone();
            if self.held.contains_key(&key) {
                self.give_away(&key, LossReason::ShardGone);
                let closing = Closing::End {
                    children: Vec::new(),
                    ids: Vec::new(),
                    stage: EndStage::Ready,
                    reply: None,
                };
                self.held.entry(key.clone()).and_modify(|held| held.closing = Some(closing));
                self.warn(LeaseWarning::ShardGone { key, checkpoint });
            } else if seen.row.owner.is_none() || self.is_expired(seen, now) {
                writes.push((ops::close_gone(&seen.row), Purpose::Close { checkpoint }));
            }
            // Otherwise its owner finds out by itself.
        }
        self.issue(now, writes);
    }

    /// Removes the leases of finished shards that have been missing in all listings for a discovery interval: then no
    /// worker is likely to act upon a listing that still shows them.
    fn collect(&mut self, now: Instant) {
        let spent = &self.found.spent;
        self.spent_since.retain(|key, _| spent.contains(key));
        for key in spent {
            self.spent_since.entry(key.clone()).or_insert(now);
        }
        let is_old = |since: &Instant| now >= *since + self.config.discovery_interval;
        let old = self.spent_since.iter().filter(|(_, since)| is_old(since));
        let rows = old.filter_map(|(key, _)| self.seen.get(key));
        // A worker of the KCL looks after what it holds by itself.
        let is_free = |seen: &&Seen| !self.is_kcl_compatible() || !self.is_alive(seen, now);
        let finished = rows.filter(|seen| seen.row.is_finished()).filter(is_free);
        let writes = finished.map(|seen| (ops::collect(&seen.row), Purpose::Collect)).collect();
        self.issue(now, writes);
        self.remove_dead_workers(now);
    }

    pub(super) fn begin_stop(&mut self, now: Instant) {
        self.phase = Phase::Stopping;
        for (key, held) in &mut self.held {
            if !held.is_ghost() && held.closing.is_none() {
                // Over for its consumer before the row says so: another worker may take it the moment it does.
                self.actions.push(Action::Ended { key: key.clone(), token: held.token });
                held.close_silently();
            }
        }
        if !mutant::is_on(Mutant::RequestsLeft) {
            self.give_back(now);
        }
        if !self.unsettled.is_empty() {
            self.look_soon();
        }
    }
}
