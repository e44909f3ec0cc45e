//! Hand-overs, balance, limits, rest.

use kinesis_core::lease::{CoolDown, TenureToken};

use super::bench::{Bench, Store, at, fresh, millis, number, owned, worker};
use crate::sim::key;
use crate::{LeaseConfig, LossReason, ops};

/// F-23: a lease is asked for, not robbed: the holder works on and may still checkpoint, and then gives it over.
#[test]
fn a_hand_over_goes_through_the_holder() {
    let mut bench = Bench::new([fresh(0), owned(1, "poor")]);
    let token = bench.only_token();
    let request = ops::request(bench.row(0), &worker("poor"));
    bench.change(&request);
    bench.look();
    assert_eq!(bench.hand_overs().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [0]);
    bench.checkpoint(token, 5, 1);
    assert_eq!(bench.replies(), [(1, Ok(()))]);
    bench.release(token, None);
    assert_eq!(bench.replies(), [(99, Ok(()))]);
    let row = bench.row(0);
    assert_eq!((row.owner.clone(), row.checkpoint_owner.clone()), (Some(worker("poor")), None));
    assert_eq!((row.token, row.epoch, row.checkpoint.clone()), (None, 2, at(5)));
    assert_eq!(bench.losses(), []);
}

/// F-23: the worker that asked begins in its next look after the release.
#[test]
fn the_worker_that_asked_begins_after_the_release() {
    let mut bench = Bench::new([owned(0, "rich"), owned(1, "rich")]);
    assert_eq!(bench.rows.values().filter(|row| row.owner == Some(worker("me"))).count(), 1, "asked for one");
    let asked = bench.rows.values().find(|row| row.checkpoint_owner.is_some()).unwrap().clone();
    assert_eq!(
        (asked.counter, asked.token),
        (5, Some(TenureToken::from_random(77))),
        "the holder may write on"
    );
    for _ in 0..3 {
        bench.look();
        assert_eq!(bench.acquired(), [], "the holder has not answered");
        let renewal = ops::renew(&bench.rows[&asked.key], TenureToken::from_random(77));
        bench.change(&renewal);
    }
    let released = ops::release(&bench.rows[&asked.key], TenureToken::from_random(77), Some(at(8)), None);
    bench.change(&released);
    bench.look();
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [number(&asked.key)]);
    assert_eq!(bench.rows[&asked.key].checkpoint, at(8));
}

/// A lease that moves under our name and is not ours is that of a second worker: it keeps it, and the warning names the
/// tenures of both.
#[test]
fn a_second_worker_of_our_name_keeps_its_leases_and_is_told() {
    let token = TenureToken::from_random(0x1a2b_3c4d << 96);
    let mut theirs = owned(1, "me");
    theirs.token = Some(token);
    let mut bench = Bench::new([fresh(0), theirs]);
    let ours = bench.only_token().to_string();
    for _ in 0..30 {
        let renewal = ops::renew(bench.row(1), token);
        bench.change(&renewal);
        bench.look();
    }
    let expected = format!(
        "another worker uses the name me, too: it holds {} with token 1a2b3c4d; this one holds a lease with token {}",
        key(1),
        &ours[..8]
    );
    assert_eq!(bench.warnings(), [expected]);
    assert_eq!((bench.acquired(), bench.row(1).epoch), (vec![], 3));
}

/// A holder that does not release in time loses the lease to the one that asked, without a gap.
#[test]
fn an_overrun_hand_over_is_ended_by_the_machine() {
    let mut bench = Bench::new([fresh(0), owned(1, "poor")]);
    bench.only_token();
    let request = ops::request(bench.row(0), &worker("poor"));
    bench.change(&request);
    bench.look();
    bench.run(millis(30_000));
    assert_eq!(bench.losses()[0], (0, LossReason::HandOverOverrun));
    assert_eq!((bench.row(0).owner.clone(), bench.row(0).token), (Some(worker("poor")), None));
}

/// A holder that renews but never answers is robbed after the hand-over timeout and one expiry.
#[test]
fn a_holder_that_never_answers_is_robbed() {
    let mut bench = Bench::new([owned(0, "deaf"), owned(1, "deaf")]);
    let asked = bench.rows.values().find(|row| row.checkpoint_owner.is_some()).unwrap().key.clone();
    for _ in 0..39 {
        bench.run(millis(1_000));
        for number in [0, 1] {
            let renewal = ops::renew(&bench.rows[&key(number)], TenureToken::from_random(77));
            bench.change(&renewal);
        }
        assert_eq!(bench.acquired(), []);
    }
    bench.run(millis(2_500));
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [number(&asked)]);
}

/// A hand-over whose taker died ends: after the release nobody moves the counter, and anybody takes the lease.
#[test]
fn a_lease_released_to_a_dead_worker_expires_and_is_taken() {
    let mut dead = owned(0, "dead");
    dead.token = None;
    let mut bench = Bench::new([dead]);
    bench.run(millis(9_900));
    assert_eq!(bench.acquired(), []);
    bench.run(millis(1_300));
    bench.only_token();
}

#[test]
fn a_withdrawn_request_ends_the_hand_over() {
    let mut bench = Bench::new([fresh(0), owned(1, "poor")]);
    let token = bench.only_token();
    let request = ops::request(bench.row(0), &worker("poor"));
    bench.change(&request);
    bench.look();
    assert_eq!(bench.hand_overs().len(), 1);
    let withdrawal = ops::withdraw(bench.row(0));
    bench.change(&withdrawal);
    bench.run(millis(40_000));
    let losses = bench.losses();
    assert!(!losses.contains(&(0, LossReason::HandOverOverrun)), "{losses:?}");
    bench.checkpoint(token, 5, 1);
    assert_eq!(bench.replies(), [(1, Ok(()))]);
}

/// S-044: nobody is asked whose load is at most one above ours.
#[test]
fn a_difference_of_one_moves_nothing() {
    let mut bench = Bench::new([fresh(0), owned(1, "other"), owned(2, "other")]);
    for _ in 0..5 {
        bench.look();
        for number in [1, 2] {
            let renewal = ops::renew(&bench.rows[&key(number)], TenureToken::from_random(77));
            bench.change(&renewal);
        }
    }
    assert!(bench.rows.values().all(|row| row.checkpoint_owner.is_none()));
}

/// The most leases of a worker are a limit, whatever is free.
#[test]
fn a_worker_takes_no_more_than_its_limit() {
    let config = LeaseConfig::default().max_leases(2);
    let mut bench = Bench::with(config, (0..5).map(fresh));
    bench.run(millis(30_000));
    assert_eq!(bench.acquired().len(), 2);
    assert_eq!(bench.machine.held_rows().count(), 2);
}

/// A shard that rests is taken when it was seen unowned for its rest, on our own clock.
#[test]
fn a_resting_shard_is_left_alone_until_it_has_rested() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.release(token, Some(CoolDown::new(millis(5_000), 2)));
    assert_eq!(bench.row(0).cool_down, Some(CoolDown::new(millis(5_000), 2)));
    bench.run(millis(4_900));
    assert_eq!(bench.acquired(), []);
    bench.run(millis(1_300));
    let token = bench.only_token();
    assert_eq!(bench.row(0).cool_down.map(|cool_down| cool_down.failures), Some(2), "the new owner knows");
    bench.checkpoint(token, 3, 1);
    assert_eq!(bench.row(0).cool_down, None, "progress ends it");
}

/// A hung call holds up its own lease only.
#[test]
fn a_hung_call_does_not_stop_the_renewal_of_other_leases() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::Hangs;
    bench.checkpoint(token, 5, 1);
    bench.store = Store::Works;
    let mut other = fresh(1);
    other.parents.clear();
    bench.rows.insert(key(1), other);
    bench.run(millis(8_000));
    assert_eq!(bench.acquired().iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [1]);
    assert!(bench.row(1).counter >= 3, "renewed while the other call hangs");
    assert_eq!(bench.row(0).counter, 1);
}
