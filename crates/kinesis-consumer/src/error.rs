//! Errors of building and running a consumer.

use kinesis_core::BoxError;
use kinesis_lease::{RegimeSighting, StartError};

/// Why a consumer did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The lease store or the stream could not be used at the start.
    #[error("the consumer could not start")]
    Start(#[source] StartError),
    /// Enhanced fan-out was asked for, and the stream has no active consumer of that name.
    #[cfg(feature = "efo")]
    #[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
    #[error("the consumer could not start: enhanced fan-out is not available")]
    Registration(#[source] kinesis_efo::RegistrationError),
    /// The lease coordinator ended: without leases nothing can be processed safely.
    #[error("the lease coordinator ended: {problem}")]
    #[non_exhaustive]
    CoordinatorEnded {
        /// What it said.
        problem: String,
    },
    /// Workers of the KCL 3.x have begun to assign the leases of the table, which does not go together with workers that
    /// take their part. The consumer has finished what it had, stored its positions and given its leases back.
    #[error("{0}; the consumer has given its leases up")]
    RegimeChanged(RegimeSighting),
    /// A handler failed for good on a shard, and the consumer was told to stop then.
    #[error("processing {shard} failed for good and on_exhausted = StopWorker")]
    #[non_exhaustive]
    HandlerFailed {
        /// The shard.
        shard: kinesis_core::ShardRef,
        /// The handler's error.
        #[source]
        source: BoxError,
    },
}

impl ConsumerError {
    pub(crate) fn coordinator_ended(problem: impl Into<String>) -> Self {
        Self::CoordinatorEnded { problem: problem.into() }
    }

    /// Whether starting again later can succeed without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Start(error) => error.is_retryable(),
            #[cfg(feature = "efo")]
            Self::Registration(error) => error.is_retryable(),
            Self::CoordinatorEnded { .. } => true,
            Self::RegimeChanged(_) | Self::HandlerFailed { .. } => false,
        }
    }
}
