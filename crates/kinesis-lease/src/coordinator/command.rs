//! What the lease task is asked to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::Checkpoint;
use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{CoolDown, LeaseKey, TenureToken};
use tokio::sync::oneshot;

use crate::{DiscoveryError, LeaseError, ReleaseReport};

/// The answer to a caller.
pub(super) type Reply = oneshot::Sender<Result<(), LeaseError>>;

#[derive(Debug)]
pub(super) enum Command {
    Checkpoint {
        key: LeaseKey,
        token: TenureToken,
        checkpoint: Checkpoint,
        /// How long after the write before of this lease.
        spacing: Duration,
        reply: Reply,
    },
    Release {
        key: LeaseKey,
        token: TenureToken,
        cool_down: Option<CoolDown>,
        reply: Reply,
    },
    End {
        key: LeaseKey,
        token: TenureToken,
        children: Vec<ShardInfo>,
        reply: Reply,
    },
    /// The shards were listed; `waiting` are told when missing leases are made.
    Listed {
        shards: Result<Vec<ShardInfo>, Arc<DirectoryError>>,
        /// When the listing began.
        began: Instant,
        waiting: Vec<Waiting>,
    },
    StopTaking,
    Stop {
        deadline: Duration,
        report: oneshot::Sender<ReleaseReport>,
    },
}

/// Somebody who waits for a discovery.
pub(super) type Waiting = oneshot::Sender<Result<(), DiscoveryError>>;
