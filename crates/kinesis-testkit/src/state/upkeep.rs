//! What keeps the service small: whatever has aged out is forgotten, and records never hold more than they may.

use std::time::Duration;

use super::Kinesis;
use super::stream::Stream;
use crate::clock::Moment;
use crate::rule::Rule;

/// How often everything is looked through. Reads and writes of a shard trim it in between.
const INTERVAL: Duration = Duration::from_secs(60);

/// The part of the memory limit, one in so many, that is freed beyond what is needed, so that not every write has to.
const HEADROOM: u64 = 16;

impl Kinesis {
    /// Forgets what has aged out, in shards that nobody touches too.
    pub(super) fn keep_up(&mut self, now: Moment) {
        if now < self.next_upkeep {
            return;
        }
        self.next_upkeep = now.plus(INTERVAL);
        if !self.enforces(Rule::Retention) {
            return;
        }
        for stream in self.streams.values_mut() {
            if let Some(horizon) = stream.horizon(now) {
                stream.forget(horizon);
            }
        }
    }

    /// Lets the oldest records go where the limit is exceeded.
    pub(super) fn make_room(&mut self) {
        let limit = self.settings.memory_limit;
        if self.usage.bytes() <= limit {
            return;
        }
        let goal = limit - limit / HEADROOM;
        let mut evicted = 0;
        while self.usage.bytes() > goal {
            let shards = self.streams.values_mut().flat_map(|stream| stream.shards.iter_mut());
            let Some(shard) = shards.max_by_key(|shard| shard.records.bytes()) else { break };
            let count = shard.records.len().div_ceil(8);
            if count == 0 {
                break;
            }
            evicted += shard.records.forget_first(count) as u64;
        }
        self.evicted += evicted;
        tracing::warn!(evicted, limit, "the records exceed the memory limit: the oldest ones are gone");
    }

    /// The bytes that all records hold.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.usage.bytes()
    }

    /// Records that made room for others.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }
}

impl Stream {
    fn forget(&mut self, horizon: Moment) {
        self.shards.forget(horizon);
        for consumer in self.consumers.values_mut() {
            consumer.slots.retain(|shard, _| self.shards.get(*shard).is_some());
        }
    }
}
