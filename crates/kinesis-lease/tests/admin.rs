//! Looking after leases from outside.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::*;
use kinesis_core::{Checkpoint, Position, StreamRef, Timestamp};
use kinesis_lease::{
    AdminPlan, AdminResult, Lease, LeaseAdmin, LeaseEvent, LeaseStoreExt, LossReason, MemoryStore, ResetTo,
    Selection,
};
use tokio::time::Instant;

fn admin(store: &FaultyStore) -> LeaseAdmin {
    LeaseAdmin::new(store.clone(), application()).stream(&stream())
}

async fn filled(rows: u32) -> FaultyStore {
    let store = FaultyStore::default();
    for number in 0..rows {
        let mut lease = Lease::new(key(number), at(u128::from(number) + 1));
        lease.children = vec![shard(number + 100)];
        store.create_if_not_exists(lease).await.unwrap();
    }
    store
}

fn all_done(results: &[AdminResult]) -> bool {
    results.iter().all(AdminResult::is_done)
}

/// S-036: a listing shows owner and position, and how long a counter has stood still.
#[tokio::test(start_paused = true)]
async fn a_listing_has_owner_age_and_position() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    acquired(&mut events).await.checkpoint(at(5)).await.unwrap();
    acquired(&mut events).await;
    let admin = admin(&store);
    let listing = admin.list().await.unwrap();
    assert_eq!(listing.leases.len(), 2);
    assert!(listing.leases.iter().all(|entry| entry.lease.owner == Some(worker("a"))));
    assert!(listing.leases.iter().any(|entry| entry.lease.checkpoint == at(5)));
    assert!(listing.leases.iter().all(|entry| entry.age == secs(0)), "not known yet");
    drop(coordinator);
    tokio::time::sleep(secs(30)).await;
    let listing = admin.list().await.unwrap();
    assert!(listing.leases.iter().all(|entry| entry.age >= secs(30)));
}

/// The row of a worker is no lease: it is not listed, exported, reset or deleted.
#[tokio::test(start_paused = true)]
async fn rows_of_workers_are_no_leases() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let config = kinesis_lease::LeaseConfig::default().worker_heartbeat(true);
    let builder = builder(store.clone(), &directory, "a").config(config);
    let (coordinator, mut events) = builder.start().await.unwrap();
    acquired(&mut events).await;
    acquired(&mut events).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(store.memory.snapshot().len(), 3);
    let admin = admin(&store);
    assert_eq!(admin.list().await.unwrap().leases.len(), 2);
    assert_eq!(store.list(&application(), &stream()).await.unwrap().len(), 2);
    let plan = admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await.unwrap();
    assert_eq!(plan.to_string().lines().count(), 2);
    assert!(coordinator.shutdown(secs(10)).await.is_complete());
    assert_eq!(store.memory.snapshot().len(), 2, "a stop leaves none");
}

/// A plan says what it would do and does nothing; applied, it resets what was selected and nothing else.
#[tokio::test(start_paused = true)]
async fn a_reset_is_planned_first_and_touches_what_was_selected() {
    let store = filled(3).await;
    let admin = admin(&store);
    let before = store.memory.snapshot();
    let one = Selection::Shards(vec![shard(1)]);
    let plan = admin.plan_reset(&one, &ResetTo::Timestamp(Timestamp::from_millis(7_000))).await.unwrap();
    let line = "reset billing:orders/shardId-000000000001 from 2 to AT_TIMESTAMP 7000 ms, held by nobody\n";
    assert_eq!(plan.to_string(), line);
    assert_eq!(store.memory.snapshot(), before, "a plan writes nothing");
    assert!(all_done(&admin.apply(plan).await));
    let row = store.row(1);
    assert_eq!(
        (row.checkpoint.clone(), row.anchor),
        (Checkpoint::AtTimestamp, Some(Timestamp::from_millis(7_000)))
    );
    assert_eq!((row.counter, row.epoch, row.children.clone()), (1, 1, before[1].children.clone()));
    assert_eq!((store.row(0), store.row(2)), (before[0].clone(), before[2].clone()));

    let plan = admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await.unwrap();
    assert!(all_done(&admin.apply(plan).await));
    assert!(store.memory.snapshot().iter().all(|row| row.checkpoint == Checkpoint::TrimHorizon));
    let position = Position::new(9_u128.into(), 2);
    let plan = admin.plan_reset(&one, &ResetTo::Position(position.clone())).await.unwrap();
    assert!(all_done(&admin.apply(plan).await));
    assert_eq!(store.row(1).checkpoint, Checkpoint::At(position));
}

/// A worker whose row such a plan changes notices it within one look, and stops; where the lease begins again.
async fn changed_under_a_worker(plan: impl AsyncFnOnce(&LeaseAdmin) -> AdminPlan) -> Checkpoint {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    tenure.checkpoint(at(50)).await.unwrap();
    let admin = admin(&store);
    let plan = plan(&admin).await;
    // The holder goes on between plan and write: it is still the same tenure.
    tenure.checkpoint(at(60)).await.unwrap();
    assert!(all_done(&admin.apply(plan).await));
    let changed = Instant::now();
    tenure.ownership().lost().await;
    assert!(changed.elapsed() <= millis(1_200), "{:?}", changed.elapsed());
    assert!(tenure.checkpoint(at(70)).await.is_err());
    match events.next().await.unwrap() {
        LeaseEvent::Lost { key: of, reason, .. } => assert_eq!((of, reason), (key(0), LossReason::Changed)),
        other => panic!("{other:?}"),
    }
    let again = acquired(&mut events).await;
    assert!(again.fence().epoch() > tenure.fence().epoch());
    again.lease().checkpoint.clone()
}

/// A running worker notices within one look that its row was reset, stops, and somebody begins at the new position.
#[tokio::test(start_paused = true)]
async fn a_running_worker_reacts_to_a_reset_within_one_look() {
    let reset =
        async |admin: &LeaseAdmin| admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await.unwrap();
    assert_eq!(changed_under_a_worker(reset).await, Checkpoint::TrimHorizon);
}

/// A running worker notices within one look that its lease was released, and stops; it may take the lease again then.
#[tokio::test(start_paused = true)]
async fn a_running_worker_reacts_to_a_release_within_one_look() {
    let release = async |admin: &LeaseAdmin| {
        let plan = admin.plan_release(&Selection::All).await.unwrap();
        assert_eq!(plan.to_string(), "release billing:orders/shardId-000000000000, held by a\n");
        plan
    };
    assert_eq!(changed_under_a_worker(release).await, at(60), "nothing that was stored is lost");
}

/// A row that is removed under a running worker ends the tenure within one look, and a listing makes it anew.
#[tokio::test(start_paused = true)]
async fn a_running_worker_reacts_to_a_deletion_within_one_look() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    tokio::time::sleep(millis(1_500)).await;
    let admin = admin(&store);
    let plan = admin.plan_delete(&Selection::All).await.unwrap();
    assert_eq!(plan.to_string(), "delete billing:orders/shardId-000000000000 at TRIM_HORIZON, held by a\n");
    assert!(all_done(&admin.apply(plan).await));
    let changed = Instant::now();
    tenure.ownership().lost().await;
    assert!(changed.elapsed() <= millis(1_200), "{:?}", changed.elapsed());
    match events.next().await.unwrap() {
        LeaseEvent::Lost { reason, .. } => assert_eq!(reason, LossReason::Deleted),
        other => panic!("{other:?}"),
    }
    assert_eq!(acquired(&mut events).await.key(), &key(0));
    assert!(changed.elapsed() <= secs(4), "the missing lease is made anew at once: {:?}", changed.elapsed());
}

/// A release makes a lease free at once; a lease that changed hands since it was planned is left alone.
#[tokio::test(start_paused = true)]
async fn a_change_of_hands_defeats_a_plan() {
    let store = filled(2).await;
    let row = store.row(0);
    let token = kinesis_lease::TenureToken::from_random(1);
    store.take(&row, &worker("a"), token).await.unwrap().unwrap();
    let admin = admin(&store);
    let plan = admin.plan_release(&Selection::All).await.unwrap();
    assert_eq!(plan.changes().len(), 1, "only what somebody holds");
    let late = admin.plan_release(&Selection::All).await.unwrap();
    assert!(all_done(&admin.apply(plan).await));
    assert_eq!((store.row(0).owner, store.row(0).token), (None, None));
    let row = store.row(0);
    store.take(&row, &worker("b"), kinesis_lease::TenureToken::from_random(2)).await.unwrap().unwrap();
    let results = admin.apply(late).await;
    assert!(matches!(&results[..], [AdminResult::Changed(of)] if *of == key(0)), "{results:?}");
    assert_eq!(store.row(0).owner, Some(worker("b")));
}

/// S-033, S-053: leases move between stores with their positions and without owners, and never over existing ones.
#[tokio::test(start_paused = true)]
async fn leases_are_exported_and_imported() {
    let store = filled(3).await;
    let row = store.row(0);
    store.take(&row, &worker("a"), kinesis_lease::TenureToken::from_random(1)).await.unwrap().unwrap();
    let leases = admin(&store).export().await.unwrap();
    let target = MemoryStore::new();
    let existing = Lease::new(key(2), Checkpoint::ShardEnd);
    target.create_if_not_exists(existing.clone()).await.unwrap();
    let by_arn = StreamRef::new("arn:aws:kinesis:eu-west-1:123456789012:stream/orders").unwrap();
    let import = LeaseAdmin::new(target.clone(), application()).stream(&by_arn);
    let results = import.apply(import.plan_import(leases)).await;
    assert_eq!(results.iter().filter(|result| result.is_done()).count(), 2);
    let rows = target.snapshot();
    let mut expected = store.row(0);
    (expected.owner, expected.token) = (None, None);
    assert_eq!(rows[0], expected);
    assert_eq!((rows[1].clone(), rows[2].clone()), (store.row(1), existing));
}
