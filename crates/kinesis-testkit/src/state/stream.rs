//! One stream: its status, its settings and its shards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::consumer::Consumer;
use super::encryption::Encryption;
use super::hash::HashRange;
use super::mode::Distribution;
use super::records::Usage;
use super::reshard::Reshard;
use super::sequence::Sequences;
use super::shard::{Shard, shard_number};
use super::shards::Shards;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{EnhancedMetrics, HashKeyRange, SequenceNumberRange, ShardOutput, StreamMode};

/// The status as the service reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Creating,
    Active,
    Updating,
    Deleting,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Active => "ACTIVE",
            Self::Updating => "UPDATING",
            Self::Deleting => "DELETING",
        }
    }
}

/// How the stream's capacity is managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Provisioned,
    OnDemand,
}

impl Mode {
    pub(crate) fn output(self) -> StreamMode {
        StreamMode {
            stream_mode: match self {
                Self::Provisioned => "PROVISIONED",
                Self::OnDemand => "ON_DEMAND",
            },
        }
    }
}

/// What happens once the stream has been in a passing status for long enough.
#[derive(Debug)]
pub(crate) enum Change {
    /// The stream becomes active.
    Activate,
    /// The shards change, then the stream becomes active.
    Reshard(Reshard),
    /// The stream disappears.
    Delete,
}

pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) arn: String,
    /// Tells a stream from an earlier one of the same name.
    pub(crate) incarnation: u32,
    pub(crate) created: Moment,
    pub(crate) status: Status,
    pub(crate) pending: Option<(Moment, Change)>,
    pub(crate) mode: Mode,
    pub(crate) retention_hours: u32,
    pub(crate) max_record_kib: u64,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) shards: Shards,
    /// The open shards by the start of their range: they cover every hash key exactly once.
    pub(crate) open: BTreeMap<u128, usize>,
    pub(crate) sequences: Sequences,
    /// Counts the bytes of the records.
    pub(crate) usage: Usage,
    pub(super) consumers: BTreeMap<String, Consumer>,
    pub(super) encryption: Option<Encryption>,
    pub(super) distribution: Distribution,
    /// Counts the records that the service distributes by itself.
    pub(super) turn: usize,
    /// When the shard count was changed by request, of the last day.
    pub(super) count_changes: Vec<Moment>,
    /// Subscriptions with news.
    pub(super) woken: Vec<u64>,
}

impl Stream {
    /// Makes the first shards.
    pub(crate) fn populate(&mut self, count: usize, now: Moment) {
        for range in HashRange::uniform(count) {
            self.open_shard(range, now);
        }
    }

    /// Adds an open shard without parents and returns its number.
    pub(crate) fn open_shard(&mut self, range: HashRange, now: Moment) -> usize {
        let number = self.shards.next_number();
        let starting = self.sequences.allocate();
        self.shards.push(Shard::open(number, range, starting, now, self.usage.clone()));
        self.open.insert(range.start, number);
        number
    }

    /// The number of the open shard that holds `hash_key`.
    pub(crate) fn route(&self, hash_key: u128) -> usize {
        let (_, number) =
            self.open.range(..=hash_key).next_back().expect("the open shards cover every hash key");
        *number
    }

    /// The moment that everything kept is younger than; none while nothing can have expired.
    pub(crate) fn horizon(&self, now: Moment) -> Option<Moment> {
        let retention = Duration::from_secs(u64::from(self.retention_hours) * 3_600);
        (now.since(Moment::EPOCH) >= retention).then(|| now.minus(retention))
    }

    /// The shard with this id, unless it never was or `horizon` lies after its end.
    pub(crate) fn shard(&self, id: &str, horizon: Option<Moment>) -> Option<&Shard> {
        let shard = self.shards.get(shard_number(id)?)?;
        let expired = horizon.is_some_and(|horizon| shard.is_expired(horizon));
        (!expired).then_some(shard)
    }

    /// Fails unless the stream is active.
    pub(crate) fn require_active(&self, account: &str) -> Result<(), ServiceError> {
        if self.status == Status::Active {
            return Ok(());
        }
        Err(ServiceError::resource_in_use(format!(
            "Stream {} under account {account} not ACTIVE, instead in state {}",
            self.name,
            self.status.name()
        )))
    }

    pub(crate) fn shard_output(&self, shard: &Shard) -> ShardOutput {
        ShardOutput {
            shard_id: shard.id(),
            parent_shard_id: shard.parent.map(super::shard::shard_id),
            adjacent_parent_shard_id: shard.adjacent_parent.map(super::shard::shard_id),
            hash_key_range: hash_output(shard.range),
            sequence_number_range: SequenceNumberRange {
                starting_sequence_number: self.sequences.render(shard.starting, shard.number),
                ending_sequence_number: shard
                    .ending
                    .map(|ending| self.sequences.render(ending, shard.number)),
            },
        }
    }

    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.max_record_kib * 1_024
    }
}

/// Settings of a stream that is to be made.
pub(crate) struct NewStream {
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) incarnation: u32,
    pub(crate) mode: Mode,
    pub(crate) max_record_kib: u64,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) seed: u64,
    pub(crate) growing_numbers: bool,
    pub(crate) usage: Usage,
}

impl NewStream {
    /// The stream, without shards, in creation.
    pub(crate) fn build(self, now: Moment) -> Stream {
        Stream {
            sequences: Sequences::new(now, self.incarnation, self.seed, self.growing_numbers),
            name: self.name,
            arn: self.arn,
            incarnation: self.incarnation,
            created: now,
            status: Status::Creating,
            pending: None,
            mode: self.mode,
            retention_hours: limits::MIN_RETENTION_HOURS,
            max_record_kib: self.max_record_kib,
            tags: self.tags,
            shards: Shards::default(),
            usage: self.usage,
            open: BTreeMap::new(),
            consumers: BTreeMap::new(),
            encryption: None,
            distribution: Distribution::default(),
            turn: 0,
            count_changes: Vec::new(),
            woken: Vec::new(),
        }
    }
}

pub(crate) fn hash_output(range: HashRange) -> HashKeyRange {
    HashKeyRange { starting_hash_key: range.start.to_string(), ending_hash_key: range.end.to_string() }
}

/// What is reported of enhanced monitoring, which the test kit does not have.
pub(crate) fn no_metrics() -> [EnhancedMetrics; 1] {
    [EnhancedMetrics { shard_level_metrics: [] }]
}
