//! What tests see of the service's inside.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

/// Where a record was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// The shard, for example `shardId-000000000000`.
    pub shard_id: String,
    /// The sequence number: 56 decimal digits.
    pub sequence_number: String,
}

/// A stored record. `Debug` shows the sizes of its key and data, not their content.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRecord {
    /// The shard that holds it.
    pub shard_id: String,
    /// The sequence number: 56 decimal digits.
    pub sequence_number: String,
    /// The partition key; empty where the stream distributes records by itself and the writer gave none.
    pub partition_key: String,
    /// The hash key that the writer gave, if any.
    pub explicit_hash_key: Option<u128>,
    /// The payload.
    pub data: Bytes,
    /// When the service took it.
    pub arrived_at: SystemTime,
}

impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRecord")
            .field("shard_id", &self.shard_id)
            .field("sequence_number", &self.sequence_number)
            .field("partition_key_len", &self.partition_key.len())
            .field("data_len", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// A subscription that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionView {
    /// The consumer's name.
    pub consumer_name: String,
    /// The shard.
    pub shard_id: String,
    /// When it was made, in the service's time.
    pub since: SystemTime,
    /// Events sent, those without records included.
    pub events: u64,
    /// Records sent.
    pub records: u64,
}

/// A shard that the service still lists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardView {
    /// The shard, for example `shardId-000000000000`.
    pub shard_id: String,
    /// The shards that it came from: none, one (split) or two (merge; the adjacent parent second).
    pub parents: Vec<String>,
    /// The shards that came from it.
    pub children: Vec<String>,
    /// The first hash key of its range.
    pub starting_hash_key: u128,
    /// The last hash key of its range.
    pub ending_hash_key: u128,
    /// Below the sequence number of every record in it.
    pub starting_sequence_number: String,
    /// Above the sequence number of every record in it; none while it is open.
    pub ending_sequence_number: Option<String>,
}

impl ShardView {
    /// Whether the shard still takes records.
    pub fn is_open(&self) -> bool {
        self.ending_sequence_number.is_none()
    }
}
