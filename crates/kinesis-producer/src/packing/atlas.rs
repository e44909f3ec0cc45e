//! Which shard a record goes to: the list of shards, when it is read, and how far it can be trusted.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::directory::ShardInfo;
use kinesis_core::{HashKeyRange, OutboundRecord, ShardId};
use kinesis_kpl::{ShardMap, ToRecordRef as _};

use super::{Address, Group, Lane};
use crate::ProducerConfig;
use crate::aggregation::Aggregation;

/// Gives records their addresses. With shards it begins without a list and asks for one when the first record comes.
///
/// A shard is **doubted** from the moment on when the service stores a record in another one, until a list explains it:
/// the records of a doubted shard are packed by key, which is right wherever they land.
#[derive(Debug)]
pub(crate) struct Atlas {
    mode: Mode,
    /// Grows whenever lanes change.
    epoch: u64,
    map: Option<ShardMap<ShardId>>,
    /// Expected and actual shards that no list has explained so far.
    surprises: BTreeSet<(ShardId, ShardId)>,
    doubted: HashSet<ShardId>,
    interval: Duration,
    backoff: Backoff,
    reading: bool,
    /// When the last reading began.
    read_at: Option<Instant>,
    /// When the next one is to begin.
    due: Option<Instant>,
    /// Whether a first reading has ended, one way or another.
    tried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Key,
    All,
    Shard,
    /// By shard, but the stream does not go by hash keys.
    Unpredictable,
}

/// What a list of shards came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Nothing new.
    AsBefore,
    /// Records have other addresses now.
    Changed,
    /// The stream distributes records by itself: from now on they are packed by key.
    Unpredictable,
}

impl Atlas {
    pub(crate) fn new(config: &ProducerConfig, seed: u64) -> Self {
        let mode = match config.aggregation {
            Aggregation::ByShard if !config.partition_key_safety => Mode::Shard,
            Aggregation::FirstKey if !config.partition_key_safety => Mode::All,
            _ => Mode::Key,
        };
        let pace = BackoffConfig::new(config.shard_map_interval, config.shard_map_retry_max);
        Self {
            mode,
            epoch: 0,
            map: None,
            surprises: BTreeSet::new(),
            doubted: HashSet::new(),
            interval: config.shard_map_interval,
            backoff: Backoff::new(pace, seed),
            reading: false,
            read_at: None,
            due: None,
            tried: false,
        }
    }

    /// Where the record goes; `None` while the first list is awaited.
    pub(crate) fn address(&self, record: &OutboundRecord) -> Option<Address> {
        match self.mode {
            Mode::Key | Mode::Unpredictable => Some(Address::of_key(record, self.epoch)),
            Mode::All => Some(Address { group: Group::All, lane: Lane::All, shard: None, epoch: self.epoch }),
            Mode::Shard if !self.tried => None,
            Mode::Shard => Some(self.address_by_shard(record)),
        }
    }

    fn address_by_shard(&self, record: &OutboundRecord) -> Address {
        let mut address = Address::of_key(record, self.epoch);
        let key = record.to_record_ref().effective_hash_key();
        // A key in a hole of the list has no shard.
        if let Some((_, shard)) = self.map.as_ref().and_then(|map| map.lookup(key)) {
            address.lane = Lane::Shard(shard.clone());
            address.shard = Some(shard.clone());
            if !self.doubted.contains(shard) {
                address.group = Group::Shard(shard.clone());
            }
        }
        address
    }

    /// The hash keys of an open shard.
    pub(crate) fn range(&self, shard: &ShardId) -> Option<HashKeyRange> {
        range_in(self.map.as_ref()?, shard)
    }

    /// Whether a list is on its way, or will be at once.
    pub(crate) fn is_news_coming(&self, now: Instant) -> bool {
        self.reading || self.due.is_some_and(|due| due <= now)
    }

    /// A record was put: the first one asks for the list.
    pub(crate) fn want(&mut self, now: Instant) {
        if self.mode == Mode::Shard && self.read_at.is_none() {
            self.due.get_or_insert(now);
        }
    }

    /// A record that was expected in one shard was stored in another.
    pub(crate) fn surprise(&mut self, now: Instant, expected: &ShardId, actual: &ShardId) {
        // What was sent by an older list is explained by the present one.
        if self.mode != Mode::Shard || self.range(expected).is_none() {
            return;
        }
        if self.surprises.insert((expected.clone(), actual.clone())) {
            self.doubted.insert(expected.clone());
        }
        if !self.reading && self.due.is_none() {
            let earliest = self.read_at.map(|read_at| read_at + self.interval);
            self.due = Some(earliest.map_or(now, |earliest| earliest.max(now)));
        }
    }

    /// When [`begin`](Self::begin) is to be asked next.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.due.filter(|_| !self.reading)
    }

    /// Whether a reading is to begin now; then it has.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.next_wake().is_some_and(|due| due <= now);
        if begins {
            (self.reading, self.due, self.read_at) = (true, None, Some(now));
        }
        begins
    }

    /// A reading ended, with all shards or without success.
    pub(crate) fn listed(&mut self, now: Instant, shards: Option<Vec<ShardInfo>>) -> Listed {
        let first = !std::mem::replace(&mut self.tried, true);
        self.reading = false;
        let listed = match shards.and_then(map_of) {
            Some(map) => self.compare(now, map),
            None => {
                self.due = Some(now + self.backoff.next_delay());
                Listed::AsBefore
            }
        };
        // Records wait for the first list, whatever comes of it.
        if first && listed == Listed::AsBefore { Listed::Changed } else { listed }
    }

    fn compare(&mut self, now: Instant, map: ShardMap<ShardId>) -> Listed {
        let as_before = |shard: &ShardId| {
            let range = range_in(&map, shard);
            range.is_some() && range == self.range(shard)
        };
        // Both shards are still what they were, and yet a record of the one landed in the other.
        if self.surprises.iter().any(|(expected, actual)| as_before(expected) && as_before(actual)) {
            self.mode = Mode::Unpredictable;
            self.epoch += 1;
            self.map = None;
            return Listed::Unpredictable;
        }
        // A list that still has the shard open is older than the answer.
        let open: Vec<bool> = self.surprises.iter().map(|(expected, _)| as_before(expected)).collect();
        let mut open = open.into_iter();
        self.surprises.retain(|_| open.next().unwrap_or(false));
        self.doubted = self.surprises.iter().map(|(expected, _)| expected.clone()).collect();
        if self.surprises.is_empty() && map.is_complete() {
            self.backoff.reset();
        } else {
            self.due = Some(now + self.backoff.next_delay());
        }
        if self.map.as_ref() == Some(&map) {
            return Listed::AsBefore;
        }
        self.epoch += 1;
        self.map = Some(map);
        Listed::Changed
    }
}

/// The open shards; `None` when the list contradicts itself, as one that is read during a reshard may.
fn map_of(shards: Vec<ShardInfo>) -> Option<ShardMap<ShardId>> {
    let open = shards.into_iter().filter(|shard| !shard.closed);
    let ranges: Vec<_> = open.filter_map(|shard| shard.hash_range.map(|range| (range, shard.id))).collect();
    ShardMap::new(ranges).ok().filter(|map| !map.is_empty())
}

fn range_in(map: &ShardMap<ShardId>, shard: &ShardId) -> Option<HashKeyRange> {
    map.iter().find(|(_, id)| *id == shard).map(|(range, _)| range)
}
