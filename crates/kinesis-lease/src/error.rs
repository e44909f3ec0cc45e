//! What can go wrong with a coordinator and a tenure.

use std::sync::Arc;

use kinesis_core::Checkpoint;
use kinesis_core::directory::DirectoryError;
use kinesis_core::lease::{StoreError, TenureToken};

use crate::{ConfigError, Coordination, RegimeSighting};

/// Why a coordinator could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The lease store could not be made ready or read.
    #[error("{action} of the lease store failed")]
    #[non_exhaustive]
    Store {
        /// What was called: `open`, `setup`, `scan` or `apply`.
        action: &'static str,
        /// The store's answer.
        #[source]
        source: Arc<StoreError>,
    },
    /// The stream could not be looked at; the source names the call.
    #[error("the stream cannot be looked at")]
    Directory(#[source] Arc<DirectoryError>),
    /// The stream is there, but cannot be read: it is being created or deleted.
    #[error("stream {0} is not active")]
    NotReadable(kinesis_core::StreamRef),
    /// The leases were made for another stream of this name: one that was deleted since, or one of another account or
    /// region. Positions of one stream are of no use in another: use another application name, or delete the leases.
    #[error(
        "the leases of application {application} are those of {theirs}, and the stream to read is {ours}"
    )]
    #[non_exhaustive]
    OtherStream {
        /// The application.
        application: kinesis_core::ApplicationName,
        /// The stream that is to be read.
        ours: String,
        /// The stream that the leases were made for.
        theirs: String,
    },
    /// A worker that lives holds a lease under the name of this one: give each worker its own name, or stop the other.
    #[error("a live worker with the same name, {worker}, holds {key} with {}; this one is process {process}", mark(*.token))]
    #[non_exhaustive]
    Namesake {
        /// The name.
        worker: kinesis_core::WorkerId,
        /// A lease that the other one holds.
        key: Box<kinesis_core::lease::LeaseKey>,
        /// The token of its tenure, as it stands in the row; a worker of the KCL has none.
        token: Option<TenureToken>,
        /// The process that was to start.
        process: u32,
    },
    /// The setting `coordination` contradicts what is in the table.
    #[error("coordination = {setting} does not go together with the lease table: {found}")]
    #[non_exhaustive]
    Coordination {
        /// The setting.
        setting: Coordination,
        /// What was found in the table, and what to do.
        found: String,
    },
    /// Workers of the KCL 3.x assign the leases of the table: a leader there gives each worker its part, and a worker that
    /// takes its own does not go together with it.
    #[error("{0}; use another application name or table, or roll the KCL back to 2.x")]
    Regime(RegimeSighting),
    /// The thread of the lease task could not be made.
    #[error("the lease thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl StartError {
    /// Whether the same start can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_retryable(),
            Self::Directory(error) => error.is_retryable(),
            Self::NotReadable(_) => true,
            Self::Config(_)
            | Self::OtherStream { .. }
            | Self::Namesake { .. }
            | Self::Coordination { .. }
            | Self::Regime(_)
            | Self::Thread(_) => false,
        }
    }
}

/// What tells a tenure from another one: the first digits of its token.
pub(crate) fn mark(token: Option<TenureToken>) -> String {
    const DIGITS: usize = 8;
    token.map_or_else(|| "no token".to_owned(), |token| format!("token {:.DIGITS$}", token.to_string()))
}

/// Why something could not be done with a lease.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The lease is no longer held by this tenure; whatever was to be written was not.
    #[error("the lease is lost")]
    Lost,
    /// The store refuses to work; whatever was to be written may be repeated. Failures that pass by themselves do
    /// not come here: they are retried until they pass or the lease is lost.
    #[error("the lease store failed")]
    Store(#[source] Arc<StoreError>),
    /// The children's other parents could not be looked up, so that the end of the shard was not stored.
    #[error("the stream cannot be looked at")]
    Directory(#[source] Arc<DirectoryError>),
    /// Not a place that a checkpoint can be moved to: the end of a shard is stored by `end_shard`.
    #[error("{0} is not a place in the shard")]
    NotAPosition(Checkpoint),
    /// The coordinator is gone.
    #[error("the coordinator is closed")]
    Closed,
}

impl LeaseError {
    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Directory(error) => error.is_retryable(),
            Self::Lost | Self::NotAPosition(_) | Self::Closed => false,
        }
    }

    /// Whether the lease is gone for good, so that the work on the shard must stop.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost | Self::Closed)
    }
}

/// Why a discovery of shards failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The stream could not be looked at; the source names the call.
    #[error("the stream cannot be looked at")]
    Directory(#[source] Arc<DirectoryError>),
    /// The lease store failed.
    #[error("the lease store failed")]
    Store(#[source] Arc<StoreError>),
    /// The coordinator is gone.
    #[error("the coordinator is closed")]
    Closed,
}

impl DiscoveryError {
    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Directory(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            Self::Closed => false,
        }
    }
}
