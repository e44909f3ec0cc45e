//! Why a record was not taken, and why a record was not stored.

use std::fmt;
use std::sync::Arc;

use kinesis_core::aws::ServiceFailure;
use kinesis_core::{OutboundRecord, PartitionKey};

/// Why records were not taken. Nothing of them was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The partition key is empty or too long.
    #[error("the partition key has {chars} characters, the service takes 1 to {}", PartitionKey::MAX_CHARS)]
    #[non_exhaustive]
    InvalidKey {
        /// The key's length in Unicode characters.
        chars: usize,
    },
    /// The record is larger than `max_record_bytes`.
    #[error("the record has {size} bytes with its partition key, the limit is {limit}")]
    #[non_exhaustive]
    TooLarge {
        /// Payload plus partition key, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The record is larger than `max_record_bytes` although it was compressed.
    #[error(
        "the record has {size} bytes with its partition key when compressed, {input} before; the limit is {limit}"
    )]
    #[non_exhaustive]
    TooLargeCompressed {
        /// Payload plus partition key before compression, in bytes.
        input: usize,
        /// What would be sent, in bytes: the smaller of both.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The record is larger than `max_input_bytes`, whatever compression would make of it.
    #[error("the record has {size} bytes with its partition key before compression, the limit is {limit}")]
    #[non_exhaustive]
    InputTooLarge {
        /// Payload plus partition key before compression, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The records of the batch have different partition keys, and `partition_key_safety` is on.
    #[error("partition key mismatch: record {index} of the batch has another partition key than record 0")]
    #[non_exhaustive]
    PartitionKeyMismatch {
        /// The place of the first record that differs, counted from zero.
        index: usize,
    },
    /// The batch has more records than the service takes in a call.
    #[error("the batch has {records} records, the limit is {limit}")]
    #[non_exhaustive]
    TooManyRecords {
        /// The records of the batch.
        records: usize,
        /// The limit.
        limit: usize,
    },
    /// A record of a batch is invalid, so that nothing of the batch was taken.
    #[error("record {index} of the batch is invalid")]
    #[non_exhaustive]
    InvalidRecord {
        /// The record's place in the batch, counted from zero.
        index: usize,
        /// What is wrong with it.
        source: Box<Self>,
    },
    /// There is no room in the buffer; only from `try_put`.
    #[error("the producer's buffer is full")]
    Full,
    /// The producer is closed, or is being closed.
    #[error("the producer is closed")]
    Closed,
}

impl PutError {
    /// Whether the same call can succeed later: only when the buffer was full.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full => true,
            Self::InvalidKey { .. }
            | Self::TooLarge { .. }
            | Self::TooLargeCompressed { .. }
            | Self::InputTooLarge { .. }
            | Self::PartitionKeyMismatch { .. }
            | Self::TooManyRecords { .. }
            | Self::InvalidRecord { .. }
            | Self::Closed => false,
        }
    }
}

/// What kind of failure a record ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordErrorKind {
    /// The service refused this record at the last attempt.
    Refused,
    /// The last call that carried the record failed as a whole.
    CallFailed,
    /// `delivery_timeout` passed before a further attempt could start.
    Expired,
    /// The time for closing the producer ran out first.
    Closed,
    /// The producer was dropped without being closed.
    Abandoned,
}

impl fmt::Display for RecordErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the service refused it",
            Self::CallFailed => "the call failed",
            Self::Expired => "its time ran out",
            Self::Closed => "the producer was closed first",
            Self::Abandoned => "the producer was dropped",
        })
    }
}

/// A record that was taken and could not be stored, with the record. Its source is the last [`ServiceFailure`], where
/// there was one.
#[derive(Clone)]
pub struct RecordError(Box<Details>);

#[derive(Clone)]
struct Details {
    failure: Failure,
    record: OutboundRecord,
}

/// Everything about a failed record but the record.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: RecordErrorKind,
    pub(crate) attempts: u32,
    pub(crate) in_doubt: bool,
    /// Records of one call share its failure.
    pub(crate) cause: Option<Arc<ServiceFailure>>,
}

impl RecordError {
    pub(crate) fn new(failure: Failure, record: OutboundRecord) -> Self {
        Self(Box::new(Details { failure, record }))
    }

    /// What kind of failure it ended with.
    #[must_use]
    pub fn kind(&self) -> RecordErrorKind {
        self.0.failure.kind
    }

    /// How often the record was sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.failure.attempts
    }

    /// What the service answered at the last attempt, or how the last call failed.
    #[must_use]
    pub fn failure(&self) -> Option<&ServiceFailure> {
        self.0.failure.cause.as_deref()
    }

    /// Whether the service may have stored the record all the same: some attempt was sent and its answer did not
    /// come, or a reshard led its aggregate into a shard where some readers drop it. Putting the record again can then
    /// make a duplicate.
    #[must_use]
    pub fn may_be_stored(&self) -> bool {
        self.0.failure.in_doubt
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &OutboundRecord {
        &self.0.record
    }

    /// Takes the record back, for example to put it again.
    #[must_use]
    pub fn into_record(self) -> OutboundRecord {
        self.0.record
    }

    /// Whether the same record can be stored later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            RecordErrorKind::Refused | RecordErrorKind::CallFailed => {
                self.failure().is_none_or(ServiceFailure::is_retryable)
            }
            RecordErrorKind::Expired | RecordErrorKind::Closed | RecordErrorKind::Abandoned => true,
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.attempts();
        let plural = if attempts == 1 { "" } else { "s" };
        write!(f, "the record was not stored after {attempts} attempt{plural}: {}", self.kind())
    }
}

impl fmt::Debug for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordError")
            .field("kind", &self.kind())
            .field("attempts", &self.attempts())
            .field("may_be_stored", &self.may_be_stored())
            .field("failure", &self.failure())
            .field("record", self.record())
            .finish()
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure().map(|failure| failure as _)
    }
}
