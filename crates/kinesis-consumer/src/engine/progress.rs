//! How far one tenure is: the tracker behind a lock, the verbs of handlers, and what is stored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kinesis_core::lease::LeaseStore;
use kinesis_core::processing::{CheckpointError, CheckpointSink, CheckpointVerb};
use kinesis_core::{Checkpoint, Position};
use kinesis_lease::{LeaseError, Tenure};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::tracker::Tracker;

/// How many positions may wait to be written, while a store does not answer.
const MOST_WAITING: usize = 8;

/// Shared between the shard's task, the batches and records that it handed out, and their handles.
pub(crate) struct Progress {
    state: Mutex<State>,
    /// Something was finished, or a handle was dropped.
    changed: Notify,
    tenure: Tenure,
    verb: CheckpointVerb,
    /// Where the position is read from, when handlers' transactions move it.
    positions: Option<Arc<dyn LeaseStore>>,
}

struct State {
    tracker: Tracker,
    stored: Option<Position>,
    /// Tickets whose handle was dropped unfinished: their records are offered again.
    dropped: Vec<u64>,
    /// The work has ended: nothing is accepted any more.
    closed: bool,
    /// When the watermark moved last, or the first of the unfinished records was handed out.
    advanced_at: Instant,
}

impl State {
    /// Changes the tracker, and notes when that moves the watermark.
    fn change<T>(&mut self, change: impl FnOnce(&mut Tracker) -> T) -> T {
        let before = self.tracker.first_unfinished().map(|(ticket, _)| ticket);
        let result = change(&mut self.tracker);
        if self.tracker.first_unfinished().map(|(ticket, _)| ticket) != before {
            self.advanced_at = Instant::now();
        }
        result
    }
}

impl Progress {
    pub(crate) fn new(
        tenure: Tenure,
        verb: CheckpointVerb,
        positions: Option<Arc<dyn LeaseStore>>,
    ) -> Arc<Self> {
        let stored = tenure.lease().checkpoint.position().cloned();
        let state = State {
            tracker: Tracker::new(stored.clone()),
            stored,
            dropped: Vec::new(),
            closed: false,
            advanced_at: Instant::now(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), tenure, verb, positions })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliver(&self, position: &Position) -> u64 {
        self.state().change(|tracker| tracker.deliver(position.clone()))
    }

    /// Notes that a handler took everything up to a record without an error.
    pub(crate) fn taken(&self, position: &Position) {
        self.state().tracker.taken(position);
    }

    pub(crate) fn finish(&self, ticket: u64) {
        self.state().change(|tracker| tracker.finish(ticket));
        self.changed.notify_waiters();
    }

    pub(crate) fn finish_range(&self, first: &Position, last: &Position) {
        self.state().change(|tracker| tracker.finish_range(first, last));
        self.changed.notify_waiters();
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.state().tracker.unfinished()
    }

    pub(crate) fn stored(&self) -> Option<Position> {
        self.state().stored.clone()
    }

    pub(crate) fn last_delivered(&self) -> Option<Position> {
        self.state().tracker.last_delivered().cloned()
    }

    /// The last record that a handler took without an error: what a checkpoint without a position stores when the
    /// tenure ends. Records behind it are still to be processed.
    pub(crate) fn last_taken(&self) -> Option<Position> {
        self.state().tracker.last_taken().cloned()
    }

    pub(crate) fn is_finished(&self, ticket: u64) -> bool {
        self.state().tracker.is_finished(ticket)
    }

    pub(crate) fn is_finished_at(&self, position: &Position) -> bool {
        self.state().tracker.is_finished_at(position)
    }

    /// For how long records have been handed out without the first of them being finished.
    pub(crate) fn age(&self) -> Duration {
        let state = self.state();
        if state.tracker.unfinished() == 0 { Duration::ZERO } else { state.advanced_at.elapsed() }
    }

    /// A record's handle was dropped unfinished.
    pub(super) fn handle_dropped(&self, ticket: u64) {
        {
            let mut state = self.state();
            if !state.closed && !state.tracker.is_finished(ticket) {
                state.dropped.push(ticket);
            }
        }
        self.changed.notify_waiters();
    }

    /// The record is offered again for another reason, or finished.
    pub(super) fn forget_dropped(&self, ticket: u64) {
        self.state().dropped.retain(|dropped| *dropped != ticket);
    }

    /// Takes the tickets whose handles were dropped unfinished.
    pub(crate) fn take_dropped(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().dropped)
    }

    /// Waits until fewer than `limit` records are unfinished, or a handle was dropped. Cancel-safe.
    pub(crate) async fn below(&self, limit: usize) {
        self.wait_for(|state| state.tracker.unfinished() < limit || !state.dropped.is_empty()).await;
    }

    /// Waits until no handler can move the watermark any more: everything is finished, or what comes first is a record
    /// that would have to be offered again, at `failed` or with a dropped handle. Cancel-safe.
    pub(crate) async fn settled(&self, failed: Option<&Position>) {
        self.wait_for(|state| match state.tracker.first_unfinished() {
            Some((ticket, first)) => {
                failed.is_some_and(|failed| failed <= first) || state.dropped.contains(&ticket)
            }
            None => true,
        })
        .await;
    }

    async fn wait_for(&self, done: impl Fn(&State) -> bool + Send) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, so that no change is missed in between.
            changed.as_mut().enable();
            if done(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Accepts nothing more from handles and checkpointers.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Whether handlers' transactions move the stored position.
    pub(crate) fn is_transactional(&self) -> bool {
        self.positions.is_some()
    }

    /// Takes over the position that is stored, whoever moved it: what lies before it is finished.
    async fn read_back(&self, positions: &dyn LeaseStore) -> Result<(), CheckpointError> {
        let row = positions.get(std::slice::from_ref(self.tenure.key())).await;
        let row = row.map_err(|error| CheckpointError::Store(error.into()))?.into_iter().next().flatten();
        let Some(row) = row.filter(|row| row.epoch == self.tenure.fence().epoch()) else {
            return Err(CheckpointError::LeaseLost);
        };
        if let Some(position) = row.checkpoint.position() {
            let mut state = self.state();
            state.change(|tracker| tracker.finish_up_to(position));
            state.stored = state.stored.take().max(Some(position.clone()));
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Stores the watermark, if it is past what is stored; or reads it back, where handlers' transactions move it.
    pub(crate) async fn store(&self) -> Result<(), CheckpointError> {
        self.store_spaced(Duration::ZERO).await
    }

    /// The same, in a write that comes so long after the one before.
    async fn store_spaced(&self, spacing: Duration) -> Result<(), CheckpointError> {
        if let Some(positions) = &self.positions {
            return self.read_back(&**positions).await;
        }
        let watermark = {
            let state = self.state();
            let watermark = state.tracker.watermark().cloned();
            if watermark <= state.stored {
                return Ok(());
            }
            watermark
        };
        let Some(position) = watermark else { return Ok(()) };
        let checkpoint = Checkpoint::At(position.clone());
        self.tenure.checkpoint_spaced(checkpoint, spacing).await.map_err(checkpoint_error)?;
        let mut state = self.state();
        if state.stored.as_ref() < Some(&position) {
            state.stored = Some(position);
        }
        Ok(())
    }

    /// Stores the watermark every `interval`, in writes that are so far apart, for as long as it is polled. Failures are
    /// the lease task's to retry and report; the next round tries again.
    pub(crate) async fn store_every(&self, interval: Duration, spacing: Duration) {
        if self.is_transactional() {
            return std::future::pending().await;
        }
        let mut next = Instant::now() + interval;
        // A position that still waits to be written makes room for a later one; all of them are answered by one write.
        let mut waiting = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(result) = waiting.next() => {
                    if let Err(error) = result {
                        let shard = &self.tenure.lease().key;
                        tracing::debug!(%shard, %error, "checkpoint was not stored, trying again");
                    }
                }
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + interval;
                    if waiting.len() < MOST_WAITING {
                        waiting.push(self.store_spaced(spacing));
                    }
                }
            }
        }
    }

    fn check(&self, verb: CheckpointVerb, position: &Position) -> Result<(), CheckpointError> {
        if self.is_transactional() {
            return Err(CheckpointError::Transactional);
        }
        if self.verb != verb {
            return Err(CheckpointError::wrong_verb(self.verb));
        }
        if self.tenure.ownership().is_lost() {
            return Err(CheckpointError::LeaseLost);
        }
        let state = self.state();
        if state.closed {
            return Err(CheckpointError::Closed);
        }
        match state.tracker.last_delivered() {
            Some(last) if position <= last => Ok(()),
            last => {
                let last =
                    last.cloned().unwrap_or_else(|| Position::new(kinesis_core::SequenceNumber::ZERO, 0));
                Err(CheckpointError::out_of_range(position.clone(), last))
            }
        }
    }
}

pub(crate) fn checkpoint_error(error: LeaseError) -> CheckpointError {
    match error {
        LeaseError::Lost => CheckpointError::LeaseLost,
        LeaseError::Closed => CheckpointError::Closed,
        other => CheckpointError::Store(other.into()),
    }
}

#[async_trait]
impl CheckpointSink for Progress {
    async fn checkpoint_to(&self, position: &Position) -> Result<(), CheckpointError> {
        self.check(CheckpointVerb::UpTo, position)?;
        self.state().change(|tracker| tracker.finish_up_to(position));
        self.changed.notify_waiters();
        self.store().await
    }

    fn done(&self, position: &Position) -> Result<(), CheckpointError> {
        self.check(CheckpointVerb::Done, position)?;
        let known = self.state().change(|tracker| tracker.finish_at(position));
        self.changed.notify_waiters();
        if known {
            return Ok(());
        }
        let last = self.state().tracker.last_delivered().cloned();
        Err(CheckpointError::out_of_range(position.clone(), last.unwrap_or_else(|| position.clone())))
    }
}
