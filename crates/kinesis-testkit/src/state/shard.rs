//! One shard: its place in the lineage, its records and its quotas.

use std::sync::Arc;

use bytes::Bytes;

use super::bucket::TokenBucket;
use super::hash::HashRange;
use super::records::{Records, Usage};
use super::reshard::Reshard;
use crate::clock::Moment;
use crate::limits;

/// A stored record.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) ordinal: u64,
    /// Absent where the stream distributes records by itself and the writer gave none.
    pub(crate) partition_key: Option<Arc<str>>,
    pub(crate) explicit_hash_key: Option<u128>,
    pub(crate) data: Bytes,
    pub(crate) arrived: Moment,
}

impl Stored {
    /// What the limits count: data and partition key.
    pub(crate) fn size(&self) -> u64 {
        (self.data.len() + self.partition_key.as_ref().map_or(0, |key| key.len())) as u64
    }
}

/// The token buckets of one shard.
pub(crate) struct Quotas {
    pub(crate) read_calls: TokenBucket,
    pub(crate) read_bytes: TokenBucket,
    pub(crate) iterator_calls: TokenBucket,
    pub(crate) write_bytes: TokenBucket,
    pub(crate) write_records: TokenBucket,
}

impl Quotas {
    fn new(now: Moment) -> Self {
        Self {
            read_calls: TokenBucket::new(limits::READ_CALLS_PER_SECOND, now),
            read_bytes: TokenBucket::new(limits::READ_BYTES_PER_SECOND, now),
            iterator_calls: TokenBucket::new(limits::ITERATOR_CALLS_PER_SECOND, now),
            write_bytes: TokenBucket::new(limits::WRITE_BYTES_PER_SECOND, now),
            write_records: TokenBucket::new(limits::WRITE_RECORDS_PER_SECOND, now),
        }
    }
}

/// One shard. Shards refer to each other by number, which is their place in the stream's list.
pub(crate) struct Shard {
    pub(crate) number: usize,
    /// Its id.
    pub(crate) name: Arc<str>,
    pub(crate) parent: Option<usize>,
    pub(crate) adjacent_parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    pub(crate) range: HashRange,
    pub(crate) starting: u64,
    /// The last ordinal of a closed shard.
    pub(crate) ending: Option<u64>,
    pub(crate) opened: Moment,
    pub(crate) closed: Option<Moment>,
    pub(crate) records: Records,
    pub(crate) quotas: Quotas,
    /// How many records it takes before it changes, and how.
    pub(crate) next_change: Option<(u64, Reshard)>,
    /// The subscriptions that read it.
    pub(crate) subscribers: Vec<u64>,
}

impl Shard {
    pub(crate) fn open(number: usize, range: HashRange, starting: u64, now: Moment, usage: Usage) -> Self {
        Self {
            number,
            name: shard_id(number).into(),
            parent: None,
            adjacent_parent: None,
            children: Vec::new(),
            range,
            starting,
            ending: None,
            opened: now,
            closed: None,
            records: Records::new(usage),
            next_change: None,
            quotas: Quotas::new(now),
            subscribers: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> String {
        shard_id(self.number)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Whether the shard was closed before `horizon`: it is then no longer listed and cannot be read.
    pub(crate) fn is_expired(&self, horizon: Moment) -> bool {
        self.closed.is_some_and(|closed| closed <= horizon)
    }

    /// Forgets the records that arrived at or before `horizon`.
    pub(crate) fn trim(&mut self, horizon: Moment) {
        self.records.trim(horizon);
    }

    /// Counts a record that was written; the change that was to come after it.
    pub(crate) fn count_towards_change(&mut self) -> Option<Reshard> {
        let (left, _) = self.next_change.as_mut()?;
        *left = left.saturating_sub(1);
        if *left > 0 {
            return None;
        }
        self.next_change.take().map(|(_, change)| change)
    }

    /// The place of the first record with this ordinal or a higher one.
    pub(crate) fn place_of(&self, ordinal: u64) -> usize {
        self.records.first_not(|record| record.ordinal < ordinal)
    }

    /// The ordinal of the first record that arrived at `time` or later.
    pub(crate) fn first_since(&self, time: Moment) -> Option<u64> {
        let place = self.records.first_not(|record| record.arrived < time);
        self.records.get(place).map(|record| record.ordinal)
    }
}

/// The id of the shard with this number.
pub(crate) fn shard_id(number: usize) -> String {
    format!("shardId-{number:012}")
}

/// The number in a shard id.
pub(crate) fn shard_number(id: &str) -> Option<usize> {
    let digits = id.strip_prefix("shardId-")?;
    if digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}
