//! Taking, renewing, checkpointing, losing.

use kinesis_core::Checkpoint;
use kinesis_core::lease::{Outcome, TenureToken};

use super::bench::{Bench, Store, at, failure, fresh, millis, owned, worker};
use crate::machine::Event;
use crate::sim::key;
use crate::{LeaseConfig, LossReason, ops};

/// S-026, S-039: an idle lease is renewed every 3 s, each time with one more on the counter.
#[test]
fn an_idle_lease_is_renewed_every_heartbeat_interval() {
    let mut bench = Bench::new([fresh(0)]);
    assert_eq!(bench.row(0).counter, 1, "taken at once");
    for renewals in 1..=5 {
        bench.run(millis(2_999));
        assert_eq!(bench.row(0).counter, renewals, "not before its time");
        bench.run(millis(1));
        assert_eq!(bench.row(0).counter, 1 + renewals);
    }
    assert_eq!(bench.row(0).epoch, 1, "a renewal is no change of owner");
}

/// S-027, S-040: an owned lease is taken when its counter stood still for 10 s on our clock, and not before.
#[test]
fn a_lease_is_taken_when_its_counter_stood_still_for_the_expiry() {
    let mut bench = Bench::with(LeaseConfig::default().look_interval(millis(10)), [owned(0, "other")]);
    bench.run(millis(9_990));
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    bench.run(millis(30));
    assert_eq!(bench.row(0).owner, Some(worker("me")));
    assert_eq!((bench.row(0).counter, bench.row(0).epoch, bench.row(0).owner_switches), (6, 4, 1));
}

/// S-040: whatever wall clock an owner has, a counter that moves now and then keeps its lease.
#[test]
fn a_counter_that_moves_keeps_the_lease_for_ever() {
    let mut bench = Bench::new([owned(0, "other")]);
    for _ in 0..20 {
        bench.run(millis(8_500));
        let renewal = ops::renew(bench.row(0), TenureToken::from_random(77));
        bench.change(&renewal);
    }
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    assert_eq!(bench.acquired(), []);
}

/// S-041: a heartbeat between our look and our steal defeats the steal.
#[test]
fn a_late_heartbeat_defeats_the_steal() {
    let mut bench = Bench::new([owned(0, "other")]);
    bench.store = Store::Hangs;
    bench.run(millis(11_500));
    let (batch, steal) = bench.kept.pop().expect("a steal is under way");
    let renewal = ops::renew(bench.row(0), TenureToken::from_random(77));
    assert!(matches!(bench.change(&renewal), Outcome::Applied(_)));
    bench.store = Store::Works;
    bench.apply(batch, &steal);
    assert_eq!(bench.row(0).owner, Some(worker("other")));
    bench.run(millis(5_000));
    assert_eq!(bench.acquired(), []);
}

/// One write stores what was asked for since the last one, and comes as long after that as the most hurried one says.
#[test]
fn checkpoints_that_are_spaced_are_written_together() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    let spaced = |bench: &mut Bench, sequence| {
        bench.checkpoint_spaced(token, sequence, millis(2_000), sequence as u64);
    };
    bench.run(millis(900));
    spaced(&mut bench, 5);
    bench.run(millis(1_000));
    spaced(&mut bench, 6);
    bench.run(millis(99));
    assert_eq!((bench.row(0).counter, bench.replies()), (1, vec![]), "the lease was taken 1,999 ms ago");
    bench.run(millis(1));
    assert_eq!((bench.row(0).counter, &bench.row(0).checkpoint), (2, &at(6)));
    assert_eq!(bench.replies(), [(5, Ok(())), (6, Ok(()))]);
    spaced(&mut bench, 7);
    bench.run(millis(1_999));
    assert_eq!(bench.row(0).checkpoint, at(6));
    bench.run(millis(1));
    assert_eq!((bench.row(0).counter, &bench.row(0).checkpoint), (3, &at(7)));
    bench.run(millis(2_500));
    spaced(&mut bench, 8);
    assert_eq!((bench.row(0).counter, &bench.row(0).checkpoint), (4, &at(8)), "the last write is long ago");
}

/// A checkpoint that may wait goes with one that may not, with the next renewal, and with the release.
#[test]
fn a_checkpoint_that_is_spaced_goes_with_any_other_write() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.checkpoint_spaced(token, 5, millis(60_000), 1);
    bench.run(millis(2_999));
    assert_eq!(bench.replies(), []);
    bench.run(millis(1));
    assert_eq!((bench.row(0).counter, &bench.row(0).checkpoint), (2, &at(5)), "the renewal took it along");
    bench.checkpoint_spaced(token, 6, millis(60_000), 2);
    bench.checkpoint(token, 7, 3);
    assert_eq!((bench.row(0).counter, &bench.row(0).checkpoint), (3, &at(7)));
    bench.checkpoint_spaced(token, 8, millis(60_000), 4);
    bench.release(token, None);
    assert_eq!((&bench.row(0).checkpoint, &bench.row(0).owner), (&at(8), &None));
    assert_eq!(bench.replies(), [(1, Ok(())), (2, Ok(())), (3, Ok(())), (4, Ok(())), (99, Ok(()))]);
}

/// A checkpoint that waited for a write that failed is tried again, at the latest with the renewal.
#[test]
fn a_checkpoint_that_is_spaced_is_tried_again() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.checkpoint_spaced(token, 5, millis(500), 1);
    bench.store = Store::Fails;
    bench.run(millis(600));
    bench.store = Store::Works;
    bench.run(millis(2_000));
    assert_eq!(bench.row(0).checkpoint, at(5));
    assert_eq!(bench.replies(), [(1, Ok(()))]);
}

/// A holder stops 9 s after the start of its last successful write, while observers wait for 10 s.
#[test]
fn a_holder_that_cannot_renew_stops_before_others_may_take() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.run(millis(3_000));
    bench.store = Store::Fails;
    bench.checkpoint(token, 5, 1);
    bench.run(millis(8_999));
    assert_eq!(bench.losses(), []);
    assert_eq!(bench.replies(), [], "it is still being tried");
    bench.run(millis(1));
    assert_eq!(bench.losses(), [(0, LossReason::Expired)]);
    assert_eq!(bench.replies(), [(1, Err("the lease is lost".into()))]);
}

/// F-12: what we lost we take again only after it has expired like anybody's, as a new tenure.
#[test]
fn a_lost_lease_is_not_taken_over_from_oneself_before_it_expires() {
    let mut bench = Bench::new([fresh(0)]);
    let first = bench.only_token();
    bench.store = Store::Fails;
    bench.run(millis(9_000));
    assert_eq!(bench.losses(), [(0, LossReason::Expired)]);
    bench.store = Store::Works;
    bench.run(millis(900));
    assert_eq!(bench.acquired(), []);
    bench.run(millis(4_000));
    let second = bench.only_token();
    assert_ne!(first, second);
    assert_eq!(bench.row(0).epoch, 2);
    bench.checkpoint(first, 9, 1);
    assert_eq!(bench.replies(), [(1, Err("the lease is lost".into()))]);
    assert_eq!(bench.row(0).checkpoint, Checkpoint::TrimHorizon, "the former tenure stored nothing");
}

/// F-10: an older checkpoint is accepted and changes nothing; checkpoints that wait are written as one.
#[test]
fn checkpoints_only_grow_and_are_written_together() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::Hangs;
    for (reply, sequence) in [(1, 5), (2, 9), (3, 7)] {
        bench.checkpoint(token, sequence, reply);
    }
    bench.store = Store::Works;
    let before = bench.writes;
    for (batch, writes) in std::mem::take(&mut bench.kept) {
        bench.apply(batch, &writes);
    }
    assert_eq!(bench.replies(), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    assert_eq!(bench.row(0).checkpoint, at(9));
    assert_eq!(bench.writes - before, 2, "the first at once, the others together");
    bench.checkpoint(token, 8, 4);
    assert_eq!(bench.replies(), [(4, Ok(()))]);
    assert_eq!((bench.row(0).checkpoint.clone(), bench.row(0).counter), (at(9), 3));
}

/// A checkpoint shows that the holder is alive: no renewal is written beside it.
#[test]
fn checkpoints_save_renewals() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    for second in 1..=10 {
        bench.run(millis(1_000));
        bench.checkpoint(token, second, 0);
    }
    assert_eq!(bench.row(0).counter, 11, "one take and ten checkpoints");
}

/// F-22: a renewal and a checkpoint whose replies are lost are recognised as our own by the token.
#[test]
fn our_own_writes_are_recognised_when_their_replies_are_lost() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::LosesReplies;
    bench.checkpoint(token, 5, 1);
    assert_eq!(bench.row(0).checkpoint, at(5), "applied");
    assert_eq!(bench.replies(), [], "but nobody knows");
    bench.store = Store::Works;
    bench.run(millis(200));
    assert_eq!(bench.replies(), [(1, Ok(()))]);
    bench.run(millis(30_000));
    assert_eq!(bench.losses(), []);
}

/// F-22: a take whose reply is lost is found again by its token, and its lease is not left without a consumer.
#[test]
fn our_own_take_is_recognised_when_its_reply_is_lost() {
    let mut bench = Bench::new([]);
    bench.rows.insert(key(0), fresh(0));
    bench.store = Store::Hangs;
    bench.look();
    let (batch, take) = bench.kept.pop().expect("a take is under way");
    bench.store = Store::LosesReplies;
    bench.apply(batch, &take);
    assert_eq!(bench.row(0).owner, Some(worker("me")));
    assert_eq!(bench.acquired(), []);
    bench.store = Store::Works;
    bench.run(millis(200));
    bench.only_token();
    assert_eq!(bench.row(0).epoch, 1, "it was not taken twice");
}

/// The answer to a write of a former tenure says nothing of the write that is under way for the present one.
#[test]
fn an_answer_to_a_former_tenure_is_not_taken_for_one_to_the_present() {
    let mut bench = Bench::new([fresh(0)]);
    bench.only_token();
    bench.store = Store::Hangs;
    bench.run(millis(3_100));
    let (former, _) = bench.kept.remove(0);
    bench.store = Store::Works;
    bench.run(millis(9_000));
    assert_eq!(bench.losses(), [(0, LossReason::Expired)]);
    let token = bench.only_token();
    bench.store = Store::Hangs;
    bench.checkpoint(token, 5, 1);
    bench.step(Event::Applied { batch: former, results: vec![Err(failure())] });
    bench.run(millis(500));
    assert_eq!(bench.kept.len(), 1, "one write at a time");
}

/// F-22: a release and an end whose replies are lost are recognised, too.
#[test]
fn our_own_release_is_recognised_when_its_reply_is_lost() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    bench.store = Store::LosesReplies;
    bench.release(token, None);
    bench.store = Store::Works;
    bench.run(millis(300));
    assert_eq!(bench.replies(), [(99, Ok(()))]);
    assert_eq!(bench.losses(), []);
}

/// S-015: a holder that was robbed learns it from its next write, and its checkpoint is refused.
#[test]
fn a_robbed_holder_cannot_checkpoint() {
    let mut bench = Bench::new([fresh(0)]);
    let token = bench.only_token();
    let steal = ops::take(bench.row(0), &worker("thief"), TenureToken::from_random(1));
    bench.change(&steal);
    bench.checkpoint(token, 5, 1);
    assert_eq!(bench.replies(), [(1, Err("the lease is lost".into()))]);
    assert_eq!(bench.losses(), [(0, LossReason::Taken)]);
    assert_eq!(bench.row(0).checkpoint, Checkpoint::TrimHorizon);
}

#[test]
fn a_look_tells_of_a_loss_before_the_next_renewal_would() {
    let mut bench = Bench::new([fresh(0)]);
    let steal = ops::take(bench.row(0), &worker("thief"), TenureToken::from_random(1));
    bench.change(&steal);
    bench.run(millis(1_200));
    assert_eq!(bench.losses(), [(0, LossReason::Taken)]);
}

#[test]
fn a_deleted_row_ends_the_tenure() {
    let mut bench = Bench::new([fresh(0)]);
    bench.rows.clear();
    bench.run(millis(3_000));
    assert_eq!(bench.losses(), [(0, LossReason::Deleted)]);
}
