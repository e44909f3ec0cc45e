//! Parents and children, ends of shards, stops.

use std::collections::BTreeSet;
use std::sync::Arc;

use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{Lease, LeaseKey, StoreError, TenureToken};
use kinesis_core::{Checkpoint, HashKey, HashKeyRange};

use super::bench::{Bench, Store, fresh, millis, number, owned, worker};
use crate::machine::{Action, Event, Found, Look, Request};
use crate::mutant::{self, Mutant};
use crate::sim::key;
use crate::{LeaseConfig, LeaseError, LeaseWarning, LossReason, ops};

fn child(shard: u32, parents: &[u32]) -> Lease {
    let mut lease = fresh(shard);
    lease.parents = parents.iter().map(|parent| key(*parent).shard().clone()).collect();
    lease
}

/// S-057, F-19: a child is takeable when each of its parents is finished or has no row, however they came to an end.
#[test]
fn children_wait_for_all_their_parents() {
    let mut bench = Bench::new([owned(0, "other"), owned(1, "other"), child(2, &[0, 1]), child(3, &[8])]);
    assert_eq!(
        bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(),
        [3],
        "its parent has no row"
    );
    for parent in [0, 1] {
        bench.look();
        assert_eq!(bench.acquired(), []);
        let end = ops::end(bench.row(parent), TenureToken::from_random(77), Vec::new());
        bench.change(&end);
    }
    bench.look();
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [2]);
}

/// S-057: a parent whose row cannot be read is not known to be finished.
#[test]
fn children_of_an_unreadable_parent_wait() {
    let mut bench = Bench::new([]);
    bench.run(millis(900));
    let unreadable = vec![Arc::new(StoreError::corrupt(key(0), "garbage"))];
    let started = bench.now;
    bench.store = Store::Fails;
    bench.step(Event::Looked(Ok(Look { started, rows: vec![child(1, &[0]), fresh(2)], unreadable })));
    bench.rows.insert(key(1), child(1, &[0]));
    let takes: Vec<u32> = bench.machine.busy.iter().chain(bench.machine.doubts.keys()).map(number).collect();
    assert_eq!(takes, [2]);
}

fn info(shard: u32, parents: &[u32]) -> ShardInfo {
    let parents = parents.iter().map(|parent| key(*parent).shard().clone()).collect();
    ShardInfo::new(key(shard).shard().clone()).parents(parents)
}

/// S-056, S-058: the children have leases, from their first record, before the end of their parent is stored.
#[test]
fn children_are_made_before_the_end_is_stored() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::Hangs;
    let children = vec![info(1, &[0]), info(2, &[0])];
    bench.step(Event::Request(Request::End { key: key(0), token, children, reply: 4 }));
    assert_eq!(bench.kept.len(), 1);
    let (batch, writes) = bench.kept.pop().unwrap();
    assert_eq!(writes.iter().map(|write| number(&write.key)).collect::<Vec<_>>(), [1, 2]);
    assert!(!bench.row(0).is_finished());
    bench.store = Store::Works;
    bench.apply(batch, &writes);
    assert_eq!(bench.replies(), [(4, Ok(()))]);
    let row = bench.row(0);
    assert_eq!(
        (row.checkpoint.clone(), row.owner.clone(), row.children.len()),
        (Checkpoint::ShardEnd, None, 2)
    );
    assert_eq!(bench.row(1).checkpoint, Checkpoint::TrimHorizon);
    bench.look();
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<BTreeSet<_>>(), [1, 2].into());
}

/// S-057, F-19: before the child of a merge gets a lease, its other parent must have one if it still exists.
#[test]
fn the_other_parent_of_a_merge_is_discovered_first() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    let end = |reply| Request::End { key: key(0), token, children: vec![info(9, &[0, 1])], reply };
    bench.step(Event::Request(end(4)));
    assert!(bench.told.iter().any(|action| matches!(action, Action::Discover)));
    assert!(!bench.rows.contains_key(&key(9)));
    let stream = key(0).stream().clone();
    let error = Arc::new(DirectoryError::unavailable(stream, "ListShards", "lost"));
    bench.discovered(Err(error));
    assert_eq!(bench.replies(), [(4, Err("the stream cannot be looked at".into()))]);
    bench.step(Event::Request(end(5)));
    bench.rows.insert(key(1), owned(1, "other"));
    bench.discovered(Ok(BTreeSet::new()));
    assert_eq!(bench.replies(), [(5, Ok(()))]);
    assert!(bench.row(0).is_finished() && !bench.row(9).is_finished());
    bench.look();
    assert_eq!(bench.acquired(), [], "the other parent is not finished");
}

/// F-19: the row of a child that only our own write showed proves nothing of its parents: the discovery that made it may
/// have made theirs, and no look has shown them.
#[test]
fn a_child_waits_until_a_look_could_show_its_parents() {
    let sparing = LeaseConfig::default().full_look_interval(millis(20_000));
    let mut bench = Bench::with(sparing, [fresh(0)]);
    let token = bench.only_token();
    bench.looks_fail = true;
    let end = Request::End { key: key(0), token, children: vec![info(9, &[0, 1])], reply: 4 };
    bench.step(Event::Request(end));
    bench.rows.insert(key(1), owned(1, "other"));
    bench.discovered(Ok(BTreeSet::new()));
    assert_eq!(bench.replies(), [(4, Ok(()))]);
    bench.run(millis(5_000));
    assert_eq!(bench.acquired(), [], "the row of the other parent was not seen");
    let end = ops::end(bench.row(1), TenureToken::from_random(77), Vec::new());
    bench.change(&end);
    bench.looks_fail = false;
    bench.run(millis(25_000));
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [9]);
}

/// F-21: a shard that is missing in two listings is closed so that its children can be read; once is not enough.
#[test]
fn a_shard_that_is_gone_is_closed() {
    let mut bench = Bench::new([fresh(0), owned(1, "other"), child(2, &[0])]);
    bench.only_token();
    let missing = BTreeSet::from([key(0), key(1)]);
    bench.discovered(Ok(missing.clone()));
    bench.discovered(Ok(BTreeSet::new()));
    bench.discovered(Ok(missing.clone()));
    assert!(!bench.row(0).is_finished());
    bench.discovered(Ok(missing));
    assert!(bench.row(0).is_finished());
    assert_eq!(bench.losses(), [(0, LossReason::ShardGone)]);
    let gone =
        bench.told.iter().any(|action| matches!(action, Action::Warn(crate::LeaseWarning::ShardGone { .. })));
    assert!(gone, "the loss of data is reported");
    assert!(!bench.row(1).is_finished(), "its owner finds out by itself");
    bench.look();
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [2]);
}

fn failed_listing() -> Result<BTreeSet<LeaseKey>, Arc<DirectoryError>> {
    Err(Arc::new(DirectoryError::unavailable(key(0).stream().clone(), "ListShards", "lost")))
}

/// F-21: a listing that failed may have shown what the ones before and after it missed.
#[test]
fn listings_with_a_failed_one_between_them_prove_nothing() {
    let mut bench = Bench::new([fresh(0)]);
    let missing = BTreeSet::from([key(0)]);
    bench.discovered(Ok(missing.clone()));
    bench.discovered(failed_listing());
    bench.discovered(Ok(missing.clone()));
    assert!(!bench.row(0).is_finished());
    bench.discovered(Ok(missing));
    assert!(bench.row(0).is_finished());
}

/// A part of the key space that no lease has is told of once two listings in a row show the same one.
#[test]
fn a_hole_that_two_listings_show_is_told() {
    let mut bench = Bench::new([fresh(0)]);
    let range = |start: u128, end: u128| HashKeyRange::new(HashKey::new(start), HashKey::new(end)).unwrap();
    let mut holes_after = |hole: Option<HashKeyRange>| {
        let result = Ok(Found { hole, ..Found::default() });
        bench.step(Event::Discovered { began: bench.now, result });
        let hole = |action: &Action| match action {
            Action::Warn(LeaseWarning::Hole(range)) => Some(*range),
            _ => None,
        };
        let told: Vec<_> = bench.told.iter().filter_map(hole).collect();
        bench.told.clear();
        told
    };
    let (low, high) = (range(0, 9), range(10, 19));
    assert_eq!(holes_after(Some(low)), [], "its lease may be about to be made");
    assert_eq!(holes_after(Some(high)), [], "another one");
    assert_eq!(holes_after(Some(high)), [high]);
    assert_eq!(holes_after(None), [], "it was repaired");
    assert_eq!(holes_after(Some(high)), [], "it is a new one");
}

/// F-21: the shard may have been made while the listing was under way; the row tells nothing else.
#[test]
fn a_listing_proves_nothing_of_a_row_that_is_newer() {
    let mut bench = Bench::new([]);
    let began = bench.now;
    bench.run(millis(100));
    bench.rows.insert(key(0), fresh(0));
    bench.look();
    bench.only_token();
    let missing = BTreeSet::from([key(0)]);
    let found = |gone: &BTreeSet<LeaseKey>| Found { gone: gone.clone(), ..Found::default() };
    bench.step(Event::Discovered { began, result: Ok(found(&missing)) });
    bench.discovered(Ok(missing.clone()));
    assert!(!bench.row(0).is_finished(), "that is the first");
    bench.discovered(Ok(missing));
    assert!(bench.row(0).is_finished());
}

/// F-21: two discoveries can be under way at once; what counts is when they began.
#[test]
fn an_overtaken_listing_is_not_the_one_after_the_last() {
    let mut bench = Bench::new([fresh(0)]);
    let missing = BTreeSet::from([key(0)]);
    let began = bench.now;
    bench.run(millis(100));
    bench.discovered(Ok(missing.clone()));
    let result = Ok(Found { gone: missing, ..Found::default() });
    bench.step(Event::Discovered { began, result });
    assert!(!bench.row(0).is_finished());
}

/// F-21: the row of a finished shard stays as long as a listing may have shown the shard.
#[test]
fn a_finished_row_outlives_a_listing_that_failed() {
    let mut row = fresh(0);
    row.checkpoint = Checkpoint::ShardEnd;
    let mut bench = Bench::new([row]);
    let interval = millis(60_000);
    let listed = |bench: &mut Bench| {
        let result = Ok(Found { spent: BTreeSet::from([key(0)]), ..Found::default() });
        let began = bench.now;
        bench.step(Event::Discovered { began, result });
    };
    listed(&mut bench);
    bench.run(interval / 2);
    bench.discovered(failed_listing());
    bench.run(interval / 2);
    listed(&mut bench);
    assert!(bench.rows.contains_key(&key(0)), "missing for no longer than now");
    bench.run(interval);
    listed(&mut bench);
    assert!(!bench.rows.contains_key(&key(0)));
}

/// S-042: a stop releases what is held, and takes back what was asked for.
#[test]
fn a_stop_releases_everything() {
    let mut bench = Bench::new([owned(0, "rich"), owned(1, "rich"), owned(2, "rich"), fresh(3)]);
    bench.look();
    assert!(bench.rows.values().any(|row| row.checkpoint_owner.is_some()), "one is asked for");
    bench.step(Event::Request(Request::Stop));
    assert!(bench.machine.is_stopped());
    assert_eq!(bench.machine.stop_report(), (vec![key(3)], Vec::new()));
    assert_eq!(bench.row(3).owner, None);
    assert!(bench.rows.values().all(|row| row.checkpoint_owner.is_none()));
    let rich = bench.rows.values().filter(|row| row.owner == Some(worker("rich"))).count();
    assert_eq!(rich, 3);
    bench.run(millis(20_000));
    assert_eq!(bench.row(3).owner, None, "nothing is taken after a stop");
}

#[test]
fn what_was_handed_over_to_a_stopping_worker_is_given_to_anybody() {
    let mut bench = Bench::new([owned(0, "rich"), owned(1, "rich")]);
    let asked = bench.rows.values().find(|row| row.checkpoint_owner.is_some()).unwrap().key.clone();
    let released = ops::release(&bench.rows[&asked], TenureToken::from_random(77), None, None);
    bench.change(&released);
    bench.step(Event::Request(Request::Stop));
    assert_eq!(bench.rows[&asked].owner, None);
}

/// S-042: a request that was answered while the worker stops is given back, also when the first try of that fails.
#[test]
fn a_stop_waits_for_what_it_gives_back() {
    let mut bench = Bench::new([owned(0, "rich"), owned(1, "rich")]);
    let asked = bench.rows.values().find(|row| row.checkpoint_owner.is_some()).unwrap().key.clone();
    let released = ops::release(&bench.rows[&asked], TenureToken::from_random(77), None, None);
    bench.change(&released);
    bench.store = Store::Fails;
    bench.step(Event::Request(Request::Stop));
    assert!(!bench.machine.is_stopped(), "it may be ours");
    assert_eq!(bench.machine.stop_report(), (Vec::new(), vec![asked.clone()]));
    bench.store = Store::Works;
    bench.run(millis(2_000));
    assert_eq!(bench.rows[&asked].owner, None);
    assert!(bench.machine.is_stopped());
    assert_eq!(bench.machine.stop_report(), (Vec::new(), Vec::new()));
}

/// S-042: a request whose reply was lost just before the stop may be in the row: the stop looks, and takes it back.
#[test]
fn a_stop_takes_back_a_request_whose_reply_was_lost() {
    let mut bench = Bench::new([]);
    bench.rows.extend([owned(0, "rich"), owned(1, "rich")].map(|row| (row.key.clone(), row)));
    bench.store = Store::Hangs;
    bench.look();
    let (batch, request) = bench.kept.pop().expect("a request is under way");
    bench.store = Store::LosesReplies;
    bench.apply(batch, &request);
    assert!(bench.rows.values().any(|row| row.checkpoint_owner.is_some()), "one is asked for");
    bench.store = Store::Works;
    let before = bench.now;
    bench.step(Event::Request(Request::Stop));
    assert!(bench.machine.is_stopped());
    assert_eq!(bench.now, before, "it does not wait for the next look");
    assert!(bench.rows.values().all(|row| row.checkpoint_owner.is_none()));
}

/// S-042, F-22: a taking whose reply was lost is found and given back by a stop.
#[test]
fn a_stop_gives_back_what_it_took_without_knowing() {
    let mut bench = Bench::new([]);
    bench.rows.insert(key(0), fresh(0));
    bench.store = Store::Hangs;
    bench.look();
    let (batch, take) = bench.kept.pop().expect("a take is under way");
    bench.step(Event::Request(Request::Stop));
    assert!(!bench.machine.is_stopped());
    bench.store = Store::LosesReplies;
    bench.apply(batch, &take);
    assert_eq!(bench.row(0).owner, Some(worker("me")));
    assert!(!bench.machine.is_stopped());
    bench.store = Store::Works;
    bench.run(millis(2_000));
    assert_eq!(bench.row(0).owner, None);
    assert!(bench.machine.is_stopped());
    assert_eq!(bench.machine.stop_report(), (vec![key(0)], Vec::new()));
}

/// A store that refuses for good is told to the caller at once, and the lease is kept while it lasts.
#[test]
fn a_failure_that_does_not_pass_is_told_at_once() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::Hangs;
    bench.checkpoint(token, 5, 1);
    let (batch, writes) = bench.kept.pop().unwrap();
    let error = Arc::new(StoreError::misconfigured("no permission", None));
    let results = writes.iter().map(|_| Err(Arc::clone(&error))).collect();
    bench.step(Event::Applied { batch, results });
    assert_eq!(bench.replies(), [(1, Err(LeaseError::Store(error).to_string()))]);
    assert_eq!(bench.losses(), []);
}

/// The tests of what the simulation found fail without what mends it.
#[test]
fn tests_of_mended_faults_can_fail() {
    let tests: [(Mutant, fn()); 6] = [
        (Mutant::GoneAcrossFailure, listings_with_a_failed_one_between_them_prove_nothing),
        (Mutant::GoneAcrossFailure, a_finished_row_outlives_a_listing_that_failed),
        (Mutant::GoneBeforeMade, a_listing_proves_nothing_of_a_row_that_is_newer),
        (Mutant::StopUnsettled, a_stop_waits_for_what_it_gives_back),
        (Mutant::StopUnsettled, a_stop_takes_back_a_request_whose_reply_was_lost),
        (Mutant::StopUnsettled, a_stop_gives_back_what_it_took_without_knowing),
    ];
    for (number, (fault, test)) in tests.into_iter().enumerate() {
        assert!(mutant::fails(fault, test), "test {number} passes with {}", fault.name());
    }
}
