//! The stream as the service has it: the truth that workers only learn of by listings and ends of shards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kinesis_core::ShardId;
use kinesis_core::directory::ShardInfo;

use super::shard_id;

/// One shard.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) parents: Vec<u32>,
    pub(super) children: Vec<u32>,
    pub(super) open: bool,
    /// How long its consumers still have to work on it once it is closed.
    pub(super) left: Duration,
    /// Its records outlived their retention, and it is listed no more.
    pub(super) trimmed: bool,
    /// A consumer said that everything in it is done.
    pub(super) consumed: bool,
    /// Nobody has to read it: it was closed before the application began at the tip.
    pub(super) skipped: bool,
    pub(super) made_at: Duration,
}

/// The shards of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) shards: BTreeMap<u32, Shard>,
}

impl Stream {
    /// Adds open shards.
    pub(super) fn add(&mut self, parents: Vec<u32>, now: Duration) -> u32 {
        let number = u32::try_from(self.shards.len()).expect("few shards");
        for parent in &parents {
            if let Some(parent) = self.shards.get_mut(parent) {
                parent.children.push(number);
            }
        }
        let shard = Shard {
            parents,
            children: Vec::new(),
            open: true,
            left: Duration::ZERO,
            trimmed: false,
            consumed: false,
            skipped: false,
            made_at: now,
        };
        self.shards.insert(number, shard);
        number
    }

    /// Closes a shard and makes two of it.
    pub(super) fn split(&mut self, number: u32, left: Duration, now: Duration) {
        self.close(number, left);
        self.add(vec![number], now);
        self.add(vec![number], now);
    }

    /// Closes two shards and makes one of them.
    pub(super) fn merge(&mut self, a: u32, b: u32, left: [Duration; 2], now: Duration) {
        self.close(a, left[0]);
        self.close(b, left[1]);
        self.add(vec![a, b], now);
    }

    fn close(&mut self, number: u32, left: Duration) {
        if let Some(shard) = self.shards.get_mut(&number) {
            shard.open = false;
            shard.left = left;
        }
    }

    pub(super) fn open(&self) -> Vec<u32> {
        self.shards.iter().filter(|(_, shard)| shard.open).map(|(number, _)| *number).collect()
    }

    /// What a listing shows, without the shards that it misses.
    pub(super) fn listing(&self, missed: &BTreeSet<u32>) -> Vec<ShardInfo> {
        let listed = self.shards.iter().filter(|(number, shard)| !shard.trimmed && !missed.contains(number));
        listed.map(|(number, shard)| self.info(*number).closed(!shard.open)).collect()
    }

    /// What the service says of a shard's children at its end.
    pub(super) fn children(&self, number: u32) -> Vec<ShardInfo> {
        self.shards[&number].children.iter().map(|child| self.info(*child)).collect()
    }

    fn info(&self, number: u32) -> ShardInfo {
        let parents: Vec<ShardId> =
            self.shards[&number].parents.iter().map(|parent| shard_id(*parent)).collect();
        ShardInfo::new(shard_id(number)).parents(parents)
    }

    /// Whether everything before a shard is done with, so that its records may be handled.
    pub(super) fn may_begin(&self, number: u32) -> bool {
        let is_done = |parent: &u32| {
            let parent = &self.shards[parent];
            parent.consumed || parent.trimmed || parent.skipped
        };
        self.shards[&number].parents.iter().all(is_done)
    }
}
