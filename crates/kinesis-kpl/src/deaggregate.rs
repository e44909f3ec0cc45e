//! From a Kinesis record's data to user records, or to the reason why not.

use std::fmt;

use bytes::Bytes;

use crate::index::split_frame;
use crate::wire::{DIGEST_LEN, MAGIC};
use crate::{Aggregate, Reason};

/// Whether `data` starts like an aggregate. Only parsing tells whether it is a good one.
#[must_use]
pub fn is_aggregated(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Splits a Kinesis record's data in the lenient default way; see [`Deaggregator`].
#[must_use]
pub fn deaggregate(data: Bytes) -> Deaggregated {
    split(data, Checksum::Verify)
}

/// What became of a Kinesis record's data. `Debug` shows sizes only.
#[derive(Clone)]
#[non_exhaustive]
pub enum Deaggregated {
    /// Not split: one plain record, or a broken aggregate.
    #[non_exhaustive]
    Raw {
        /// Why.
        reason: Reason,
        /// The Kinesis record's data, unchanged.
        data: Bytes,
    },
    /// All user records of an aggregate.
    Records(Aggregate<Bytes>),
}

impl Deaggregated {
    /// Why it was not split; `None` when it was.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Raw { reason, .. } => Some(*reason),
            Self::Records(_) => None,
        }
    }
}

impl fmt::Debug for Deaggregated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw { reason, data } => write!(f, "Raw({} bytes, {reason})", data.len()),
            Self::Records(aggregate) => aggregate.fmt(f),
        }
    }
}

/// What to do with data that look like an aggregate and are a broken one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Strictness {
    /// Hand them on as one raw record with the reason: nothing is lost and nothing invented.
    #[default]
    Lenient,
    /// Refuse them. Plain records are still handed on as they are.
    Strict,
}

/// Whether the digest is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Checksum {
    /// Compute the MD5 of the message and compare. It takes nearly all of the time, and finds damage; it proves
    /// nothing about who wrote the bytes.
    #[default]
    Verify,
    /// Trust it. For data whose integrity something else assures: then damage shows only where it breaks the
    /// protobuf.
    Skip,
}

/// An aggregate that strict mode refuses. Gives the data back; `Debug` shows their size only.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid aggregate of {} bytes", data.len())]
pub struct InvalidAggregate {
    #[source]
    reason: Reason,
    data: Bytes,
}

impl InvalidAggregate {
    /// What is wrong.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The Kinesis record's data as they came.
    #[must_use]
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// Never: the same bytes are refused again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl fmt::Debug for InvalidAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InvalidAggregate({} bytes, {})", self.data.len(), self.reason)
    }
}

/// Splits aggregates into user records: the settings of how.
///
/// A Kinesis record is split into all its user records or not at all, one level deep. The default is lenient and
/// verifies the digest.
///
/// ```
/// use bytes::Bytes;
/// use kinesis_kpl::{Deaggregated, Deaggregator, Reason, Strictness};
///
/// let strict = Deaggregator::new().strictness(Strictness::Strict);
/// let plain = strict.deaggregate(Bytes::from_static(b"{}"))?;
/// assert!(matches!(plain, Deaggregated::Raw { reason: Reason::NotAggregated, .. }));
///
/// let broken = strict.deaggregate(Bytes::from_static(b"\xF3\x89\x9A\xC2 this is no digest, and no aggregate"));
/// assert_eq!(broken.unwrap_err().reason(), Reason::BadDigest);
/// # Ok::<(), kinesis_kpl::InvalidAggregate>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deaggregator {
    strictness: Strictness,
    checksum: Checksum,
}

impl Deaggregator {
    /// The lenient default.
    #[must_use]
    pub const fn new() -> Self {
        Self { strictness: Strictness::Lenient, checksum: Checksum::Verify }
    }

    /// Sets what to do with broken aggregates.
    #[must_use]
    pub const fn strictness(mut self, strictness: Strictness) -> Self {
        self.strictness = strictness;
        self
    }

    /// Sets whether the digest is compared.
    #[must_use]
    pub const fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// Splits one Kinesis record's data.
    ///
    /// # Errors
    /// [`InvalidAggregate`], in strict mode only, for what looks like an aggregate and is a broken one.
    pub fn deaggregate(&self, data: Bytes) -> Result<Deaggregated, InvalidAggregate> {
        self.judge(split(data, self.checksum))
    }

    /// Splits many Kinesis records, as a read or an event brings them, in order: the same as one by one, but the
    /// digests are computed [side by side](crate::md5::digest_many).
    pub fn deaggregate_many(
        &self,
        records: impl IntoIterator<Item = Bytes>,
    ) -> Vec<Result<Deaggregated, InvalidAggregate>> {
        let records: Vec<Bytes> = records.into_iter().collect();
        let bodies: Vec<&[u8]> = match self.checksum {
            Checksum::Verify => {
                records.iter().filter_map(|data| split_frame(data).ok()).map(|(body, _)| body).collect()
            }
            Checksum::Skip => Vec::new(),
        };
        let mut digests = crate::md5::digest_many(&bodies).into_iter();
        let split_next = |data: Bytes| match self.checksum {
            Checksum::Skip => split(data, Checksum::Skip),
            // `verify` is called for exactly the records that `split_frame` takes, in order.
            Checksum::Verify => split_with(data, |_, digest| digests.next() == Some(*digest)),
        };
        records.into_iter().map(split_next).map(|done| self.judge(done)).collect()
    }

    fn judge(&self, done: Deaggregated) -> Result<Deaggregated, InvalidAggregate> {
        match done {
            Deaggregated::Raw { reason, data }
                if self.strictness == Strictness::Strict && !reason.is_plain() =>
            {
                Err(InvalidAggregate { reason, data })
            }
            done => Ok(done),
        }
    }
}

fn split(data: Bytes, checksum: Checksum) -> Deaggregated {
    split_with(data, |body, digest| checksum == Checksum::Skip || crate::md5::digest(body) == *digest)
}

fn split_with(data: Bytes, verify: impl FnOnce(&[u8], &[u8; DIGEST_LEN]) -> bool) -> Deaggregated {
    // `Bytes` is cheap to clone, but not free: plain records are told apart before.
    if !is_aggregated(&data) {
        return Deaggregated::Raw { reason: Reason::NotAggregated, data };
    }
    match Aggregate::read(data.clone(), verify) {
        Ok(aggregate) => Deaggregated::Records(aggregate),
        Err(reason) => Deaggregated::Raw { reason, data },
    }
}
