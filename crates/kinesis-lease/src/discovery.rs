//! Which leases a listing of shards calls for: pure, so that it can be tested case by case.

use std::collections::{BTreeMap, BTreeSet};

use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{Lease, LeaseKey};
use kinesis_core::{Checkpoint, ShardId, Timestamp};

/// Where shards start that descend from nothing known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    TrimHorizon,
    Latest { anchor: Timestamp },
    AtTimestamp { anchor: Timestamp },
}

/// The leases to create, in generations: those of one generation do not descend from each other and are made at once,
/// and each generation only after the one before it, so that a crash half-way leaves no child without its parents.
///
/// - No rows yet: every listed shard at the start position; from the tip, open shards only.
/// - Rows exist: a shard with a known parent (its row exists, or is made now) at the trim horizon, so that no record
///   of it is missed; others at the start position with the anchor of the first start.
pub(crate) fn plan(
    template: &LeaseKey,
    shards: &[ShardInfo],
    rows: &BTreeMap<LeaseKey, Lease>,
    start: &Start,
) -> Vec<Vec<Lease>> {
    let first_start = rows.is_empty();
    let start = original(start, rows);
    let mut known: BTreeSet<ShardId> = rows.keys().map(|key| key.shard().clone()).collect();
    let listed: BTreeSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
    let mut left: Vec<&ShardInfo> = shards.iter().filter(|shard| !known.contains(&shard.id)).collect();
    left.sort_by(|a, b| a.id.cmp(&b.id));
    let mut decided = known.clone();
    let mut generations = Vec::new();
    while !left.is_empty() {
        let is_ready = |shard: &&ShardInfo| {
            shard.parents.iter().all(|parent| !listed.contains(parent) || decided.contains(parent))
        };
        let (mut ready, later): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
        left = later;
        if ready.is_empty() {
            // Shards that descend from each other in a circle: not something the service does. Take them as they are.
            ready = std::mem::take(&mut left);
        }
        let mut generation = Vec::new();
        for shard in ready {
            decided.insert(shard.id.clone());
            let descends = !first_start && shard.parents.iter().any(|parent| known.contains(parent));
            let lease =
                if descends { Some(child(template, shard)) } else { at_start(template, shard, &start) };
            generation.extend(lease);
        }
        known.extend(generation.iter().map(|lease: &Lease| lease.key.shard().clone()));
        if !generation.is_empty() {
            generations.push(generation);
        }
    }
    generations
}

/// The lease of a shard that follows one that we know: from its first record, whatever the start position is.
pub(crate) fn child(template: &LeaseKey, shard: &ShardInfo) -> Lease {
    lease(template, shard, Checkpoint::TrimHorizon, None)
}

/// Shards that have an unfinished row but are not listed any more.
pub(crate) fn gone<'a>(
    shards: &[ShardInfo],
    rows: &'a BTreeMap<LeaseKey, Lease>,
) -> impl Iterator<Item = &'a LeaseKey> {
    let listed: BTreeSet<ShardId> = shards.iter().map(|shard| shard.id.clone()).collect();
    rows.values()
        // An empty listing says that something else is wrong.
        .filter(move |row| !listed.is_empty() && !row.is_finished() && !listed.contains(row.key.shard()))
        .map(|row| &row.key)
}

/// The anchor is fixed by whoever made the first leases.
fn original(start: &Start, rows: &BTreeMap<LeaseKey, Lease>) -> Start {
    let first = rows.values().filter_map(|row| row.anchor).min();
    match (start, first) {
        (Start::Latest { .. }, Some(anchor)) => Start::Latest { anchor },
        (start, _) => start.clone(),
    }
}

fn at_start(template: &LeaseKey, shard: &ShardInfo, start: &Start) -> Option<Lease> {
    match start {
        Start::TrimHorizon => Some(lease(template, shard, Checkpoint::TrimHorizon, None)),
        Start::Latest { .. } if shard.closed => None,
        Start::Latest { anchor } => Some(lease(template, shard, Checkpoint::Latest, Some(*anchor))),
        // Closed shards may have records after that time, too.
        Start::AtTimestamp { anchor } => Some(lease(template, shard, Checkpoint::AtTimestamp, Some(*anchor))),
    }
}

fn lease(template: &LeaseKey, shard: &ShardInfo, checkpoint: Checkpoint, anchor: Option<Timestamp>) -> Lease {
    let mut lease = Lease::new(template.sibling(shard.id.clone()), checkpoint);
    lease.anchor = anchor;
    lease.parents.clone_from(&shard.parents);
    lease.hash_range = shard.hash_range;
    lease
}
