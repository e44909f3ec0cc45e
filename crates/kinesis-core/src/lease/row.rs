//! The row of a lease.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{ApplicationName, Checkpoint, HashKeyRange, ShardId, ShardRef, StreamRef, Timestamp, WorkerId};

/// The identity of a lease: a shard of a stream, for an application. One table may serve many of each.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    application: ApplicationName,
    stream: StreamRef,
    shard: ShardId,
}

impl LeaseKey {
    /// The lease of `shard` of `stream` for `application`.
    #[must_use]
    pub fn new(application: ApplicationName, stream: StreamRef, shard: ShardId) -> Self {
        Self { application, stream, shard }
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &ApplicationName {
        &self.application
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &StreamRef {
        &self.stream
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardId {
        &self.shard
    }

    /// Stream and shard.
    #[must_use]
    pub fn shard_ref(&self) -> ShardRef {
        ShardRef::new(self.stream.clone(), self.shard.clone())
    }

    /// The key of another shard of the same stream and application.
    #[must_use]
    pub fn sibling(&self, shard: ShardId) -> Self {
        Self { shard, ..self.clone() }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.application, self.stream.name(), self.shard)
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A random mark that a worker leaves in the row with every taking: two tenures never have the same, so a write that
/// was applied but looked failed is recognised, and a second worker with the same name is told from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenureToken(u128);

impl TenureToken {
    /// A token from a random number of the caller's.
    #[must_use]
    pub const fn from_random(number: u128) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for TenureToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::str::FromStr for TenureToken {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// A fencing token for other systems: of two fences of one lease, the one with the higher epoch is the newer owner's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    key: LeaseKey,
    epoch: u64,
}

impl Fence {
    /// The fence of a lease in an epoch.
    #[must_use]
    pub fn new(key: LeaseKey, epoch: u64) -> Self {
        Self { key, epoch }
    }

    /// The lease.
    #[must_use]
    pub fn key(&self) -> &LeaseKey {
        &self.key
    }

    /// Grows with every change of owner.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn for_test(shard: &ShardRef) -> Self {
        let application = ApplicationName::new("test").expect("a valid name");
        Self::new(LeaseKey::new(application, shard.stream().clone(), shard.shard().clone()), 1)
    }
}

/// A shard that was given back because its records could not be processed: nobody takes it until it has been seen
/// unowned for this long, so that a poison record cannot tour the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoolDown {
    /// How long, on each observer's own clock.
    pub rest: Duration,
    /// How many tenures in a row ended like this.
    pub failures: u32,
}

impl CoolDown {
    /// A rest after the given number of failed tenures in a row.
    #[must_use]
    pub const fn new(rest: Duration, failures: u32) -> Self {
        Self { rest, failures }
    }
}

/// The value of a private attribute of a row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PrivateValue {
    /// Text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Bytes.
    Binary(Bytes),
}

/// The row of a lease, as read from a store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Lease {
    /// Its identity.
    pub key: LeaseKey,
    /// The owner; during a graceful hand-over already the next one.
    pub owner: Option<WorkerId>,
    /// Grows with every guarded write of the owner and with every change of owner. An owner whose counter stands
    /// still on an observer's own clock has expired.
    pub counter: u64,
    /// Grows with every change of owner: the fencing epoch.
    pub epoch: u64,
    /// The mark of the current tenure.
    pub token: Option<TenureToken>,
    /// How far the shard is finished.
    pub checkpoint: Checkpoint,
    /// A position prepared but not yet committed.
    pub pending: Option<Checkpoint>,
    /// Bytes of the application kept with the prepared position.
    pub pending_state: Option<Bytes>,
    /// Where a start at the tip or at a time is anchored: fixed once, when the lease is made.
    pub anchor: Option<Timestamp>,
    /// The shards that this one came from.
    pub parents: Vec<ShardId>,
    /// The shards that follow this one, known when it has ended.
    pub children: Vec<ShardId>,
    /// The part of the key space that the shard holds.
    pub hash_range: Option<HashKeyRange>,
    /// Changes of owner since the last checkpoint.
    pub owner_switches: u64,
    /// During a graceful hand-over: the old owner, who alone may checkpoint and renew.
    pub checkpoint_owner: Option<WorkerId>,
    /// Delivered payload, smoothed, in KiB per second.
    pub throughput_kbps: Option<f64>,
    /// Set while the shard rests after failures.
    pub cool_down: Option<CoolDown>,
    /// Attributes that are no field of a lease: private ones of this library's users, kept by every store.
    pub private: BTreeMap<String, PrivateValue>,
}

impl Lease {
    /// A new, unowned lease that starts at `checkpoint`.
    #[must_use]
    pub fn new(key: LeaseKey, checkpoint: Checkpoint) -> Self {
        Self {
            key,
            owner: None,
            counter: 0,
            epoch: 0,
            token: None,
            checkpoint,
            pending: None,
            pending_state: None,
            anchor: None,
            parents: Vec::new(),
            children: Vec::new(),
            hash_range: None,
            owner_switches: 0,
            checkpoint_owner: None,
            throughput_kbps: None,
            cool_down: None,
            private: BTreeMap::new(),
        }
    }

    /// The worker that works on the shard now: during a hand-over the old owner.
    #[must_use]
    pub fn holder(&self) -> Option<&WorkerId> {
        self.checkpoint_owner.as_ref().or(self.owner.as_ref())
    }

    /// The fence of the current tenure.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::new(self.key.clone(), self.epoch)
    }

    /// Whether the shard is finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.checkpoint.is_shard_end()
    }
}
