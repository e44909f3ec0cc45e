//! One heartbeat for a whole worker.

use std::sync::Arc;

use kinesis_core::lease::{Lease, LeaseKey, LeaseWrite, Outcome, StoreError, TenureToken};

use super::bench::{Bench, Store, fresh, millis, owned, worker};
use crate::machine::{Event, Request};
use crate::mutant::{self, Mutant};
use crate::sim::key;
use crate::{LeaseConfig, LossReason, ops, worker_row};

fn config() -> LeaseConfig {
    LeaseConfig::default().worker_heartbeat(true)
}

fn row_of(name: &str) -> LeaseKey {
    worker_row::key(&key(0), &worker(name))
}

/// The row of another worker.
fn living(name: &str) -> Lease {
    worker_row::new(row_of(name), &worker(name), TenureToken::from_random(7), 5)
}

fn moves(bench: &mut Bench, name: &str) {
    let write = ops::beat(&bench.rows[&row_of(name)], TenureToken::from_random(7));
    assert!(matches!(bench.change(&write), Outcome::Applied(_)));
}

fn counters(bench: &Bench) -> Vec<u64> {
    (0..3).map(|number| bench.row(number).counter).collect()
}

/// S-026: held leases cost one write each interval, all together, and are not lost.
#[test]
fn idle_leases_of_a_worker_cost_one_write_each_interval() {
    let mut bench = Bench::with(config(), (0..3).map(fresh));
    bench.run(millis(3_100));
    let (before, writes) = (counters(&bench), bench.writes);
    bench.run(millis(60_000));
    assert_eq!(counters(&bench), before, "no lease is written");
    assert_eq!(bench.writes - writes, 20);
    assert_eq!(bench.rows[&row_of("me")].counter, 21);
    assert_eq!(bench.losses(), []);
}

/// S-027, S-040: a worker's row that moves keeps its leases; when both stand still for the expiry, they are free.
#[test]
fn leases_are_taken_when_they_and_their_worker_stood_still() {
    let config = config().look_interval(millis(10));
    let mut bench = Bench::with(config, [owned(0, "other"), living("other")]);
    for _ in 0..5 {
        bench.run(millis(8_000));
        moves(&mut bench, "other");
    }
    let began = bench.now;
    bench.run(millis(9_990));
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    bench.run(millis(40));
    assert_eq!(bench.row(0).owner, Some(worker("me")), "{:?} after it began", bench.now - began);
    assert_eq!(bench.acquired().len(), 1);
}

/// The same for an observer that has no such row itself.
#[test]
fn a_worker_without_a_row_knows_those_of_others() {
    let mut bench = Bench::new([owned(0, "other"), living("other")]);
    for _ in 0..5 {
        bench.run(millis(8_000));
        moves(&mut bench, "other");
    }
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    bench.run(millis(11_500));
    assert_eq!(bench.row(0).owner, Some(worker("me")));
}

/// Where all rows are read seldom, a row that was not there at the last look at all of them may have been made since.
#[test]
fn a_worker_that_makes_its_row_between_two_looks_keeps_its_leases() {
    let config = config().full_look_interval(millis(20_000));
    let mut bench = Bench::with(config, [owned(0, "other")]);
    bench.run(millis(1_000));
    bench.rows.insert(row_of("other"), living("other"));
    for _ in 0..14 {
        bench.run(millis(3_000));
        moves(&mut bench, "other");
    }
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    assert_eq!(bench.acquired(), []);
}

/// A heartbeat whose answer comes when the belief in a lease is over proves nothing: others may have the lease.
#[test]
fn a_heartbeat_that_is_answered_too_late_does_not_count() {
    for (late, losses) in [(8_900, vec![]), (9_100, vec![(0, LossReason::Expired)])] {
        let mut bench = Bench::with(config(), [fresh(0)]);
        bench.run(millis(6_100));
        // The last heartbeat began at 6 s, and this process stands still while the next one is on its way.
        bench.store = Store::Hangs;
        bench.run(millis(3_000));
        let (batch, writes) = bench.kept.remove(0);
        assert_eq!(writes[0].key, row_of("me"));
        bench.store = Store::Works;
        bench.now = bench.start + millis(6_000 + late);
        bench.apply(batch, &writes);
        assert_eq!(bench.losses(), losses, "{late}");
    }
}

/// When no heartbeat comes through, leases are renewed one by one in time.
#[test]
fn leases_are_renewed_one_by_one_while_heartbeats_hang() {
    let mut bench = Bench::with(config(), (0..3).map(fresh));
    bench.run(millis(6_100));
    bench.store = Store::Hangs;
    bench.run(millis(5_000));
    assert_eq!(bench.kept[0].1[0].key, row_of("me"));
    let renewed: Vec<&LeaseKey> = bench.kept[1].1.iter().map(|write| &write.key).collect();
    assert_eq!(renewed, [&key(0), &key(1), &key(2)]);
    assert_eq!(bench.now - bench.start, millis(11_100));
}

/// A heartbeat that was applied although it looked failed is recognised, and counts from its first try.
#[test]
fn a_lost_reply_to_a_heartbeat_is_made_good() {
    let mut bench = Bench::with(config(), [fresh(0)]);
    bench.run(millis(6_100));
    bench.store = Store::LosesReplies;
    bench.run(millis(3_000));
    bench.store = Store::Works;
    bench.run(millis(30_000));
    assert_eq!(bench.losses(), []);
    assert_eq!(bench.row(0).counter, 2, "renewed once, before there was a row of the worker");
}

/// A row that somebody removed is made anew, with a counter that nobody has seen.
#[test]
fn a_removed_row_is_made_anew() {
    let mut bench = Bench::with(config(), [fresh(0)]);
    bench.run(millis(9_100));
    let before = bench.rows.remove(&row_of("me")).unwrap();
    bench.run(millis(3_000));
    let after = &bench.rows[&row_of("me")];
    assert!(after.counter > before.counter && after.token == before.token);
    bench.run(millis(30_000));
    assert_eq!(bench.losses(), []);
}

/// Under a second worker of our name we do without: each has leases of its own, and it is told.
#[test]
fn a_second_worker_of_our_name_is_told() {
    let mut bench = Bench::with(config(), [fresh(0), living("me")]);
    for _ in 0..10 {
        bench.run(millis(3_000));
        moves(&mut bench, "me");
    }
    assert_eq!(bench.row(0).counter, 11, "renewed by itself");
    let ours = bench.row(0).token.unwrap().to_string();
    let expected = format!(
        "another worker uses the name me, too: it holds {} with token 00000000; this one holds a lease with token {}",
        row_of("me"),
        &ours[..8]
    );
    assert_eq!(bench.warnings(), [expected]);
    // Once the other is gone, its row is ours.
    bench.run(millis(20_000));
    let row = &bench.rows[&row_of("me")];
    assert_ne!(row.token, Some(TenureToken::from_random(7)));
    assert_eq!((row.epoch, bench.losses().len()), (1, 0));
}

/// F-23: a request is seen by a look; the hand-over ends before whoever asked takes the lease by force.
#[test]
fn a_request_is_seen_by_a_look() {
    let mut bench = Bench::with(config(), [fresh(0)]);
    bench.run(millis(10_000));
    let request = ops::request(bench.row(0), &worker("other"));
    bench.change(&request);
    bench.look();
    let (asked, writes) = (bench.hand_overs(), bench.writes);
    assert!(matches!(asked[..], [(0, deadline)] if deadline <= millis(10_000 + 1_100 + 30_000)), "{asked:?}");
    bench.run(millis(31_000));
    assert_eq!(bench.losses(), [(0, LossReason::HandOverOverrun)]);
    assert!(bench.writes - writes <= 12, "the heartbeats and the release: {}", bench.writes - writes);
    assert_eq!((&bench.row(0).owner, bench.row(0).token), (&Some(worker("other")), None));
}

/// Where all rows are read seldom, the worker's row says which lease is asked for, and only that is read.
#[test]
fn a_request_is_named_in_the_row_of_the_holder() {
    let sparing = config().full_look_interval(millis(20_000));
    let mut bench = Bench::with(sparing.clone(), (0..3).map(fresh));
    bench.run(millis(25_000));
    let began = bench.now - bench.start;
    let request = ops::request(bench.row(1), &worker("other"));
    bench.change(&request);
    let ask = ops::ask(&row_of("me"), key(1).shard());
    bench.change(&ask);
    bench.run(millis(4_100));
    let asked = bench.hand_overs();
    assert!(matches!(asked[..], [(1, deadline)] if deadline <= began + millis(4_100 + 30_000)), "{asked:?}");
    bench.run(millis(3_000));
    assert_eq!(worker_row::asked_for(&bench.rows[&row_of("me")]), None, "taken back");

    // The other side of it.
    let rows = (0..3).map(|number| owned(number, "other")).chain([living("other")]);
    let mut bench = Bench::with(sparing, rows);
    bench.run(millis(1_000));
    let requested: Vec<_> = (0..3).filter(|number| bench.row(*number).checkpoint_owner.is_some()).collect();
    assert_eq!(requested.len(), 1);
    let asked = worker_row::asked_for(&bench.rows[&row_of("other")]);
    assert_eq!(asked.as_ref(), Some(key(requested[0]).shard()));
}

/// A holder that sees no look and writes no lease does not believe for ever: others may have asked.
#[test]
fn belief_ends_when_a_request_could_not_have_been_seen() {
    let mut bench = Bench::with(config().hand_over_timeout(millis(5_000)), [fresh(0)]);
    bench.run(millis(6_100));
    bench.looks_fail = true;
    // It is renewed by itself, as that shows whether it is asked for.
    bench.run(millis(60_000));
    assert_eq!(bench.losses(), []);
    assert!((6..=8).contains(&bench.row(0).counter), "{}", bench.row(0).counter);
}

/// A lease that was lost and still names us is given up where it may not be taken again.
#[test]
fn a_lost_lease_is_given_up_by_who_takes_nothing_more() {
    for stops in [false, true] {
        let mut bench = Bench::with(config(), [fresh(0), fresh(1)]);
        bench.run(millis(10_000));
        let mut lost = bench.row(1).clone();
        lost.token = Some(TenureToken::from_random(99));
        lost.epoch += 1;
        if stops {
            bench.step(Event::Request(Request::StopTaking));
        }
        bench.rows.insert(lost.key.clone(), lost);
        bench.run(millis(14_000));
        assert_eq!(bench.losses(), [(1, LossReason::Taken)]);
        let row = bench.row(1);
        if stops {
            assert_eq!((&row.owner, row.token), (&None, None), "anybody may take it");
        } else {
            assert_eq!(bench.acquired().len(), 3, "taken again");
        }
    }
}

/// A worker that stops removes its row after its leases are released; the rows of dead ones are removed by others.
#[test]
fn rows_of_workers_go() {
    let mut bench = Bench::with(config(), [fresh(0), living("dead")]);
    bench.run(millis(62_000));
    bench.discovered(Ok(std::collections::BTreeSet::new()));
    assert!(!bench.rows.contains_key(&row_of("dead")));
    assert!(bench.rows.contains_key(&row_of("me")), "that moves");
    bench.step(Event::Request(Request::Stop));
    assert!(bench.machine.is_stopped());
    assert_eq!(bench.rows.keys().collect::<Vec<_>>(), [&key(0)]);
    assert_eq!(bench.row(0).owner, None);
}

/// A row that is about to move is not removed by a listing that comes soon after it was seen.
#[test]
fn rows_of_live_workers_stay() {
    let mut bench = Bench::with(config(), [fresh(0), living("other")]);
    bench.run(millis(30_000));
    bench.discovered(Ok(std::collections::BTreeSet::new()));
    assert!(bench.rows.contains_key(&row_of("other")));
}

/// A store that refuses the row does not stop the leases.
#[test]
fn a_store_that_refuses_the_row_costs_no_lease() {
    let mut bench = Bench::with(config(), [fresh(0)]);
    bench.run(millis(2_900));
    bench.store = Store::Hangs;
    for _ in 0..60 {
        bench.run(millis(500));
        for (batch, writes) in std::mem::take(&mut bench.kept) {
            let refused = || Arc::new(StoreError::misconfigured("no such rows", None));
            let answer = |bench: &mut Bench, write: &LeaseWrite| {
                if worker_row::is_one(&write.key) { Err(refused()) } else { Ok(bench.change(write)) }
            };
            let results = writes.iter().map(|write| answer(&mut bench, write)).collect();
            bench.step(Event::Applied { batch, results });
        }
    }
    bench.store = Store::Works;
    assert_eq!(bench.losses(), []);
    assert!(bench.row(0).counter > 6);
}

/// The row of another worker is not ours, also if it has our token: two workers may be given one seed.
#[test]
fn a_row_is_ours_by_its_name_and_token() {
    let mut other = Bench::with(config(), [fresh(0)]);
    other.run(millis(3_100));
    let token = other.rows[&row_of("me")].token.unwrap();
    // The same seed, and so the same token.
    let mut row = living("other");
    row.token = Some(token);
    let mut bench = Bench::with(config(), [owned(0, "other"), fresh(1), row]);
    for _ in 0..10 {
        bench.run(millis(3_000));
        let write = ops::beat(&bench.rows[&row_of("other")], token);
        assert!(matches!(bench.change(&write), Outcome::Applied(_)));
    }
    assert_eq!(bench.rows[&row_of("me")].token, Some(token));
    assert_eq!(bench.row(0).owner, Some(worker("other")));
}

/// A worker whose row stood still before may move it since it took its lease: an older look says nothing.
#[test]
fn a_worker_that_begins_to_move_its_row_keeps_its_leases() {
    let config = config().full_look_interval(millis(20_000));
    let mut bench = Bench::with(config, [owned(0, "other"), living("other")]);
    for _ in 0..3 {
        bench.run(millis(3_000));
        let renewal = ops::renew(bench.row(0), TenureToken::from_random(77));
        bench.change(&renewal);
    }
    for _ in 0..9 {
        bench.run(millis(3_000));
        moves(&mut bench, "other");
    }
    assert_eq!(bench.row(0).owner, Some(worker("other")));
}

/// The answer to a call shows a row as it was when the call was made, also to a process that was stopped since.
#[test]
fn a_late_answer_does_not_show_that_a_worker_stood_still() {
    let sparing = config().full_look_interval(millis(20_000));
    let mut bench = Bench::with(sparing, [owned(0, "other"), living("other")]);
    for _ in 0..6 {
        bench.run(millis(3_000));
        moves(&mut bench, "other");
    }
    bench.rows.extend((1..3).map(|number| (key(number), owned(number, "other"))));
    bench.store = Store::Hangs;
    bench.run(millis(3_000));
    let (batch, writes) = bench.kept.remove(0);
    assert_eq!(writes[1].key, row_of("other"), "it is asked for a lease");
    let results = writes.iter().map(|write| Ok(bench.change(write))).collect();
    bench.now += millis(12_000);
    moves(&mut bench, "other");
    bench.store = Store::Works;
    bench.step(Event::Applied { batch, results });
    assert_eq!(bench.acquired(), []);
}

/// Each fault that the simulation knows of is found by one of these, too.
#[test]
fn these_tests_can_fail() {
    let cases: [(Mutant, fn()); 6] = [
        (Mutant::BeatIgnored, leases_are_taken_when_they_and_their_worker_stood_still),
        (Mutant::LateBeatBelieved, a_heartbeat_that_is_answered_too_late_does_not_count),
        (Mutant::LostLeaseKept, a_lost_lease_is_given_up_by_who_takes_nothing_more),
        (Mutant::OldLookTrusted, a_worker_that_makes_its_row_between_two_looks_keeps_its_leases),
        (Mutant::OldLookTrusted, a_worker_that_begins_to_move_its_row_keeps_its_leases),
        (Mutant::WorkerRemovedEarly, rows_of_live_workers_stay),
    ];
    for (fault, test) in cases {
        assert!(mutant::fails(fault, test), "{}", fault.name());
    }
}
