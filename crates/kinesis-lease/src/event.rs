//! What a coordinator tells its consumer.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kinesis_core::directory::DirectoryError;
use kinesis_core::lease::{LeaseKey, StoreError, TenureToken};
use kinesis_core::{Checkpoint, HashKeyRange, WorkerId};

use crate::error::mark;
use crate::{RegimeSighting, Tenure};

/// Something that the consumer has to act upon, or should know.
#[derive(Debug)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// A lease is ours: start to work on its shard. When an earlier tenure of the same shard still has work under way
    /// in this process, that work has to end first; the new tenure waits and is renewed meanwhile.
    Acquired(Tenure),
    /// Another worker asks for the lease: finish what was begun, store the last checkpoint and call
    /// [`Tenure::release`] before the deadline. Until then the lease is ours and checkpoints are accepted.
    #[non_exhaustive]
    HandOver {
        /// The lease.
        key: LeaseKey,
        /// The tenure.
        token: TenureToken,
        /// When the lease is given away whether or not the work is finished.
        deadline: Instant,
    },
    /// The lease is gone: stop the work; nothing can be stored any more. Not sent after `release` and `end_shard`.
    #[non_exhaustive]
    Lost {
        /// The lease.
        key: LeaseKey,
        /// The tenure.
        token: TenureToken,
        /// Why.
        reason: LossReason,
    },
    /// Workers of the KCL 3.x have begun to assign the leases of the table: finish the work, store the last checkpoints
    /// and shut the coordinator down, because two ways to share leases do not go together. Nothing is taken any more, and
    /// what is held stays ours until then. Sent once.
    RegimeChanged(RegimeSighting),
    /// Something is wrong, and the coordinator goes on. Old warnings make room for new ones when nobody reads them.
    Warning(LeaseWarning),
}

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Another worker has it.
    Taken,
    /// It could not be renewed in time; another worker may have it.
    Expired,
    /// It was asked for and not released before the deadline.
    HandOverOverrun,
    /// Its row was removed.
    Deleted,
    /// Its row was changed from outside, for example by [`LeaseAdmin`](crate::LeaseAdmin): released or set to another
    /// position.
    Changed,
    /// The service does not have the shard any more.
    ShardGone,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "taken by another worker",
            Self::Expired => "not renewed in time",
            Self::HandOverOverrun => "not released in time for a hand-over",
            Self::Deleted => "its row was deleted",
            Self::Changed => "its row was changed from outside",
            Self::ShardGone => "its shard is gone",
        })
    }
}

/// Something is wrong, and the coordinator goes on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseWarning {
    /// The rows of the leases could not be read; it is tried again.
    #[error("the leases cannot be read")]
    Look(#[source] Arc<StoreError>),
    /// A write failed; it is tried again as long as the lease is ours.
    #[error("a lease write of {key} failed")]
    #[non_exhaustive]
    Write {
        /// The lease.
        key: LeaseKey,
        /// The store's answer.
        #[source]
        source: Arc<StoreError>,
    },
    /// A row is unreadable; its shard is not worked on, the others are.
    #[error("a lease row is unreadable")]
    Unreadable(#[source] Arc<StoreError>),
    /// The shards could not be listed; it is tried again.
    #[error("the shards cannot be listed")]
    Discovery(#[source] Arc<DirectoryError>),
    /// In two listings in a row no unfinished lease has this part of the key space: records with such keys are not
    /// read. Missing leases of listed shards are made anew; a lease that says that an open shard is finished is not.
    #[error("nobody reads the records of the hash keys from {} to {}", .0.start(), .0.end())]
    Hole(HashKeyRange),
    /// Another worker that lives holds leases under the name of this one. Neither loses data, as every tenure has a
    /// token of its own, but both count as one, so that the leases are shared unevenly: give each worker its own name.
    #[error(
        "another worker uses the name {worker}, too: it holds {key} with {}; this one holds {}",
        mark(*.token),
        .ours.map_or_else(|| "nothing".to_owned(), |ours| format!("a lease with {}", mark(Some(ours))))
    )]
    #[non_exhaustive]
    Namesake {
        /// The name.
        worker: WorkerId,
        /// A lease that the other one holds, or its row as a worker.
        key: LeaseKey,
        /// The token of its tenure, as it stands in the row; a worker of the KCL has none.
        token: Option<TenureToken>,
        /// The token of a lease that this one holds, if it holds any.
        ours: Option<TenureToken>,
    },
    /// A worker of the KCL holds a lease, but this worker shares leases natively: it takes nothing from the other, which
    /// takes from us. Restart with `coordination = kcl_compatible` (or without the setting) to share with it. Told once.
    #[error(
        "the KCL's worker {worker} holds {key}, but this worker runs with coordination = native and takes \
             nothing from it"
    )]
    #[non_exhaustive]
    KclWorker {
        /// The other worker.
        worker: WorkerId,
        /// A lease that it holds.
        key: LeaseKey,
    },
    /// The table shows that workers of the KCL 3.x are about to take over, or may have: see [`Regime`](crate::Regime).
    /// When they do, [`LeaseEvent::RegimeChanged`] follows.
    #[error("{0}")]
    Regime(RegimeSighting),
    /// The table could not be looked at for traces of the KCL 3.x, or the metrics row could not be written; it is tried
    /// again at the next look.
    #[error("who assigns the leases of the table cannot be seen")]
    RegimeUnseen(#[source] Arc<StoreError>),
    /// The service does not have the shard any more, but it was not finished: records that expired before they were
    /// read are lost. Its lease was closed so that its children can be read.
    #[error("shard {key} is gone, finished up to {checkpoint} only")]
    #[non_exhaustive]
    ShardGone {
        /// The lease.
        key: LeaseKey,
        /// How far it was finished.
        checkpoint: Checkpoint,
    },
}

/// What became of the leases at a shutdown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// Released: others can take them at once.
    pub released: Vec<LeaseKey>,
    /// Not released before the deadline: others take them when they expire.
    pub abandoned: Vec<LeaseKey>,
    /// The lease task had ended before, or did not answer in time: what became of the leases that were held is not
    /// known, and others may have to wait until they expire.
    pub unknown: bool,
}

impl ReleaseReport {
    /// Whether everything is known to be released.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.abandoned.is_empty() && !self.unknown
    }
}
