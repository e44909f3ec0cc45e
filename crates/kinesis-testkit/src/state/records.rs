//! The records of a shard, and the memory that all records of a service hold.

use std::collections::VecDeque;
use std::ops::RangeFrom;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shard::Stored;
use crate::clock::Moment;

/// The bytes that all records of a service hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage(Arc<AtomicU64>);

impl Usage {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a record holds: data, key and what is noted of it.
fn held(record: &Stored) -> u64 {
    record.size() + size_of::<Stored>() as u64
}

/// Records in the order of their ordinals. Counts what it holds, and gives it back when it is dropped.
pub(crate) struct Records {
    queue: VecDeque<Stored>,
    bytes: u64,
    usage: Usage,
}

impl Records {
    pub(crate) fn new(usage: Usage) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, usage }
    }

    /// The bytes that these records hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Stored> {
        self.queue.get(place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.queue.iter()
    }

    pub(crate) fn from(&self, places: RangeFrom<usize>) -> impl Iterator<Item = &Stored> {
        self.queue.range(places)
    }

    /// The place of the first record for which `before` does not hold.
    pub(crate) fn first_not(&self, before: impl FnMut(&Stored) -> bool) -> usize {
        self.queue.partition_point(before)
    }

    pub(crate) fn push(&mut self, record: Stored) {
        let held = held(&record);
        self.bytes += held;
        self.usage.0.fetch_add(held, Ordering::Relaxed);
        self.queue.push_back(record);
    }

    /// Forgets the first `count` records; returns how many there were.
    pub(crate) fn forget_first(&mut self, count: usize) -> usize {
        let count = count.min(self.queue.len());
        let freed: u64 = self.queue.drain(..count).map(|record| held(&record)).sum();
        self.give_back(freed);
        if self.queue.capacity() > 4 * self.queue.len() {
            // A burst leaves no room behind, also where something is always left.
            self.queue.shrink_to(2 * self.queue.len());
        }
        count
    }

    /// Forgets the records that arrived at or before `horizon`.
    pub(crate) fn trim(&mut self, horizon: Moment) {
        if self.queue.front().is_some_and(|record| record.arrived <= horizon) {
            self.forget_first(self.first_not(|record| record.arrived <= horizon));
        }
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.usage.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Room is given back after a burst, whether the shard is empty then or not, and what is counted is what is left.
    #[test]
    fn a_burst_leaves_no_room_behind() {
        let usage = Usage::default();
        let mut records = Records::new(usage.clone());
        for left in [3, 0] {
            for ordinal in 0..10_000 {
                records.push(Stored {
                    ordinal,
                    partition_key: None,
                    explicit_hash_key: None,
                    data: Bytes::from_static(b"x"),
                    arrived: Moment::EPOCH,
                });
            }
            records.forget_first(records.len() - left);
            assert_eq!(records.len(), left);
            assert!(records.queue.capacity() <= 4 * left, "{} for {left}", records.queue.capacity());
            assert_eq!(usage.bytes(), records.iter().map(held).sum::<u64>());
        }
    }
}
