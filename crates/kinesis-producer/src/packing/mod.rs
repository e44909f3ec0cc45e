//! From records as they were put to Kinesis records: which of them share an aggregate, and what goes out.
//!
//! All of it is pure and synchronous: the [batcher](crate::batcher) gives it records, time and lists of shards.

mod atlas;
mod packer;
mod parcel;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use kinesis_core::{OutboundRecord, PartitionKey, ShardId};

pub(crate) use self::atlas::{Atlas, Listed};
pub(crate) use self::packer::Packer;
pub(crate) use self::parcel::{Load, Parcel};
use crate::config::RECORD_OVERHEAD;

/// A record as it was put, with whatever its owner wants to have back with the answer.
pub(crate) trait Put {
    fn record(&self) -> &OutboundRecord;

    /// The payload as it is to be sent, where that is not the record's own.
    fn encoded(&self) -> Option<&Bytes> {
        None
    }

    fn payload(&self) -> &Bytes {
        self.encoded().unwrap_or(&self.record().data)
    }
}

/// What a record counts of the byte budget.
pub(crate) fn cost(record: &OutboundRecord) -> usize {
    record.wire_len() + RECORD_OVERHEAD
}

/// What a record that is in the producer counts of the byte budget.
pub(crate) fn held_cost(put: &impl Put) -> usize {
    cost(put.record()) + put.encoded().map_or(0, Bytes::len)
}

/// Records of one lane are never in two calls at a time, so that calls cannot overtake each other within a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    Key(PartitionKey),
    Shard(ShardId),
    /// Where any key may be in any Kinesis record.
    All,
}

/// What shares an aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// One partition key, with or without one explicit hash key.
    Key(PartitionKey, Option<kinesis_core::HashKey>),
    Shard(ShardId),
    All,
}

/// Where a record goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) group: Group,
    pub(crate) lane: Lane,
    /// The shard that it is expected in, where that is known.
    pub(crate) shard: Option<ShardId>,
    /// Grows when lanes change: calls with records of different epochs are never under way together.
    pub(crate) epoch: u64,
}

impl Address {
    fn of_key(record: &OutboundRecord, epoch: u64) -> Self {
        let key = record.partition_key.clone();
        Self {
            group: Group::Key(key.clone(), record.explicit_hash_key),
            lane: Lane::Key(key),
            shard: None,
            epoch,
        }
    }
}
