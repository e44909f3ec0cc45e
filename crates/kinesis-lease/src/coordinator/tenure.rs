//! The handle of a held lease.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{CoolDown, Fence, Lease, LeaseKey, TenureToken};
use kinesis_core::{Checkpoint, Ownership, ShardRef};
use tokio::sync::{mpsc, oneshot};

use super::command::Command;
use crate::LeaseError;
use crate::load::Meter;

/// A renewal comes sooner; sums of times must not overflow.
const LONGEST_SPACING: Duration = Duration::from_secs(60 * 60);

/// A lease that is ours, from its taking to its end. A clone is the same tenure.
///
/// The lease is renewed as long as the coordinator lives, whatever becomes of the handles.
#[derive(Debug, Clone)]
pub struct Tenure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lease: Lease,
    shard: ShardRef,
    token: TenureToken,
    ownership: Ownership,
    meter: Arc<Meter>,
    commands: mpsc::Sender<Command>,
}

impl Tenure {
    pub(super) fn new(
        lease: Lease,
        shard: ShardRef,
        token: TenureToken,
        ownership: Ownership,
        meter: Arc<Meter>,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        Self(Arc::new(Inner { lease, shard, token, ownership, meter, commands }))
    }

    /// The row as it was when the lease was taken.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// The lease's identity.
    #[must_use]
    pub fn key(&self) -> &LeaseKey {
        &self.0.lease.key
    }

    /// The shard of the stream as the coordinator was given it: by name or by ARN. Leases are keyed by the name.
    #[must_use]
    pub fn shard_ref(&self) -> &ShardRef {
        &self.0.shard
    }

    /// The fencing token of this tenure, for other systems.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.lease.fence()
    }

    /// What tells this tenure from all others.
    #[must_use]
    pub fn token(&self) -> TenureToken {
        self.0.token
    }

    /// Whether the lease is still ours; also over after `release` and `end_shard`.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        self.0.ownership.clone()
    }

    /// Reports work on the shard since the last report: how long it kept the handler busy, and what was read. With
    /// [`Balance::Load`](crate::Balance::Load) the leases are shared by it; otherwise it is of no use and does no harm.
    ///
    /// Cheap: it waits for nothing and makes no call. Once anything was reported in a tenure (zeros count), silence means
    /// that the shard is idle. A long piece of work should be reported while it goes on, every few seconds.
    pub fn report_load(&self, busy: Duration, bytes: u64, records: u64) {
        self.0.meter.add(busy, bytes, records);
    }

    /// Stores how far the shard is finished, and returns when it is stored. Checkpoints that wait at the same time
    /// are written together; one that is older than what is stored is accepted and changes nothing.
    ///
    /// A store that fails for a while is tried again until it works or the lease is lost. Dropping the future does
    /// not take the checkpoint back.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when the lease is not ours any more, [`LeaseError::Store`] when the store refuses to
    /// work, [`LeaseError::NotAPosition`] for [`Checkpoint::ShardEnd`], [`LeaseError::Closed`].
    pub async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), LeaseError> {
        self.checkpoint_spaced(checkpoint, Duration::ZERO).await
    }

    /// The same, in a write that begins at the earliest `spacing` after the write of this lease before it: until then a
    /// later checkpoint takes the place of this one. The next renewal (at most
    /// [`heartbeat_interval`](crate::LeaseConfig::heartbeat_interval) away), a checkpoint with a shorter spacing and the
    /// end of the tenure take it along. Where the last write is that long ago it is written at once.
    ///
    /// # Errors
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn checkpoint_spaced(
        &self,
        checkpoint: Checkpoint,
        spacing: Duration,
    ) -> Result<(), LeaseError> {
        if checkpoint.is_shard_end() {
            return Err(LeaseError::NotAPosition(checkpoint));
        }
        let (key, token) = (self.key().clone(), self.token());
        let spacing = spacing.min(LONGEST_SPACING);
        self.ask(|reply| Command::Checkpoint { key, token, checkpoint, spacing, reply }).await
    }

    /// Stores that the shard is closed and finished, after the leases of its children were made, and ends the tenure.
    ///
    /// The work on the shard has to be over before the call: another worker may begin with the children at any moment.
    ///
    /// Without children (none were told) the shards are listed first, so that the children's leases are made from the
    /// listing. Dropping the future does not take the end back.
    ///
    /// # Errors
    /// As for [`checkpoint`](Self::checkpoint), and [`LeaseError::Directory`] when the other parents of a child could
    /// not be looked up. After an error other than `Lost` and `Closed` the lease is still ours.
    pub async fn end_shard(&self, children: &[ShardInfo]) -> Result<(), LeaseError> {
        let (key, token, children) = (self.key().clone(), self.token(), children.to_vec());
        self.ask(|reply| Command::End { key, token, children, reply }).await
    }

    /// Gives the lease up: to the worker that asked for it, or to anybody. The work on the shard has to be over before
    /// the call: from then on another worker may begin at any moment, even before the call returns. With a cool-down nobody takes it until it
    /// has rested. Checkpoints that wait are stored with it. Dropping the future does not take the release back.
    ///
    /// # Errors
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn release(&self, cool_down: Option<CoolDown>) -> Result<(), LeaseError> {
        let (key, token) = (self.key().clone(), self.token());
        self.ask(|reply| Command::Release { key, token, cool_down, reply }).await
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), LeaseError>>) -> Command + Send,
    ) -> Result<(), LeaseError> {
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        self.0.commands.send(command).await.map_err(|_| LeaseError::Closed)?;
        answer.await.unwrap_or(Err(LeaseError::Closed))
    }
}
