//! The wire stage: bytes to bytes, before records and positions exist.

use std::fmt;

use bytes::Bytes;

use crate::BoxError;

/// What a decoder made of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoded {
    /// Not for this decoder: pass it on as it is.
    Unchanged,
    /// The decoded bytes.
    Changed(Bytes),
}

/// Why a payload could not be decoded. Always a permanent failure of that record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The output would be larger than allowed.
    #[error("{decoder}: the decoded payload would be larger than the limit of {limit} bytes")]
    #[non_exhaustive]
    LimitExceeded {
        /// The decoder.
        decoder: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// The input is damaged or cut short.
    #[error("{decoder}: the payload is damaged")]
    #[non_exhaustive]
    Damaged {
        /// The decoder.
        decoder: &'static str,
        /// What is wrong.
        #[source]
        source: BoxError,
    },
}

impl DecodeError {
    /// The output would be larger than allowed.
    #[must_use]
    pub fn limit_exceeded(decoder: &'static str, limit: usize) -> Self {
        Self::LimitExceeded { decoder, limit }
    }

    /// The input is damaged.
    pub fn damaged(decoder: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Damaged { decoder, source: source.into() }
    }
}

/// Turns payloads as they came from the wire into what they were before: decompress, decrypt, strip a header.
///
/// Synchronous and bounded: the output must never grow past `limit` (plus one block of the codec while it is made).
pub trait PayloadDecoder: fmt::Debug + Send + Sync + 'static {
    /// A short static name for errors and metrics, for example `"gzip"`.
    fn name(&self) -> &'static str;

    /// Decodes one payload into at most `limit` bytes.
    ///
    /// # Errors
    /// [`DecodeError`] when the payload is for this decoder and damaged, or larger than `limit` when decoded.
    fn decode(&self, payload: &Bytes, limit: usize) -> Result<Decoded, DecodeError>;
}

/// Why a payload could not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("{encoder}: the payload could not be encoded")]
pub struct EncodeError {
    encoder: &'static str,
    #[source]
    source: BoxError,
}

impl EncodeError {
    /// A failure of `encoder`.
    pub fn new(encoder: &'static str, source: impl Into<BoxError>) -> Self {
        Self { encoder, source: source.into() }
    }

    /// The encoder's name.
    #[must_use]
    pub fn encoder(&self) -> &'static str {
        self.encoder
    }
}

/// The producer's side of a [`PayloadDecoder`].
pub trait PayloadEncoder: fmt::Debug + Send + Sync + 'static {
    /// A short static name for errors and metrics.
    fn name(&self) -> &'static str;

    /// Encodes one payload.
    ///
    /// # Errors
    /// [`EncodeError`].
    fn encode(&self, payload: &Bytes) -> Result<Bytes, EncodeError>;
}
