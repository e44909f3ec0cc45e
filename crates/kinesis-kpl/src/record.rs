//! User records: owned ones out of an aggregate, borrowed ones on their way into one.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::{HashKey, InvalidHashKey, Origin, OutboundRecord, PartitionKey, Tag};

/// A user record that owns its parts, made from an [`Aggregate`](crate::Aggregate).
///
/// The data is a slice of the aggregate's buffer and keeps that buffer alive; keys are shared between the records
/// that use them and do not. `Debug` shows sizes, never data or keys.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserRecord {
    /// The payload.
    pub data: Bytes,
    /// The partition key; the format allows an empty one.
    pub partition_key: PartitionKey,
    /// The explicit hash key, if the record has one.
    pub explicit_hash_key: Option<ExplicitHashKey>,
    /// The tags, mostly none.
    pub tags: Option<Arc<[Tag]>>,
    /// The place in the aggregate, from 0; a record keeps it when a filter removes others.
    pub sub_sequence: u64,
    /// How many records the aggregate has, with those that a filter removed.
    pub count: u64,
}

impl UserRecord {
    /// How the record came to be, as the rest of the workspace names it.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        Origin::Aggregated { index: self.sub_sequence, count: self.count }
    }
}

impl fmt::Debug for UserRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRecord")
            .field("data", &format_args!("{} bytes", self.data.len()))
            .field("partition_key", &self.partition_key)
            .field("explicit_hash_key", &self.explicit_hash_key.is_some())
            .field("tags", &self.tags.as_deref().unwrap_or_default().len())
            .field("sub_sequence", &self.sub_sequence)
            .field("count", &self.count)
            .finish()
    }
}

impl TryFrom<UserRecord> for OutboundRecord {
    type Error = InvalidHashKey;

    /// To be written again. The error is that of an explicit hash key which the service would refuse.
    fn try_from(record: UserRecord) -> Result<Self, InvalidHashKey> {
        let outbound = Self::new(record.partition_key, record.data);
        match record.explicit_hash_key {
            None => Ok(outbound),
            Some(key) => Ok(outbound.explicit_hash_key(key.hash_key().ok_or(InvalidHashKey)?)),
        }
    }
}

/// The explicit hash key of a decoded record, as the aggregate has it. Cheap to clone.
///
/// The format carries any text here; [`hash_key`](Self::hash_key) is its value where it is a hash key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExplicitHashKey(Arc<(String, Option<HashKey>)>);

impl ExplicitHashKey {
    pub(crate) fn new(text: &str) -> Self {
        Self(Arc::new((text.to_owned(), text.parse().ok())))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.0
    }

    /// The number, if the text is one from 0 to 2^128 - 1 in decimal digits; leading zeros are legal.
    #[must_use]
    pub fn hash_key(&self) -> Option<HashKey> {
        self.0.1
    }
}

impl fmt::Debug for ExplicitHashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExplicitHashKey({} bytes)", self.as_str().len())
    }
}

/// A user record to pack, borrowed from wherever it is.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RecordRef<'a> {
    /// The partition key.
    pub partition_key: &'a str,
    /// Overrides the MD5 of the partition key in choosing the shard.
    pub explicit_hash_key: Option<HashKey>,
    /// The payload.
    pub data: &'a [u8],
    /// Tags: no known reader but this crate shows them.
    pub tags: &'a [Tag],
}

impl<'a> RecordRef<'a> {
    /// A record without explicit hash key and tags.
    #[must_use]
    pub const fn new(partition_key: &'a str, data: &'a [u8]) -> Self {
        Self { partition_key, explicit_hash_key: None, data, tags: &[] }
    }

    /// Sets the explicit hash key.
    #[must_use]
    pub const fn explicit_hash_key(mut self, key: Option<HashKey>) -> Self {
        self.explicit_hash_key = key;
        self
    }

    /// Sets the tags.
    #[must_use]
    pub const fn tags(mut self, tags: &'a [Tag]) -> Self {
        self.tags = tags;
        self
    }

    /// The hash key that decides about the shard.
    #[must_use]
    pub fn effective_hash_key(&self) -> HashKey {
        self.explicit_hash_key.unwrap_or_else(|| crate::hash_key(self.partition_key))
    }
}

impl fmt::Debug for RecordRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordRef({} bytes)", self.data.len())
    }
}

/// What an [`Aggregator`](crate::Aggregator) can pack: implement it for the producer's own record.
pub trait ToRecordRef {
    /// The parts of the record.
    fn to_record_ref(&self) -> RecordRef<'_>;
}

impl ToRecordRef for RecordRef<'_> {
    fn to_record_ref(&self) -> RecordRef<'_> {
        *self
    }
}

impl ToRecordRef for OutboundRecord {
    fn to_record_ref(&self) -> RecordRef<'_> {
        RecordRef::new(self.partition_key.as_str(), &self.data).explicit_hash_key(self.explicit_hash_key)
    }
}

impl<T: ToRecordRef + ?Sized> ToRecordRef for &T {
    fn to_record_ref(&self) -> RecordRef<'_> {
        (**self).to_record_ref()
    }
}
