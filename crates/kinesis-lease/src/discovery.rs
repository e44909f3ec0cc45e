//! Which leases a listing of shards calls for: pure, so that it can be tested case by case.

use std::collections::{BTreeMap, BTreeSet};

use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{Lease, LeaseKey};
use kinesis_core::{Checkpoint, HashKey, HashKeyRange, ShardId, Timestamp};

use crate::mutant::{self, Mutant};
use crate::worker_row;

/// Where shards start that descend from nothing known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    TrimHorizon,
    Latest { anchor: Timestamp },
    AtTimestamp { anchor: Timestamp },
}

/// What the table has of leases: workers have rows there, too.
pub(crate) fn leases(rows: &[Lease]) -> impl Iterator<Item = &Lease> {
    rows.iter().filter(|row| !worker_row::is_one(&row.key))
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
    // Shards whose children are read from their first record.
    let mut known: BTreeSet<ShardId> = rows.keys().map(|key| key.shard().clone()).collect();
    let past = past(shards, rows);
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
            let is_past = first_start || past.contains(&shard.id);
            let lease = if descends {
                known.insert(shard.id.clone());
                Some(child(template, shard))
            } else {
                at_start(template, shard, &start, is_past)
            };
            generation.extend(lease);
        }
        if !generation.is_empty() {
            generations.push(generation);
        }
    }
    generations
}

/// The listed shards without those that have no row although one that follows them has: their rows were removed when they
/// were finished and what follows had begun. The KCL does so while the service still lists them, and making such a row
/// anew would read the whole shard again.
pub(crate) fn without_followed(shards: &[ShardInfo], rows: &BTreeMap<LeaseKey, Lease>) -> Vec<ShardInfo> {
    let known: BTreeSet<&ShardId> = rows.keys().map(LeaseKey::shard).collect();
    let parents: BTreeMap<&ShardId, &[ShardId]> =
        shards.iter().map(|shard| (&shard.id, shard.parents.as_slice())).collect();
    let mut followed: BTreeSet<&ShardId> = BTreeSet::new();
    let mut left: Vec<&ShardId> = known.iter().copied().collect();
    left.extend(rows.values().flat_map(|row| &row.parents));
    followed.extend(rows.values().flat_map(|row| &row.parents));
    while let Some(shard) = left.pop() {
        for parent in parents.get(shard).copied().unwrap_or_default() {
            if followed.insert(parent) {
                left.push(parent);
            }
        }
    }
    let is_wanted = |shard: &&ShardInfo| known.contains(&shard.id) || !followed.contains(&shard.id);
    shards.iter().filter(is_wanted).cloned().collect()
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

/// Finished rows that nothing needs any more, as long as their shards are not listed: whatever followed them has a
/// row and has begun, and nothing of what came before them is left, so that no listing and no crash can bring them
/// back.
pub(crate) fn spent<'a>(
    shards: &[ShardInfo],
    rows: &'a BTreeMap<LeaseKey, Lease>,
) -> impl Iterator<Item = &'a LeaseKey> {
    let early = mutant::is_on(Mutant::CollectedEarly);
    let listed: BTreeSet<ShardId> = shards.iter().map(|shard| shard.id.clone()).collect();
    // Parents of what has not begun, and of what is still listed by a shard without a row.
    let mut needed = BTreeSet::new();
    for row in rows.values().filter(|row| !matches!(row.checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd))
    {
        needed.extend(row.parents.iter().cloned());
    }
    let has_row = |key: &LeaseKey, shard: &ShardId| rows.contains_key(&key.sibling(shard.clone()));
    rows.values()
        .filter(move |row| {
            let is_past =
                !listed.is_empty() && !listed.contains(row.key.shard()) && !needed.contains(row.key.shard());
            let followed =
                row.children.iter().all(|child| has_row(&row.key, child) || !listed.contains(child));
            let first = !row.parents.iter().any(|parent| has_row(&row.key, parent));
            row.is_finished() && ((is_past && followed && first) || early)
        })
        .map(|row| &row.key)
}

/// The first part of the key space whose records nobody will read: no unfinished lease has it. `None` also when some
/// lease does not say which part it has.
pub(crate) fn hole<'a>(rows: impl IntoIterator<Item = &'a Lease>) -> Option<HashKeyRange> {
    let unfinished = rows.into_iter().filter(|row| !row.is_finished());
    let mut ranges: Vec<HashKeyRange> = unfinished.map(|row| row.hash_range).collect::<Option<_>>()?;
    if ranges.is_empty() {
        return None;
    }
    ranges.sort_unstable();
    let mut next = HashKey::MIN;
    for range in ranges {
        if range.start() > next {
            return HashKeyRange::new(next, HashKey::new(range.start().get() - 1));
        }
        if range.end() == HashKey::MAX {
            return None;
        }
        next = next.max(HashKey::new(range.end().get() + 1));
    }
    HashKeyRange::new(next, HashKey::MAX)
}

/// The anchor is fixed by whoever made the first leases.
fn original(start: &Start, rows: &BTreeMap<LeaseKey, Lease>) -> Start {
    let first = rows.values().filter_map(|row| row.anchor).min();
    match (start, first) {
        (Start::Latest { .. }, Some(anchor)) => Start::Latest { anchor },
        (start, _) => start.clone(),
    }
}

/// What those shards descend from that have a row, by the rows and by the listing: either may miss some.
///
/// What was closed before the first start is among them, as all shards that were open then have rows. Only a first
/// start that came half-way leaves others: shards that were open, have no row, and may be closed by now.
fn past(shards: &[ShardInfo], rows: &BTreeMap<LeaseKey, Lease>) -> BTreeSet<ShardId> {
    let mut parents: BTreeMap<&ShardId, Vec<&ShardId>> = BTreeMap::new();
    for shard in shards {
        parents.entry(&shard.id).or_default().extend(&shard.parents);
    }
    for row in rows.values() {
        parents.entry(row.key.shard()).or_default().extend(&row.parents);
    }
    let mut found = BTreeSet::new();
    let mut left: Vec<&ShardId> = rows.keys().map(LeaseKey::shard).collect();
    while let Some(shard) = left.pop() {
        for parent in parents.get(shard).into_iter().flatten() {
            if found.insert((*parent).clone()) {
                left.push(parent);
            }
        }
    }
    found
}

fn at_start(template: &LeaseKey, shard: &ShardInfo, start: &Start, is_past: bool) -> Option<Lease> {
    match start {
        Start::TrimHorizon => Some(lease(template, shard, Checkpoint::TrimHorizon, None)),
        // Others may have been closed since the first start, and have records behind the anchor.
        Start::Latest { .. } if shard.closed && (is_past || mutant::is_on(Mutant::ClosedUnseen)) => None,
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

    /// The KCL removes finished rows while their shards are still listed: those are not made anew, also not over several
    /// generations, but what nothing follows yet is.
    #[test]
    fn shards_whose_followers_have_rows_are_not_made_again() {
        let left = |listed: &str, known: &str| -> Vec<String> {
            let left = without_followed(&shards(listed), &rows(known));
            left.iter().map(|shard| shard.id.to_string()).collect()
        };
        assert_eq!(left("a! b<a c<a", "b c"), ["b", "c"]);
        assert_eq!(left("a! b<a! c<b", "c"), ["c"]);
        assert_eq!(left("a! b<a! c<b", "a c"), ["a", "c"], "rows that are there stay");
        assert_eq!(left("a! b! c<a+b", "a"), ["a", "b", "c"], "the other parent of a child without a row");
        assert_eq!(left("a! b<a d", "a"), ["a", "b", "d"]);
        assert_eq!(left("a! b<a", ""), ["a", "b"]);
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

    /// S-056, F-18: after a start at the tip that came half-way, what was open then and is closed now has records behind
    /// the anchor; so have its children.
    #[test]
    fn shards_that_were_closed_unseen_are_read_from_the_anchor() {
        let expected = [vec!["lost LATEST"], vec!["b LATEST", "c LATEST"]];
        assert_eq!(planned("lost! b<lost c<lost a", "a", &LATEST), expected);
        let expected = [vec!["lost LATEST"], vec!["b TRIM_HORIZON"]];
        assert_eq!(planned("a! lost! b<a+lost", "a", &LATEST), expected, "merged with a known one");
    }

    #[test]
    fn the_test_of_unseen_shards_can_fail() {
        assert!(mutant::fails(Mutant::ClosedUnseen, shards_that_were_closed_unseen_are_read_from_the_anchor));
    }

    /// What known shards descend from was closed before the start, even if the listing misses those between.
    #[test]
    fn shards_before_known_ones_are_past() {
        let nothing = Vec::<Vec<String>>::new();
        assert_eq!(planned("older! old<older! a<old", "a", &LATEST), nothing);
        let mut known = rows("a");
        known.get_mut(&key("a")).unwrap().parents = vec![ShardId::new("old").unwrap()];
        let leases = plan(&key("x"), &shards("older! old<older!"), &known, &LATEST);
        assert_eq!(leases, Vec::<Vec<Lease>>::new());
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

    /// Parts of the key space that no unfinished lease has are found, whatever overlaps.
    #[test]
    fn a_hole_in_the_key_space_is_found() {
        let row = |name: &str, start: u128, end: u128| {
            let mut row = Lease::new(key(name), Checkpoint::TrimHorizon);
            row.hash_range = HashKeyRange::new(HashKey::new(start), HashKey::new(end));
            row
        };
        let range = |start, end| HashKeyRange::new(HashKey::new(start), HashKey::new(end));
        let (low, middle, high) = (row("a", 0, 9), row("b", 10, 19), row("c", 20, u128::MAX));
        assert_eq!(hole([&low, &middle, &high]), None);
        assert_eq!(hole([&high, &low]), range(10, 19));
        assert_eq!(hole([&middle, &high]), range(0, 9));
        assert_eq!(hole([&middle, &low]), range(20, u128::MAX));
        assert_eq!(hole([&row("d", 0, u128::MAX), &middle]), None);
        let mut finished = middle.clone();
        finished.checkpoint = Checkpoint::ShardEnd;
        assert_eq!(hole([&low, &finished, &high]), range(10, 19));
        assert_eq!(hole([&low, &fresh("e")]), None, "not known");
        assert_eq!(hole([]), None);
    }

    fn fresh(name: &str) -> Lease {
        Lease::new(key(name), Checkpoint::TrimHorizon)
    }

    /// F-21: a finished row goes when its shard is not listed, everything after it has begun and nothing is left
    /// before it.
    #[test]
    fn finished_rows_go_when_nothing_needs_them() {
        let finished = |name: &str| {
            let mut row = fresh(name);
            row.checkpoint = Checkpoint::ShardEnd;
            row
        };
        let child = |name: &str, parent: &str, checkpoint| {
            let mut row = Lease::new(key(name), checkpoint);
            row.parents = vec![ShardId::new(parent).unwrap()];
            row
        };
        let begun = Checkpoint::At(kinesis_core::Position::new(5_u128.into(), 0));
        let found = |listed: &str, rows: Vec<Lease>| -> Vec<String> {
            let rows = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            spent(&shards(listed), &rows).map(|key| key.shard().to_string()).collect()
        };
        assert_eq!(found("b<a", vec![finished("a"), child("b", "a", begun.clone())]), ["a"]);
        assert_eq!(
            found("a! b<a", vec![finished("a"), child("b", "a", begun.clone())]),
            [""; 0],
            "still listed"
        );
        assert_eq!(
            found("", vec![finished("a"), child("b", "a", begun.clone())]),
            [""; 0],
            "an empty listing"
        );
        let fresh_child = child("b", "a", Checkpoint::TrimHorizon);
        assert_eq!(found("b<a", vec![finished("a"), fresh_child]), [""; 0], "the child has not begun");
        let middle = child("b", "a", Checkpoint::ShardEnd);
        let last = child("c", "b", begun);
        assert_eq!(found("c<b", vec![finished("a"), middle, last]), ["a"], "one generation at a time");
        assert_eq!(found("c", vec![fresh("a")]), [""; 0], "not finished");
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
