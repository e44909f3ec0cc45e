//! What became of each shard when a consumer stopped.

use std::fmt;
use std::time::Duration;

use kinesis_core::{Position, ShardRef};

/// How the work on one shard ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardOutcome {
    /// The handler finished what it had, the position is stored, the lease is given back.
    Clean,
    /// The handler, or a record that it was to finish later, did not end before the deadline. What was finished is
    /// stored; the rest comes again.
    GaveUp,
    /// The lease was lost to another worker or to expiry while the shard's work was ending.
    LeaseLost,
    /// The shard was closed and is finished.
    ShardEnded,
    /// The handler failed for good; nothing was skipped.
    Failed {
        /// The last error.
        error: String,
    },
    /// The position or the release could not be stored; the lease expires by itself.
    NotStored {
        /// The last error.
        error: String,
    },
    /// The task did not end by the deadline: it blocks its thread. Its lease expires by itself.
    Stuck,
}

impl ShardOutcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::GaveUp => "gave up",
            Self::LeaseLost => "lease lost",
            Self::ShardEnded => "shard ended",
            Self::Failed { .. } => "failed",
            Self::NotStored { .. } => "not stored",
            Self::Stuck => "stuck",
        }
    }
}

/// What became of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardReport {
    /// The shard.
    pub shard: ShardRef,
    /// How it ended.
    pub outcome: ShardOutcome,
    /// The last position that was stored in this tenure.
    pub stored: Option<Position>,
    /// How many records were handed out and not finished; they come again.
    pub unfinished: usize,
    /// Whether every reader of this tenure closed within [`close_timeout`](crate::ConsumerConfig::close_timeout). One that
    /// did not was dropped: the service may keep what it had open for a while, and refuse a new reader meanwhile.
    pub reader_closed: bool,
}

/// What became of everything when a consumer stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The shards that were being worked on when the stop was asked for, in order of their ids.
    pub shards: Vec<ShardReport>,
    /// How long the consumer ran.
    pub uptime: Duration,
    /// Whether every lease was given back (or had been lost before).
    pub leases_released: bool,
}

impl Report {
    /// A stop that came before anything was taken.
    pub(crate) fn never_started() -> Self {
        Self { shards: Vec::new(), uptime: Duration::ZERO, leases_released: true }
    }

    /// Whether every shard ended cleanly with its reader closed, and every lease was given back. A lease that was lost
    /// while the consumer stopped is not clean: what was finished last may not have been stored.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_clean = |shard: &ShardReport| {
            shard.reader_closed && matches!(shard.outcome, ShardOutcome::Clean | ShardOutcome::ShardEnded)
        };
        self.leases_released && self.shards.iter().all(is_clean)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_clean() { "clean" } else { "not clean" };
        write!(f, "stopped ({word}) after {:.1?}, {} shards", self.uptime, self.shards.len())
    }
}
