//! Which leases a listing of shards calls for: pure, so that it can be tested case by case.

use std::collections::{BTreeMap, BTreeSet};

use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{Lease, LeaseKey};
use kinesis_core::{Checkpoint, ShardId, Timestamp};

use crate::mutant::{self, Mutant};

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
    if mutant::is_on(Mutant::ChildrenAtTip) {
        return lease(template, shard, Checkpoint::Latest, None);
    }
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

#[cfg(test)]
mod tests {
    use kinesis_core::{ApplicationName, StreamRef};

    use super::*;

    fn key(shard: &str) -> LeaseKey {
        let application = ApplicationName::new("app").unwrap();
        LeaseKey::new(application, StreamRef::new("stream").unwrap(), ShardId::new(shard).unwrap())
    }

    /// `name` or `name<parent` or `name<parent+parent`; a closed shard ends with `!`.
    fn shards(text: &str) -> Vec<ShardInfo> {
        text.split_whitespace()
            .map(|text| {
                let (text, closed) = text.strip_suffix('!').map_or((text, false), |text| (text, true));
                let (name, parents) = text.split_once('<').unwrap_or((text, ""));
                let parents = parents.split('+').filter(|name| !name.is_empty());
                let parents = parents.map(|name| ShardId::new(name).unwrap()).collect();
                ShardInfo::new(ShardId::new(name).unwrap()).parents(parents).closed(closed)
            })
            .collect()
    }

    fn rows(names: &str) -> BTreeMap<LeaseKey, Lease> {
        let row = |name| (key(name), Lease::new(key(name), Checkpoint::TrimHorizon));
        names.split_whitespace().map(row).collect()
    }

    /// The planned leases by generation, with the word of their checkpoint.
    fn planned(listed: &str, known: &str, start: &Start) -> Vec<Vec<String>> {
        let describe = |lease: Lease| format!("{} {}", lease.key.shard(), lease.checkpoint);
        plan(&key("x"), &shards(listed), &rows(known), start)
            .into_iter()
            .map(|generation| generation.into_iter().map(describe).collect())
            .collect()
    }

    const LATEST: Start = Start::Latest { anchor: Timestamp::from_millis(5_000) };
    const AT_TIMESTAMP: Start = Start::AtTimestamp { anchor: Timestamp::from_millis(5_000) };

    /// F-18: a first start from the trim horizon reads closed shards too, parents before children.
    #[test]
    fn a_first_start_at_the_trim_horizon_makes_every_listed_shard() {
        let listed = "c<a+b d<c a! b!";
        let expected =
            [vec!["a TRIM_HORIZON", "b TRIM_HORIZON"], vec!["c TRIM_HORIZON"], vec!["d TRIM_HORIZON"]];
        assert_eq!(planned(listed, "", &Start::TrimHorizon), expected);
    }

    #[test]
    fn a_first_start_at_the_tip_makes_open_shards_only() {
        assert_eq!(planned("a! b<a c", "", &LATEST), [vec!["c LATEST"], vec!["b LATEST"]]);
    }

    /// Closed shards may have records after the time that was asked for.
    #[test]
    fn a_first_start_at_a_time_makes_closed_shards_too() {
        let expected = [vec!["a AT_TIMESTAMP", "c AT_TIMESTAMP"], vec!["b AT_TIMESTAMP"]];
        assert_eq!(planned("a! b<a c", "", &AT_TIMESTAMP), expected);
    }

    /// S-045, S-056: later, what descends from a known shard is read from its first record, over several generations.
    #[test]
    fn descendants_of_known_shards_start_at_their_first_record() {
        for start in [Start::TrimHorizon, LATEST, AT_TIMESTAMP] {
            let expected = [vec!["b TRIM_HORIZON"], vec!["c TRIM_HORIZON", "d TRIM_HORIZON"]];
            assert_eq!(planned("a! b<a! c<b d<b", "a", &start), expected, "{start:?}");
        }
    }

    #[test]
    fn old_closed_shards_are_not_made_by_a_later_discovery_at_the_tip() {
        assert_eq!(planned("old! a<old new", "a", &LATEST), [vec!["new LATEST"]]);
    }

    #[test]
    fn the_anchor_of_the_first_start_is_kept() {
        let mut known = rows("a");
        known.get_mut(&key("a")).unwrap().anchor = Some(Timestamp::from_millis(1_000));
        let leases = plan(&key("x"), &shards("a b"), &known, &LATEST);
        assert_eq!(leases[0][0].anchor, Some(Timestamp::from_millis(1_000)));
        let leases = plan(&key("x"), &shards("a b"), &rows("a"), &LATEST);
        assert_eq!(leases[0][0].anchor, Some(Timestamp::from_millis(5_000)));
    }

    #[test]
    fn known_shards_and_shards_in_a_circle_do_no_harm() {
        assert_eq!(planned("a b<a", "a b", &Start::TrimHorizon), Vec::<Vec<String>>::new());
        assert_eq!(planned("a<b b<a", "", &Start::TrimHorizon), [["a TRIM_HORIZON", "b TRIM_HORIZON"]]);
    }

    /// F-21: only unfinished rows without a listed shard are gone, and never because of an empty listing.
    #[test]
    fn gone_shards_are_those_with_a_row_and_without_a_listing() {
        let mut known = rows("a b c");
        known.get_mut(&key("b")).unwrap().checkpoint = Checkpoint::ShardEnd;
        let found: Vec<_> = gone(&shards("c"), &known).collect();
        assert_eq!(found, [&key("a")]);
        assert_eq!(gone(&[], &known).count(), 0);
    }
}
