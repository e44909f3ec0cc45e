//! What can go wrong, as kinds a caller may branch on.

use kinesis_core::{Position, Record, ShardRef};
use thiserror::Error;

use crate::Compression;

/// Why a payload was not decompressed.
///
/// No variant carries payload bytes. None is worth a retry: the same bytes fail the same way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The payload holds more than the limit allows; decoding stopped there.
    #[error("decompressed {format} payload exceeds the limit of {limit} bytes")]
    #[non_exhaustive]
    DecompressedSizeLimitExceeded {
        /// The format of the payload.
        format: &'static str,
        /// The limit in bytes that applied.
        limit: usize,
    },
    /// The frame asks its reader for a larger window than is allowed.
    #[error("{format} frame needs a window of {window} bytes, the limit is {limit}")]
    #[non_exhaustive]
    WindowLimitExceeded {
        /// The format of the payload.
        format: &'static str,
        /// The window in bytes that the frame header declares.
        window: u64,
        /// The largest window in bytes that is accepted.
        limit: u64,
    },
    /// The payload does not begin with the magic number of the format.
    #[error("payload is not {format}")]
    #[non_exhaustive]
    NotCompressed {
        /// The format that was asked for.
        format: &'static str,
    },
    /// The payload ends inside a frame.
    #[error("{format} payload is truncated")]
    #[non_exhaustive]
    Truncated {
        /// The format of the payload.
        format: &'static str,
    },
    /// Something that is not a frame follows the last frame.
    #[error("{format} payload has other bytes after its end, at offset {offset}")]
    #[non_exhaustive]
    TrailingData {
        /// The format of the payload.
        format: &'static str,
        /// Where the other bytes begin, in bytes from the start of the payload.
        offset: usize,
    },
    /// A checksum over a header, a block or the content does not agree.
    #[error("{format} {part} checksum does not match")]
    #[non_exhaustive]
    ChecksumMismatch {
        /// The format of the payload.
        format: &'static str,
        /// What the checksum covers: `header`, `block` or `content`.
        part: &'static str,
    },
    /// The payload breaks a rule of its format.
    #[error("{format} payload is corrupt: {reason}")]
    #[non_exhaustive]
    Corrupt {
        /// The format of the payload.
        format: &'static str,
        /// The rule that was broken.
        reason: &'static str,
    },
    /// The payload is well formed but uses something this crate does not offer, such as a dictionary.
    #[error("{format} payload uses {what}, which is not supported")]
    #[non_exhaustive]
    Unsupported {
        /// The format of the payload.
        format: &'static str,
        /// What the payload uses.
        what: &'static str,
    },
    /// The crate was built without this format.
    #[error("{format} support is not compiled in")]
    #[non_exhaustive]
    NotEnabled {
        /// The format that was asked for.
        format: Compression,
    },
}

impl DecompressError {
    /// Whether decoding the same bytes again may succeed: never.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }

    /// Whether a limit of this crate's settings refused the payload, rather than the payload's own fault.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self, Self::DecompressedSizeLimitExceeded { .. } | Self::WindowLimitExceeded { .. })
    }
}

/// A record's payload did not decompress: which record, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("record {position} of {shard} ({payload_len} bytes) was not decompressed")]
pub struct RecordDecompressError {
    shard: ShardRef,
    position: Position,
    payload_len: usize,
    source: DecompressError,
}

impl RecordDecompressError {
    /// `record` failed because of `source`.
    #[must_use]
    pub fn new(record: &Record, source: DecompressError) -> Self {
        Self {
            shard: record.source().clone(),
            position: record.position().clone(),
            payload_len: record.data().len(),
            source,
        }
    }

    /// The shard that the record was read from.
    #[must_use]
    pub const fn shard(&self) -> &ShardRef {
        &self.shard
    }

    /// The place of the record in its shard.
    #[must_use]
    pub const fn position(&self) -> &Position {
        &self.position
    }

    /// The length in bytes of the payload as it was received.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// What was wrong with the payload.
    #[must_use]
    pub const fn reason(&self) -> &DecompressError {
        &self.source
    }

    /// Whether decompressing the same bytes again may succeed: never.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Why a payload was not compressed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompressError {
    /// The format has no such level.
    #[error("{format} has no level {level}, only {min} to {max}")]
    #[non_exhaustive]
    UnknownLevel {
        /// The format that was asked for.
        format: &'static str,
        /// The level that was asked for.
        level: i32,
        /// The lowest level of the format.
        min: i32,
        /// The highest level of the format.
        max: i32,
    },
    /// The crate was built without this format.
    #[error("{format} support is not compiled in")]
    #[non_exhaustive]
    NotEnabled {
        /// The format that was asked for.
        format: Compression,
    },
    /// The codec library reported a fault of its own, such as being out of memory.
    #[error("{format} encoder failed: {reason}")]
    #[non_exhaustive]
    Codec {
        /// The format that was asked for.
        format: &'static str,
        /// The library's words.
        reason: &'static str,
    },
}

impl CompressError {
    /// Whether encoding the same bytes again may succeed: never.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}
