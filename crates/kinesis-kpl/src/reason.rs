//! Why bytes are not handed out as an aggregate's records.

use kinesis_core::UndecodedReason;

/// Why a Kinesis record was not split.
///
/// The lenient default passes the bytes through unchanged with this reason, so nothing is lost; count it by
/// [`as_str`](Self::as_str).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It does not start with the magic bytes: a plain record.
    #[error("not aggregated")]
    NotAggregated,
    /// Magic bytes and at most a digest: there is no message. The KCL takes it as a plain record too.
    #[error("too short for an aggregate")]
    TooShort,
    /// The digest is not that of the message: damaged, cut, or with something appended.
    #[error("digest does not match")]
    BadDigest,
    /// The digest is right, but the message is not protobuf, or nests deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    #[error("malformed protobuf")]
    BadProtobuf,
    /// A record has no partition key index or no data, or a tag has no key.
    #[error("required field missing")]
    MissingField,
    /// A key that a record uses, or a tag, is not UTF-8. Table entries that no record uses are not looked at.
    #[error("text is not UTF-8")]
    BadUtf8,
    /// A record points past the end of a key table. Compared as 64-bit numbers, never cut to fewer bits.
    #[error("key index out of range")]
    IndexOutOfRange,
}

impl Reason {
    /// All reasons, for a counter per reason.
    pub const ALL: [Self; 7] = [
        Self::NotAggregated,
        Self::TooShort,
        Self::BadDigest,
        Self::BadProtobuf,
        Self::MissingField,
        Self::BadUtf8,
        Self::IndexOutOfRange,
    ];

    /// A short fixed name, for example for a metric label: `bad_digest`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAggregated => "not_aggregated",
            Self::TooShort => "too_short",
            Self::BadDigest => "bad_digest",
            Self::BadProtobuf => "bad_protobuf",
            Self::MissingField => "missing_field",
            Self::BadUtf8 => "bad_utf8",
            Self::IndexOutOfRange => "index_out_of_range",
        }
    }

    /// The reason as the rest of the workspace names it; `None` for a plain record.
    #[must_use]
    pub const fn undecoded(self) -> Option<UndecodedReason> {
        match self {
            Self::NotAggregated | Self::TooShort => None,
            Self::BadDigest => Some(UndecodedReason::BadDigest),
            Self::BadProtobuf => Some(UndecodedReason::BadProtobuf),
            Self::MissingField => Some(UndecodedReason::MissingField),
            Self::BadUtf8 => Some(UndecodedReason::BadUtf8),
            Self::IndexOutOfRange => Some(UndecodedReason::IndexOutOfRange),
        }
    }

    /// Never: the same bytes fail again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        false
    }

    /// Whether this is a plain record rather than a broken aggregate: strict mode takes these too.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::NotAggregated | Self::TooShort)
    }
}
