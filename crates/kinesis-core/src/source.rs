//! The seam between reading and everything above it: a shard source opens readers, a reader yields events.

mod place;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::directory::ShardInfo;
use crate::{BoxError, Encryption, PartitionKey, SequenceNumber, ShardRef, StartPosition, Timestamp};

pub use place::{GapWatch, Tip};

/// A way to read shards: by polling, by enhanced fan-out, or a user's own.
pub trait ShardSource: fmt::Debug + Send + Sync + 'static {
    /// Opens a reader. It connects on the first [`next`](ShardReader::next), so opening cannot fail.
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader>;
}

/// What to open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenShard {
    /// The shard.
    pub shard: ShardRef,
    /// Where to start.
    pub start: StartPosition,
    /// How many payload bytes the reader may hold that were not yet taken by `next`. A page of the service that is
    /// larger is read when nothing else is held.
    pub buffer_bytes: usize,
}

impl OpenShard {
    /// The default of `buffer_bytes`: one full page of the service (10 MiB).
    pub const DEFAULT_BUFFER_BYTES: usize = 10 * 1024 * 1024;

    /// Asks for a reader of `shard` from `start`.
    #[must_use]
    pub fn new(shard: ShardRef, start: StartPosition) -> Self {
        Self { shard, start, buffer_bytes: Self::DEFAULT_BUFFER_BYTES }
    }

    /// Sets how many payload bytes the reader may hold.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }
}

/// Reads one shard. It retries by itself; an error is only what a caller must decide.
#[async_trait]
pub trait ShardReader: Send {
    /// Waits for the next event.
    ///
    /// Cancel-safe: dropping the future loses no record. After [`SourceEvent::Ended`] or an error it must not be
    /// called again.
    ///
    /// # Errors
    /// [`SourceError`]: the stream or shard is gone, access is denied, the start position is refused.
    async fn next(&mut self) -> Result<SourceEvent, SourceError>;

    /// Ends reading; returns when nothing is open any more, so that a lease can be handed over.
    async fn close(self: Box<Self>);
}

/// What a reader has to say.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceEvent {
    /// Records, never empty.
    Records(SourceBatch),
    /// Nothing to hand over, but the shard was looked at.
    Progress {
        /// How far behind the tip reading is; `None` when the service did not say.
        behind: Option<Duration>,
        /// How far reading has come where the service says so without records. Never stored as if it were processed.
        continuation: Option<SequenceNumber>,
    },
    /// The shard is closed and read to its end.
    Ended {
        /// The shards that follow it, where the service said so.
        children: Vec<ShardInfo>,
    },
    /// Records were skipped because the service no longer has them.
    Gap(Gap),
    /// Reading does not get on; it goes on trying. Said once per episode.
    Degraded {
        /// What is wrong.
        reason: String,
    },
    /// Reading gets on again after [`Degraded`](Self::Degraded).
    Recovered,
}

/// Records as the service returned them, before any decoding.
#[derive(Clone)]
#[non_exhaustive]
pub struct SourceBatch {
    /// The records, oldest first.
    pub records: Vec<SourceRecord>,
    /// How far behind the tip these records are, by the service's word.
    pub behind: Option<Duration>,
}

impl SourceBatch {
    /// A batch of records.
    #[must_use]
    pub fn new(records: Vec<SourceRecord>, behind: Option<Duration>) -> Self {
        Self { records, behind }
    }
}

impl fmt::Debug for SourceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceBatch({} records, behind {:?})", self.records.len(), self.behind)
    }
}

/// One Kinesis record as the service returned it.
#[derive(Clone)]
#[non_exhaustive]
pub struct SourceRecord {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// Its partition key; absent on streams with record distribution `AUTO`.
    pub partition_key: Option<PartitionKey>,
    /// Its payload.
    pub data: Bytes,
    /// About when it arrived.
    pub arrived_at: Option<Timestamp>,
    /// How the service keeps it.
    pub encryption: Encryption,
}

impl SourceRecord {
    /// A record with what every record has.
    #[must_use]
    pub fn new(sequence: SequenceNumber, partition_key: Option<PartitionKey>, data: Bytes) -> Self {
        Self { sequence, partition_key, data, arrived_at: None, encryption: Encryption::None }
    }
}

impl fmt::Debug for SourceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceRecord({}, {} bytes)", self.sequence, self.data.len())
    }
}

/// Records that were skipped because the service no longer has them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Reading was to go on after this sequence number.
    pub after: SequenceNumber,
    /// The first record that is left; `None` until one was read.
    pub resumed_at: Option<SequenceNumber>,
}

impl Gap {
    /// A gap after the given sequence number.
    #[must_use]
    pub fn new(after: SequenceNumber, resumed_at: Option<SequenceNumber>) -> Self {
        Self { after, resumed_at }
    }
}

/// Why a reader gave up: what a caller must decide.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The stream or the shard does not exist (any more).
    #[error("{action} on {shard}: the stream or shard does not exist")]
    #[non_exhaustive]
    NotFound {
        /// The shard.
        shard: ShardRef,
        /// The API call.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// The caller may not do this.
    #[error("{action} on {shard}: access denied; the policy must allow kinesis:{action} on the stream")]
    #[non_exhaustive]
    AccessDenied {
        /// The shard.
        shard: ShardRef,
        /// The API call, which is also the name of the IAM action.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// The service refuses the request itself, for example a start position of another shard.
    #[error("{action} on {shard}: the service refuses the request")]
    #[non_exhaustive]
    Refused {
        /// The shard.
        shard: ShardRef,
        /// The API call.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// A bounded reader used up its tries.
    #[error("{action} on {shard}: gave up after {attempts} attempts")]
    #[non_exhaustive]
    Exhausted {
        /// The shard.
        shard: ShardRef,
        /// The API call.
        action: &'static str,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        #[source]
        source: BoxError,
    },
}

impl SourceError {
    /// A missing stream or shard.
    pub fn not_found(shard: ShardRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::NotFound { shard, action, source: source.into() }
    }

    /// A denied call.
    pub fn access_denied(shard: ShardRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::AccessDenied { shard, action, source: source.into() }
    }

    /// A refused request.
    pub fn refused(shard: ShardRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Refused { shard, action, source: source.into() }
    }

    /// Tries used up.
    pub fn exhausted(
        shard: ShardRef,
        action: &'static str,
        attempts: u32,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::Exhausted { shard, action, attempts, source: source.into() }
    }

    /// The shard that was read.
    #[must_use]
    pub fn shard(&self) -> &ShardRef {
        match self {
            Self::NotFound { shard, .. }
            | Self::AccessDenied { shard, .. }
            | Self::Refused { shard, .. }
            | Self::Exhausted { shard, .. } => shard,
        }
    }

    /// Whether opening the shard again later can succeed: permission may come back, an outage may pass.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::AccessDenied { .. } | Self::Exhausted { .. })
    }
}
