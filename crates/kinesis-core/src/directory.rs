//! The seam for finding out about streams: which shards there are, how they descend, what time it is.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::{BoxError, HashKeyRange, SequenceNumber, ShardId, StreamRef, Timestamp};

/// How long a stream keeps its records unless it is told otherwise
/// (<https://docs.aws.amazon.com/streams/latest/dev/kinesis-extended-retention.html>).
const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What is known of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Its id.
    pub id: ShardId,
    /// The shards that it came from: none, one (a split) or two (a merge).
    pub parents: Vec<ShardId>,
    /// The part of the key space that it holds, where the service said so.
    pub hash_range: Option<HashKeyRange>,
    /// Whether the shard takes no more records.
    pub closed: bool,
    /// The number that its records start at, where the service said so.
    pub starting_sequence: Option<SequenceNumber>,
}

impl ShardInfo {
    /// An open shard without parents.
    #[must_use]
    pub fn new(id: ShardId) -> Self {
        Self { id, parents: Vec::new(), hash_range: None, closed: false, starting_sequence: None }
    }

    /// Sets the parents.
    #[must_use]
    pub fn parents(mut self, parents: Vec<ShardId>) -> Self {
        self.parents = parents;
        self
    }

    /// Sets the hash range.
    #[must_use]
    pub fn hash_range(mut self, range: Option<HashKeyRange>) -> Self {
        self.hash_range = range;
        self
    }

    /// Sets whether the shard takes no more records.
    #[must_use]
    pub fn closed(mut self, closed: bool) -> Self {
        self.closed = closed;
        self
    }
}

/// One page of the shards of a stream.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShardPage {
    /// The shards, in the service's order.
    pub shards: Vec<ShardInfo>,
    /// What to ask for next; `None` on the last page.
    pub next: Option<String>,
}

impl ShardPage {
    /// A page.
    #[must_use]
    pub fn new(shards: Vec<ShardInfo>, next: Option<String>) -> Self {
        Self { shards, next }
    }
}

/// What is known of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamDescription {
    /// Its ARN.
    pub arn: Option<String>,
    /// When it was created: with the ARN, what tells a re-created stream from the old one.
    pub created_at: Option<Timestamp>,
    /// Whether it can be read: active or being updated.
    pub readable: bool,
    /// The number of open shards.
    pub open_shards: u32,
    /// How long records are kept.
    pub retention: Duration,
    /// The service's own time when it said this, if it did; [`server_time`](ShardDirectory::server_time) needs no call then.
    pub described_at: Option<Timestamp>,
}

impl StreamDescription {
    /// A readable stream with the service's default retention of 24 hours.
    #[must_use]
    pub fn new(open_shards: u32) -> Self {
        Self {
            arn: None,
            created_at: None,
            readable: true,
            open_shards,
            retention: DEFAULT_RETENTION,
            described_at: None,
        }
    }
}

/// Why a stream could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// There is no such stream.
    #[error("{action}: stream {stream} does not exist in this account and region")]
    #[non_exhaustive]
    StreamNotFound {
        /// The stream.
        stream: StreamRef,
        /// The API call.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// The caller may not do this.
    #[error("{action} on stream {stream}: access denied; the policy must allow kinesis:{action}")]
    #[non_exhaustive]
    AccessDenied {
        /// The stream.
        stream: StreamRef,
        /// The API call, which is also the name of the IAM action.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// The service refuses the call because the account makes too many of that kind right now.
    #[error("{action} on stream {stream} is throttled")]
    #[non_exhaustive]
    Throttled {
        /// The stream.
        stream: StreamRef,
        /// The API call.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: BoxError,
    },
    /// The service or the way to it does not work right now.
    #[error("{action} on stream {stream} failed")]
    #[non_exhaustive]
    Unavailable {
        /// The stream.
        stream: StreamRef,
        /// The API call.
        action: &'static str,
        /// What went wrong.
        #[source]
        source: BoxError,
    },
}

impl DirectoryError {
    /// A stream that does not exist.
    pub fn stream_not_found(stream: StreamRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::StreamNotFound { stream, action, source: source.into() }
    }

    /// A denied call.
    pub fn access_denied(stream: StreamRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::AccessDenied { stream, action, source: source.into() }
    }

    /// A call too many.
    pub fn throttled(stream: StreamRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Throttled { stream, action, source: source.into() }
    }

    /// A failed call.
    pub fn unavailable(stream: StreamRef, action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Unavailable { stream, action, source: source.into() }
    }

    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unavailable { .. })
    }

    /// Whether it helps to wait: the service works, and there were too many calls.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        matches!(self, Self::Throttled { .. })
    }
}

/// Finds out about streams.
#[async_trait]
pub trait ShardDirectory: fmt::Debug + Send + Sync + 'static {
    /// One page of the shards of a stream, closed ones within the retention included.
    ///
    /// # Errors
    /// [`DirectoryError`]. Cancel-safe.
    async fn list_shards(&self, stream: &StreamRef, page: Option<&str>) -> Result<ShardPage, DirectoryError>;

    /// What is known of the stream.
    ///
    /// # Errors
    /// [`DirectoryError`]. Cancel-safe.
    async fn describe_stream(&self, stream: &StreamRef) -> Result<StreamDescription, DirectoryError>;

    /// The service's own time, which anchors a start at the tip: the service refuses timestamps in its future.
    ///
    /// # Errors
    /// [`DirectoryError`]. Cancel-safe.
    async fn server_time(&self, stream: &StreamRef) -> Result<Timestamp, DirectoryError>;
}

/// All shards of a stream, page by page.
///
/// # Errors
/// The first page that fails.
pub async fn list_all_shards(
    directory: &dyn ShardDirectory,
    stream: &StreamRef,
) -> Result<Vec<ShardInfo>, DirectoryError> {
    let mut shards = Vec::new();
    let mut page = None;
    loop {
        let found = directory.list_shards(stream, page.as_deref()).await?;
        shards.extend(found.shards);
        match found.next {
            Some(next) => page = Some(next),
            None => return Ok(shards),
        }
    }
}
