use std::time::Duration;

use super::LeaseKey;
use crate::BoxError;

/// Why a lease store could not do what it was asked. A refused guard is not an error but an
/// [`Outcome`](super::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store asks for fewer calls.
    #[error("the lease store throttles")]
    #[non_exhaustive]
    Throttled {
        /// How long the store asks to wait, where it says so.
        retry_after: Option<Duration>,
        /// The store's answer.
        #[source]
        source: BoxError,
    },
    /// The store does not answer, or answers that it cannot right now (also: is read-only for a while). Whether a
    /// write was applied is unknown.
    #[error("the lease store is not available")]
    Unavailable(#[source] BoxError),
    /// The store is not what it should be: no table, wrong key, no permission, not a database.
    #[error("the lease store is not usable: {problem}")]
    #[non_exhaustive]
    Misconfigured {
        /// What is wrong and what to do.
        problem: String,
        /// The store's answer.
        #[source]
        source: Option<BoxError>,
    },
    /// A row cannot be read.
    #[error("the lease row of {key} cannot be read: {problem}")]
    #[non_exhaustive]
    Corrupt {
        /// The row.
        key: Box<LeaseKey>,
        /// What is wrong with it.
        problem: String,
    },
}

impl StoreError {
    /// The store asks for fewer calls.
    pub fn throttled(retry_after: Option<Duration>, source: impl Into<BoxError>) -> Self {
        Self::Throttled { retry_after, source: source.into() }
    }

    /// The store does not answer.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self::Unavailable(source.into())
    }

    /// The store is not what it should be.
    pub fn misconfigured(problem: impl Into<String>, source: Option<BoxError>) -> Self {
        Self::Misconfigured { problem: problem.into(), source }
    }

    /// A row cannot be read.
    pub fn corrupt(key: LeaseKey, problem: impl Into<String>) -> Self {
        Self::Corrupt { key: Box::new(key), problem: problem.into() }
    }

    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unavailable(_))
    }

    /// How long the store asks to wait, where it says so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
