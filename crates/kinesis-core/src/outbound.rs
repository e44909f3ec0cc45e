//! Records on their way to the service.

use std::fmt;

use bytes::Bytes;

use crate::{HashKey, PartitionKey};

/// A record to write. `Debug` shows sizes only.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboundRecord {
    /// The partition key: 1 to 256 characters.
    pub partition_key: PartitionKey,
    /// Overrides the MD5 of the partition key in choosing the shard.
    pub explicit_hash_key: Option<HashKey>,
    /// The payload.
    pub data: Bytes,
}

impl OutboundRecord {
    /// A record with a partition key and a payload.
    pub fn new(partition_key: impl Into<PartitionKey>, data: impl Into<Bytes>) -> Self {
        Self { partition_key: partition_key.into(), explicit_hash_key: None, data: data.into() }
    }

    /// Sets the explicit hash key.
    #[must_use]
    pub fn explicit_hash_key(mut self, key: HashKey) -> Self {
        self.explicit_hash_key = Some(key);
        self
    }

    /// What the service counts against its limits: payload plus partition key, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.data.len() + self.partition_key.byte_len()
    }
}

impl fmt::Debug for OutboundRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutboundRecord({} bytes, {:?})", self.data.len(), self.partition_key)
    }
}

/// Records that are written together: what transformers and producer layers see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OutboundBatch {
    /// The records, in order.
    pub records: Vec<OutboundRecord>,
}

impl OutboundBatch {
    /// A batch of records.
    #[must_use]
    pub fn new(records: Vec<OutboundRecord>) -> Self {
        Self { records }
    }
}
