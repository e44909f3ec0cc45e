//! Why a consumer is not there.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::aws::ServiceFailure;
use kinesis_core::source::SourceError;
use kinesis_core::{BoxError, ShardRef, StreamRef};

/// Why there is no active consumer of a stream.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
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
        source: Arc<ServiceFailure>,
    },
    /// The caller may not do this.
    #[error(
        "{action} on stream {stream}: access denied; the policy must allow kinesis:{action} on the stream and its \
         consumers"
    )]
    #[non_exhaustive]
    AccessDenied {
        /// The stream.
        stream: StreamRef,
        /// The API call, which is also the name of the IAM action.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: Arc<ServiceFailure>,
    },
    /// The consumer is being deleted. It can be registered anew when it is gone.
    #[error("consumer {consumer} of stream {stream} is being deleted")]
    #[non_exhaustive]
    BeingDeleted {
        /// The stream.
        stream: StreamRef,
        /// The consumer.
        consumer: String,
    },
    /// The service registered no further consumer for as long as it was asked: most likely the stream has as many as
    /// it may have, 20 unless the account was given more.
    #[error(
        "stream {stream} takes no further consumer: {consumer} could not be registered within {} s",
        .waited.as_secs()
    )]
    #[non_exhaustive]
    NoFreeSlot {
        /// The stream.
        stream: StreamRef,
        /// The consumer.
        consumer: String,
        /// How long it was tried.
        waited: Duration,
        /// The last refusal.
        #[source]
        source: Arc<ServiceFailure>,
    },
    /// The consumer was not active in time.
    #[error("consumer {consumer} of stream {stream} is not active after {} s", .waited.as_secs())]
    #[non_exhaustive]
    NotActive {
        /// The stream.
        stream: StreamRef,
        /// The consumer.
        consumer: String,
        /// How long it was waited for.
        waited: Duration,
        /// The last failed call, if one failed.
        #[source]
        source: Option<Arc<ServiceFailure>>,
    },
    /// The consumer that was given by its ARN is one of another stream.
    #[error("consumer {consumer} is not one of stream {stream}")]
    #[non_exhaustive]
    OtherStream {
        /// The stream.
        stream: StreamRef,
        /// The consumer's ARN.
        consumer: String,
    },
    /// The service refuses the request, or its answer is not valid.
    #[error("{action} on stream {stream} failed")]
    #[non_exhaustive]
    Refused {
        /// The stream.
        stream: StreamRef,
        /// The API call.
        action: &'static str,
        /// The service's answer.
        #[source]
        source: Arc<ServiceFailure>,
    },
}

impl RegistrationError {
    /// Whether trying again later can succeed: a place may become free, a permission may come.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::StreamNotFound { .. } | Self::OtherStream { .. } | Self::Refused { .. } => false,
            Self::AccessDenied { .. }
            | Self::BeingDeleted { .. }
            | Self::NoFreeSlot { .. }
            | Self::NotActive { .. } => true,
        }
    }

    /// The API call that failed, or that waits for the consumer.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::StreamNotFound { action, .. }
            | Self::AccessDenied { action, .. }
            | Self::Refused { action, .. } => action,
            Self::NoFreeSlot { .. } => super::calls::REGISTER,
            Self::BeingDeleted { .. } | Self::NotActive { .. } | Self::OtherStream { .. } => {
                super::calls::DESCRIBE
            }
        }
    }

    /// The error of a reader of `shard`: for want of the consumer it cannot begin.
    #[must_use]
    pub fn into_source_error(self, shard: ShardRef) -> SourceError {
        let action = self.action();
        let source = || BoxError::from(self.clone());
        match &self {
            Self::StreamNotFound { source, .. } => {
                SourceError::not_found(shard, action, ServiceFailure::clone(source))
            }
            Self::AccessDenied { source, .. } => {
                SourceError::access_denied(shard, action, ServiceFailure::clone(source))
            }
            Self::OtherStream { .. } | Self::Refused { .. } => SourceError::refused(shard, action, source()),
            Self::BeingDeleted { .. } | Self::NoFreeSlot { .. } | Self::NotActive { .. } => {
                SourceError::exhausted(shard, action, 1, source())
            }
        }
    }
}
