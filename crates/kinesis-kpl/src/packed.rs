//! What an aggregator makes: one Kinesis record to send.

use std::fmt;

use bytes::Bytes;
use kinesis_core::{HashKey, PartitionKey};

/// A finished aggregate, or a lone record: one Kinesis record to send. `Debug` shows sizes only.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed {
    pub(crate) data: Bytes,
    pub(crate) partition_key: PartitionKey,
    pub(crate) explicit_hash_key: Option<HashKey>,
    pub(crate) records: usize,
    pub(crate) framed: bool,
}

impl Packed {
    /// The data of the Kinesis record.
    #[must_use]
    pub const fn data(&self) -> &Bytes {
        &self.data
    }

    /// The data, without a copy.
    #[must_use]
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// The partition key to send it with.
    #[must_use]
    pub const fn partition_key(&self) -> &PartitionKey {
        &self.partition_key
    }

    /// The explicit hash key to send it with, if any.
    #[must_use]
    pub const fn explicit_hash_key(&self) -> Option<HashKey> {
        self.explicit_hash_key
    }

    /// How many user records are in it.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.records
    }

    /// Whether it is in KPL format; a lone record by default is not.
    #[must_use]
    pub const fn is_framed(&self) -> bool {
        self.framed
    }
}

impl From<Packed> for kinesis_core::OutboundRecord {
    fn from(packed: Packed) -> Self {
        let record = Self::new(packed.partition_key, packed.data);
        match packed.explicit_hash_key {
            Some(key) => record.explicit_hash_key(key),
            None => record,
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed")
            .field("data", &format_args!("{} bytes", self.data.len()))
            .field("partition_key", &self.partition_key)
            .field("explicit_hash_key", &self.explicit_hash_key.is_some())
            .field("records", &self.records)
            .field("framed", &self.framed)
            .finish()
    }
}
