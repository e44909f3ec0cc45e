//! Rows as DynamoDB items: the attributes of the KCL, and ours under one prefix.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use kinesis_core::lease::{CoolDown, Lease, LeaseKey, PrivateValue, StoreError};
use kinesis_core::{Checkpoint, HashKeyRange, Position, ShardId, StreamRef, Timestamp};

use super::layout::{Keys, TableLayout, same_stream};

pub(super) type Item = HashMap<String, AttributeValue>;

pub(super) const KEY: &str = "leaseKey";
pub(super) const OWNER: &str = "leaseOwner";
pub(super) const COUNTER: &str = "leaseCounter";
pub(super) const OWNER_SWITCHES: &str = "ownerSwitchesSinceCheckpoint";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
pub(super) const PENDING: &str = "pendingCheckpoint";
pub(super) const PENDING_SUB_SEQUENCE: &str = "pendingCheckpointSubSequenceNumber";
pub(super) const PENDING_STATE: &str = "pendingCheckpointState";
/// Singular, but a set.
pub(super) const PARENTS: &str = "parentShardId";
pub(super) const CHILDREN: &str = "childShardIds";
pub(super) const HASH_START: &str = "startingHashKey";
pub(super) const HASH_END: &str = "endingHashKey";
pub(super) const THROUGHPUT: &str = "throughputKBps";
pub(super) const CHECKPOINT_OWNER: &str = "checkpointOwner";
pub(super) const ENTITY_TYPE: &str = "entityType";
pub(super) const STREAM_NAME: &str = "streamName";
pub(super) const SHARD_ID: &str = "shardId";

/// The entity type of a lease; rows of older versions have none.
const LEASE: &str = "LEASE";

/// Rows of the KCL that are no leases and, from some versions, say so only by their key.
const WELL_KNOWN: &[&str] = &["Leader", "Migration3.0", "TableMigration3.5"];

/// What starts the name of every attribute that the KCL does not know.
pub(super) const PREFIX: &str = "kinesisRs_";
pub(super) const EPOCH: &str = "kinesisRs_epoch";
pub(super) const TOKEN: &str = "kinesisRs_token";
/// In tables that are shared with the KCL: the counter as this library has left it, which belongs to the token. The KCL
/// adds to the row's counter when it takes a lease, and leaves the token of the tenure before.
pub(super) const TOKEN_COUNTER: &str = "kinesisRs_tokenCounter";
pub(super) const ANCHOR: &str = "kinesisRs_anchor";
pub(super) const COOL_DOWN: &str = "kinesisRs_coolDownMillis";
pub(super) const COOL_DOWN_FAILURES: &str = "kinesisRs_coolDownFailures";
/// In tables that are shared with the KCL: the stream of a row that this library made.
pub(super) const STREAM: &str = "kinesisRs_stream";
/// A random mark of the last write by this library, by which a lost answer is recognised.
pub(super) const WRITE: &str = "kinesisRs_write";
/// What starts the name of a private attribute of this library's users.
const USER_PREFIX: &str = "kinesisRs_user_";

/// The largest throughput that is written, far above any shard's and within DynamoDB's 38 digits.
const MAX_THROUGHPUT: f64 = 1e15;

/// The attribute of a private value.
pub(super) fn user_attribute(name: &str) -> String {
    format!("{USER_PREFIX}{name}")
}

pub(super) fn text(value: &(impl ToString + ?Sized)) -> AttributeValue {
    AttributeValue::S(value.to_string())
}

pub(super) fn number(value: &impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The checkpoint's word or digits; the place inside an aggregate is an attribute of its own.
pub(super) fn sequence(checkpoint: &Checkpoint) -> AttributeValue {
    match checkpoint {
        Checkpoint::At(position) => text(position.sequence()),
        sentinel => text(sentinel),
    }
}

pub(super) fn sub_sequence(checkpoint: &Checkpoint) -> AttributeValue {
    number(&checkpoint.position().map_or(0, Position::sub_sequence))
}

/// A set; `None` where it would be empty, which DynamoDB does not accept.
pub(super) fn shard_set(shards: &[ShardId]) -> Option<AttributeValue> {
    let mut names: Vec<String> = shards.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then_some(AttributeValue::Ss(names))
}

/// Six decimals, as the KCL writes it; `None` for what is no number.
pub(super) fn throughput(kbps: f64) -> Option<AttributeValue> {
    kbps.is_finite().then(|| number(&format!("{:.6}", kbps.clamp(0.0, MAX_THROUGHPUT))))
}

pub(super) fn cool_down_millis(cool_down: CoolDown) -> AttributeValue {
    number(&u64::try_from(cool_down.rest.as_millis()).unwrap_or(u64::MAX))
}

/// The value of a private attribute; `None` for a kind that this store does not know.
pub(super) fn private(value: &PrivateValue) -> Option<AttributeValue> {
    match value {
        PrivateValue::Text(value) => Some(text(value)),
        PrivateValue::Number(value) => Some(number(value)),
        PrivateValue::Binary(bytes) => Some(AttributeValue::B(Blob::new(bytes.clone()))),
        _ => None,
    }
}

/// The whole item of a new row.
pub(super) fn write(lease: &Lease, keys: &Keys, mark: &str) -> Result<Item, StoreError> {
    let mut item = Item::new();
    let mut put = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    put(KEY, Some(text(&keys.render(&lease.key)?)));
    put(ENTITY_TYPE, Some(text(LEASE)));
    put(OWNER, lease.owner.as_ref().map(text));
    put(COUNTER, Some(number(&lease.counter)));
    put(OWNER_SWITCHES, Some(number(&lease.owner_switches)));
    put(CHECKPOINT, Some(sequence(&lease.checkpoint)));
    put(SUB_SEQUENCE, Some(sub_sequence(&lease.checkpoint)));
    put(PENDING, lease.pending.as_ref().map(sequence));
    put(PENDING_SUB_SEQUENCE, lease.pending.as_ref().map(sub_sequence));
    put(PENDING_STATE, lease.pending_state.clone().map(|state| AttributeValue::B(Blob::new(state))));
    put(PARENTS, shard_set(&lease.parents));
    put(CHILDREN, shard_set(&lease.children));
    put(HASH_START, lease.hash_range.map(|range| text(&range.start())));
    put(HASH_END, lease.hash_range.map(|range| text(&range.end())));
    put(THROUGHPUT, lease.throughput_kbps.and_then(throughput));
    put(CHECKPOINT_OWNER, lease.checkpoint_owner.as_ref().map(text));
    put(EPOCH, (lease.epoch > 0).then(|| number(&lease.epoch)));
    put(TOKEN, lease.token.as_ref().map(text));
    if keys.layout.is_shared() {
        put(TOKEN_COUNTER, Some(number(&lease.counter)));
    }
    put(ANCHOR, lease.anchor.map(|anchor| number(&anchor.as_millis())));
    put(COOL_DOWN, lease.cool_down.map(cool_down_millis));
    put(COOL_DOWN_FAILURES, lease.cool_down.map(|cool_down| number(&cool_down.failures)));
    put(WRITE, Some(text(mark)));
    for (name, value) in &lease.private {
        put(&user_attribute(name), private(value));
    }
    match &keys.layout {
        TableLayout::Native => {}
        TableLayout::KclSingleStream { .. } => put(STREAM, Some(text(lease.key.stream()))),
        TableLayout::KclMultiStream { .. } => {
            put(STREAM, Some(text(lease.key.stream())));
            put(STREAM_NAME, Some(text(keys.identifier(lease.key.stream())?)));
            put(SHARD_ID, Some(text(lease.key.shard())));
        }
    }
    Ok(item)
}

/// Whether the item is a lease, readable or not, and not something else that the KCL keeps in the same table.
pub(super) fn is_lease(item: &Item) -> bool {
    if let Some(kind) = item.get(ENTITY_TYPE) {
        return kind.as_s().is_ok_and(|kind| kind == LEASE);
    }
    if item.contains_key(CHECKPOINT) || item.contains_key(COUNTER) {
        return true;
    }
    key_of(item).is_some_and(|key| !WELL_KNOWN.contains(&key) && key.contains("shardId-"))
}

/// Whether the row was not made by this library.
pub(super) fn is_made_by_kcl(item: &Item) -> bool {
    !item.contains_key(STREAM)
}

/// Whether somebody who does not know this library has added to the counter last.
pub(super) fn is_counted_by_kcl(item: &Item) -> bool {
    let row = Row(item);
    let counter: Option<u64> = row.number(COUNTER).ok().flatten();
    let ours: Option<u64> = row.number(TOKEN_COUNTER).ok().flatten();
    counter.is_some_and(|counter| counter != ours.unwrap_or(0))
}

pub(super) fn key_of(item: &Item) -> Option<&str> {
    item.get(KEY)?.as_s().ok().map(String::as_str)
}

/// The mark of the last write by this library.
pub(super) fn mark_of(item: &Item) -> Option<&str> {
    item.get(WRITE)?.as_s().ok().map(String::as_str)
}

/// The stream that a row says it is of.
pub(super) fn stream_of(item: &Item) -> Option<Result<StreamRef, String>> {
    let stream = item.get(STREAM)?.as_s().ok()?;
    Some(StreamRef::new(stream.as_str()).map_err(|error| format!("{STREAM}: {error}")))
}

/// Reads a row.
pub(super) fn read(item: &Item, key: LeaseKey, keys: &Keys) -> Result<Lease, StoreError> {
    if let Some(stream) = stream_of(item) {
        let stream = stream.map_err(|problem| StoreError::corrupt(key.clone(), problem))?;
        same_stream(&stream, key.stream())?;
    }
    let row = Row(item);
    let mut lease = row.lease(key.clone()).map_err(|problem| StoreError::corrupt(key.clone(), problem))?;
    if keys.layout.is_shared() && lease.token.is_some() {
        let of_token = row.number(TOKEN_COUNTER).map_err(|problem| StoreError::corrupt(key, problem))?;
        // Somebody who does not know tokens has counted on: the tenure of the token is over.
        lease.token = lease.token.filter(|_| of_token == Some(lease.counter));
    }
    Ok(lease)
}

/// Typed access to an item. Errors name the attribute and nothing of its value.
struct Row<'a>(&'a Item);

impl Row<'_> {
    fn lease(&self, key: LeaseKey) -> Result<Lease, String> {
        let checkpoint = self.checkpoint(CHECKPOINT, SUB_SEQUENCE)?.ok_or(missing(CHECKPOINT))?;
        let mut lease = Lease::new(key, checkpoint);
        lease.owner = self.parsed(OWNER)?;
        lease.counter = self.number(COUNTER)?.ok_or(missing(COUNTER))?;
        lease.epoch = self.number(EPOCH)?.unwrap_or(0);
        lease.token = self.parsed(TOKEN)?;
        lease.pending = self.checkpoint(PENDING, PENDING_SUB_SEQUENCE)?;
        // A creation by the KCL puts a number here by mistake, which counts as absent.
        lease.pending_state = self.0.get(PENDING_STATE).and_then(|state| state.as_b().ok()).map(bytes_of);
        lease.anchor = self.number::<i64>(ANCHOR)?.map(Timestamp::from_millis);
        lease.parents = self.shards(PARENTS)?;
        lease.children = self.shards(CHILDREN)?;
        lease.hash_range = match (self.parsed(HASH_START)?, self.parsed(HASH_END)?) {
            (Some(start), Some(end)) => {
                Some(HashKeyRange::new(start, end).ok_or(format!("{HASH_START} is above {HASH_END}"))?)
            }
            _ => None,
        };
        lease.owner_switches = self.number(OWNER_SWITCHES)?.unwrap_or(0);
        lease.checkpoint_owner = self.parsed(CHECKPOINT_OWNER)?;
        lease.throughput_kbps = self.number(THROUGHPUT)?;
        if let Some(rest) = self.number(COOL_DOWN)? {
            let failures = self.number(COOL_DOWN_FAILURES)?.unwrap_or(1);
            lease.cool_down = Some(CoolDown::new(Duration::from_millis(rest), failures));
        }
        for (name, value) in self.0 {
            if let (Some(name), Some(value)) = (name.strip_prefix(USER_PREFIX), private_of(value)) {
                lease.private.insert(name.to_owned(), value);
            }
        }
        Ok(lease)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{name} is not text")),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let text = self.text(name)?;
        text.map(|text| text.parse().map_err(|_| format!("{name} cannot be understood"))).transpose()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => {
                digits.parse().map(Some).map_err(|_| format!("{name} is not a number in its range"))
            }
            Some(_) => Err(format!("{name} is not a number")),
        }
    }

    fn checkpoint(&self, name: &str, sub_name: &str) -> Result<Option<Checkpoint>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        Ok(Some(match text {
            "AT_TIMESTAMP" => Checkpoint::AtTimestamp,
            "TRIM_HORIZON" => Checkpoint::TrimHorizon,
            "LATEST" => Checkpoint::Latest,
            "SHARD_END" => Checkpoint::ShardEnd,
            digits => {
                let sequence = digits
                    .parse()
                    .map_err(|_| format!("{name} is neither a sequence number nor a known word"))?;
                Checkpoint::At(Position::new(sequence, self.number(sub_name)?.unwrap_or(0)))
            }
        }))
    }

    fn shards(&self, name: &str) -> Result<Vec<ShardId>, String> {
        let names = match self.0.get(name) {
            None => return Ok(Vec::new()),
            Some(AttributeValue::Ss(names)) => names,
            Some(_) => return Err(format!("{name} is not a set of texts")),
        };
        let parse = |shard: &String| shard.parse().map_err(|_| format!("{name} has an unusable shard id"));
        let mut shards = names.iter().map(parse).collect::<Result<Vec<ShardId>, String>>()?;
        shards.sort_unstable();
        Ok(shards)
    }
}

fn missing(name: &str) -> String {
    format!("{name} is missing")
}

fn bytes_of(blob: &Blob) -> Bytes {
    Bytes::copy_from_slice(blob.as_ref())
}

/// `None` for a type that a private attribute cannot have: it is kept, but not shown.
fn private_of(value: &AttributeValue) -> Option<PrivateValue> {
    match value {
        AttributeValue::S(text) => Some(PrivateValue::Text(text.clone())),
        AttributeValue::N(digits) => digits.parse().ok().map(PrivateValue::Number),
        AttributeValue::B(blob) => Some(PrivateValue::Binary(bytes_of(blob))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/item.rs"]
mod tests;
