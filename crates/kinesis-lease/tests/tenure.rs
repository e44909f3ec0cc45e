//! Coordinators on virtual time: what tenures can do and what becomes of them.

mod common;

use common::*;
use kinesis_core::Checkpoint;
use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::metrics::Recorder;
use kinesis_lease::{LeaseError, LeaseEvent, LossReason, ReleaseReport, Tenure};
use tokio::time::Instant;

/// S-042: what is released at a shutdown can be taken at once, long before it would expire.
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_in_the_next_look() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(3);
    let (first, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    for _ in 0..3 {
        acquired(&mut events).await.checkpoint(at(7)).await.unwrap();
    }
    let (second, mut others) = builder(store.clone(), &directory, "b").start().await.unwrap();
    assert!(first.shutdown(secs(5)).await.is_complete());
    let before = Instant::now();
    for _ in 0..3 {
        assert_eq!(acquired(&mut others).await.lease().checkpoint, at(7));
    }
    assert!(before.elapsed() < secs(3), "took {:?}", before.elapsed());
    second.shutdown(secs(5)).await;
}

/// S-055, S-061: a checkpoint is in the store when the call returns, and the next owner gets it.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_goes_through_the_store() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    assert_eq!(tenure.lease().checkpoint, Checkpoint::TrimHorizon);
    tenure.checkpoint(at(5)).await.unwrap();
    assert_eq!(store.row(0).checkpoint, at(5));
    tenure.checkpoint(at(4)).await.unwrap();
    assert_eq!(store.row(0).checkpoint, at(5), "an older one changes nothing");
    assert!(matches!(
        tenure.checkpoint(Checkpoint::ShardEnd).await,
        Err(LeaseError::NotAPosition(Checkpoint::ShardEnd))
    ));
    coordinator.shutdown(secs(5)).await;
    assert!(matches!(tenure.checkpoint(at(9)).await, Err(LeaseError::Closed | LeaseError::Lost)));
    assert_eq!(store.row(0).checkpoint, at(5));
}

/// S-026, S-047: while nobody touches a tenure for five expiries, it is renewed every 3 s and kept.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_lease() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    let taken = store.row(0).counter;
    tokio::time::sleep(secs(50)).await;
    assert_eq!(store.row(0).counter - taken, 16, "one renewal every 3 s");
    assert!(!tenure.ownership().is_lost());
    tenure.checkpoint(at(5)).await.unwrap();
}

/// S-048: calls that hang (here every look) hold up neither renewals nor checkpoints.
#[tokio::test(start_paused = true)]
async fn hanging_looks_starve_nothing() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    *store.scan_fault.lock().unwrap() = Some(Fault::Hang);
    for second in 1..40 {
        let before = Instant::now();
        tenure.checkpoint(at(second)).await.unwrap();
        assert_eq!(before.elapsed(), secs(0));
        tokio::time::sleep(secs(1)).await;
    }
    tokio::time::sleep(secs(30)).await;
    assert!(!tenure.ownership().is_lost());
}

/// S-048: nobody has to read the events for renewals and checkpoints to go on, and what is unread stays bounded.
#[tokio::test(start_paused = true)]
async fn unread_events_hold_up_nothing() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    // An hour of failing looks.
    *store.scan_fault.lock().unwrap() = Some(Fault::Unavailable);
    tokio::time::sleep(secs(3_600)).await;
    tenure.checkpoint(at(1)).await.unwrap();
    let mut warnings = 0;
    let mut other = 0;
    while let Ok(Some(event)) = tokio::time::timeout(secs(0), events.next()).await {
        match event {
            LeaseEvent::Warning(_) => warnings += 1,
            _ => other += 1,
        }
    }
    assert_eq!((warnings, other), (64, 1));
}

/// S-027, S-040, S-043: a worker that vanishes without a word is followed after the expiry, and not before.
#[tokio::test(start_paused = true)]
async fn leases_of_a_vanished_worker_are_taken_after_the_expiry() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (first, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let held = [acquired(&mut events).await, acquired(&mut events).await];
    let (_second, mut others) = builder(store.clone(), &directory, "b").start().await.unwrap();
    tokio::time::sleep(millis(100)).await;
    drop(first);
    let vanished = Instant::now();
    for _ in 0..2 {
        acquired(&mut others).await;
    }
    // It was asked for one of the leases, whose counter stood still nevertheless.
    let took = vanished.elapsed();
    assert!(took >= secs(9) + millis(900) && took <= secs(12) + millis(200), "{took:?}");
    assert!(held.iter().all(|tenure| tenure.ownership().is_lost()));
}

/// S-004: dropping a coordinator ends everything: ownership, events, calls, and every task.
#[tokio::test(start_paused = true)]
async fn nothing_outlives_a_dropped_coordinator() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    drop(coordinator);
    tenure.ownership().lost().await;
    assert!(events.next().await.is_none());
    assert!(matches!(tenure.checkpoint(at(1)).await, Err(LeaseError::Closed)));
    assert!(matches!(tenure.release(None).await, Err(LeaseError::Closed)));
    let before = (store.log.entries().len(), directory.log.entries().len());
    tokio::time::sleep(secs(300)).await;
    assert_eq!((store.log.entries().len(), directory.log.entries().len()), before);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0);
}

/// S-029: shards are listed at the start and then every 60 s, or up to 2 % later.
#[tokio::test(start_paused = true)]
async fn shards_are_listed_every_minute() {
    let directory = FakeDirectory::open(1);
    let (_coordinator, _events) = builder(FaultyStore::default(), &directory, "a").start().await.unwrap();
    assert_eq!(directory.log.count("ListShards"), 1);
    tokio::time::sleep(secs(59)).await;
    assert_eq!(directory.log.count("ListShards"), 1);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(directory.log.count("ListShards"), 2);
    tokio::time::sleep(secs(612)).await;
    assert_eq!(directory.log.count("ListShards"), 12);
}

/// A listing that fails is repeated soon, ever more slowly, and reported.
#[tokio::test(start_paused = true)]
async fn a_failed_listing_is_repeated_and_reported() {
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(FaultyStore::default(), &directory, "a").start().await.unwrap();
    acquired(&mut events).await;
    for _ in 0..5 {
        directory.fail_next(DirectoryError::unavailable(stream(), "ListShards", "503"));
    }
    assert!(coordinator.discover_now().await.unwrap_err().is_retryable());
    let event = events.next().await.unwrap();
    assert!(matches!(event, LeaseEvent::Warning(kinesis_lease::LeaseWarning::Discovery(_))), "{event:?}");
    tokio::time::sleep(secs(40)).await;
    assert_eq!(directory.log.count("ListShards"), 7, "the first, five failures, and one that works");
    coordinator.discover_now().await.unwrap();
}

/// S-046: three workers share the shards: each shard has one, and each has its part.
#[tokio::test(start_paused = true)]
async fn three_workers_share_the_shards() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(7);
    let mut counts = Vec::new();
    let mut running = Vec::new();
    for name in ["a", "b", "c"] {
        let (coordinator, mut events) = builder(store.clone(), &directory, name).start().await.unwrap();
        running.push(tokio::spawn(async move {
            let mut held: Vec<Tenure> = Vec::new();
            let end = Instant::now() + secs(60);
            while let Ok(Some(event)) = tokio::time::timeout_at(end, events.next()).await {
                match event {
                    LeaseEvent::Acquired(tenure) => held.push(tenure),
                    LeaseEvent::HandOver { token, .. } => {
                        let at = held.iter().position(|tenure| tenure.token() == token).unwrap();
                        held.remove(at).release(None).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
            let keys: Vec<_> = held.iter().map(|tenure| tenure.key().clone()).collect();
            (keys, coordinator)
        }));
    }
    let mut all = Vec::new();
    for task in running {
        let (keys, coordinator) = task.await.unwrap();
        counts.push(keys.len());
        all.extend(keys);
        drop(coordinator);
    }
    counts.sort_unstable();
    all.sort();
    assert_eq!(counts, [2, 2, 3]);
    assert_eq!(all, (0..7).map(key).collect::<Vec<_>>());
}

/// S-056, S-057, S-058: a split and a merge are followed; the ends are stored, and a restarted worker does not open
/// the finished shards again.
#[tokio::test(start_paused = true)]
async fn a_split_and_a_merge_are_followed() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let parent = acquired(&mut events).await;
    let child = |number, parents: &[u32]| {
        ShardInfo::new(shard(number)).parents(parents.iter().map(|parent| shard(*parent)).collect())
    };
    let children = [child(1, &[0]), child(2, &[0])];
    directory.set(vec![ShardInfo::new(shard(0)).closed(true), children[0].clone(), children[1].clone()]);
    parent.end_shard(&children).await.unwrap();
    assert!(parent.ownership().is_lost());
    assert_eq!(store.row(0).checkpoint, Checkpoint::ShardEnd);
    assert_eq!(store.row(0).children, [shard(1), shard(2)]);
    let before = Instant::now();
    let mut halves = [acquired(&mut events).await, acquired(&mut events).await];
    assert!(before.elapsed() < secs(1), "the children follow at once");
    halves.sort_by_key(|tenure| tenure.key().clone());
    let merged = child(3, &[1, 2]);
    directory.set(vec![
        ShardInfo::new(shard(0)).closed(true),
        children[0].clone(),
        children[1].clone(),
        merged.clone(),
    ]);
    halves[0].end_shard(std::slice::from_ref(&merged)).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(store.row(3).owner, None, "its second parent is not finished");
    halves[1].end_shard(&[merged]).await.unwrap();
    let last = acquired(&mut events).await;
    assert_eq!((last.key(), last.lease().checkpoint.clone()), (&key(3), Checkpoint::TrimHorizon));
    coordinator.shutdown(secs(5)).await;
    let (_again, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    assert_eq!(acquired(&mut events).await.key(), &key(3));
    assert!(
        tokio::time::timeout(secs(300), events.next()).await.is_err(),
        "no finished shard is opened again"
    );
}

/// F-20: an end without known children makes them from a listing before it is stored.
#[tokio::test(start_paused = true)]
async fn the_children_of_an_end_without_children_are_listed() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let parent = acquired(&mut events).await;
    directory
        .set(vec![ShardInfo::new(shard(0)).closed(true), ShardInfo::new(shard(1)).parents(vec![shard(0)])]);
    parent.end_shard(&[]).await.unwrap();
    assert_eq!(acquired(&mut events).await.key(), &key(1));
    assert_eq!(directory.log.count("ListShards"), 2);
}

/// S-015, S-190: a store that is gone for longer than a holder may believe ends the tenure with an event and a count; when
/// it is back, the lease is taken as a new tenure.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_ends_the_tenure_in_time() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let recorder = Recorder::new();
    let metrics = std::sync::Arc::new(recorder.clone());
    let (_coordinator, mut events) =
        builder(store.clone(), &directory, "a").metrics(metrics).start().await.unwrap();
    let tenure = acquired(&mut events).await;
    let taken = Instant::now();
    store.break_all(Fault::Hang);
    let waiting = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.checkpoint(at(3)).await }
    });
    tenure.ownership().lost().await;
    assert_eq!(taken.elapsed(), secs(9));
    assert!(matches!(waiting.await.unwrap(), Err(LeaseError::Lost)));
    store.heal();
    let lost = loop {
        match events.next().await.unwrap() {
            LeaseEvent::Lost { key, token, reason, .. } => break (key, token, reason),
            LeaseEvent::Warning(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lost, (key(0), tenure.token(), LossReason::Expired));
    assert_eq!(recorder.total("lease_lost_total"), 1);
    let again = acquired(&mut events).await;
    assert!(again.fence().epoch() > tenure.fence().epoch());
}

/// F-15, F-22: a store that throttles or loses replies for a while costs no lease and no checkpoint.
#[tokio::test(start_paused = true)]
async fn a_store_that_throttles_and_loses_replies_costs_no_lease() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(10);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(acquired(&mut events).await);
    }
    let mut random = fastrand::Rng::with_seed(3);
    store.on_apply(move |_| match random.u32(0..10) {
        0..4 => Some(Fault::Throttled),
        4 => Some(Fault::ReplyLost),
        5 => Some(Fault::Slow(millis(300))),
        _ => None,
    });
    for round in 1..30 {
        for tenure in &held {
            tenure.checkpoint(at(round)).await.unwrap();
        }
        tokio::time::sleep(secs(1)).await;
    }
    store.heal();
    assert!(held.iter().all(|tenure| !tenure.ownership().is_lost()));
    assert!((0..10).all(|number| store.row(number).checkpoint == at(29)));
    assert_eq!(coordinator.shutdown(secs(5)).await.released.len(), 10);
}

/// A consumer that stops reading events for good gets nothing more, and what it had goes to others.
#[tokio::test(start_paused = true)]
async fn dropping_the_events_releases_everything() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let tenure = acquired(&mut events).await;
    drop(events);
    tenure.ownership().lost().await;
    until("everything is released", || store.memory.snapshot().iter().all(|row| row.owner.is_none())).await;
}

/// A tenure that came and went unread leaves no trace in the events.
#[tokio::test(start_paused = true)]
async fn a_tenure_that_ended_unread_is_not_reported() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (_coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    until("it is taken", || store.row(0).owner.is_some()).await;
    store.on_apply(|_| Some(Fault::Hang));
    tokio::time::sleep(secs(20)).await;
    store.heal();
    let tenure = acquired(&mut events).await;
    assert!(!tenure.ownership().is_lost(), "the first tenure that is read is one that lasts");
    assert_eq!(tenure.fence().epoch(), 2);
}

/// A shutdown says what it released; what a hanging store keeps is abandoned at the deadline.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_at_its_deadline() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    for _ in 0..2 {
        acquired(&mut events).await;
    }
    store.on_apply(|write| (write.key == key(1)).then_some(Fault::Hang));
    coordinator.stop_taking().await;
    let before = Instant::now();
    let report: ReleaseReport = coordinator.shutdown(secs(4)).await;
    assert_eq!(before.elapsed(), secs(4));
    assert!(report.abandoned.contains(&key(1)), "{report:?}");
    while let Some(event) = events.next().await {
        assert!(matches!(event, LeaseEvent::Warning(_)), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_after_stop_taking() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    acquired(&mut events).await;
    coordinator.stop_taking().await;
    directory.set(vec![ShardInfo::new(shard(0)), ShardInfo::new(shard(1))]);
    coordinator.discover_now().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(store.row(1).owner, None);
    assert_eq!(store.row(0).owner, Some(worker("a")), "what is held is kept");
}

/// A shutdown of a lease task that is gone does not look like one that released everything.
#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_lease_task_is_not_complete() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    // The lease task releases everything and ends, because nobody listens.
    drop(events);
    tokio::time::sleep(secs(20)).await;
    let report = coordinator.shutdown(secs(5)).await;
    assert!(report.unknown && !report.is_complete(), "{report:?}");
}

/// F-21: the lease of a finished shard that the service has forgotten is removed once its children have begun.
#[tokio::test(start_paused = true)]
async fn leases_of_forgotten_shards_are_removed() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let child = ShardInfo::new(shard(1)).parents(vec![shard(0)]);
    acquired(&mut events).await.end_shard(std::slice::from_ref(&child)).await.unwrap();
    let tenure = acquired(&mut events).await;
    directory.set(vec![child]);
    tokio::time::sleep(secs(300)).await;
    assert_eq!(store.memory.snapshot().len(), 2, "the child has not begun: its parent's row is still needed");
    tenure.checkpoint(at(5)).await.unwrap();
    let before = Instant::now();
    until("the parent's row is removed", || store.memory.snapshot().len() == 1).await;
    assert!(before.elapsed() >= secs(60) && before.elapsed() < secs(130), "{:?}", before.elapsed());
    assert!(!tenure.ownership().is_lost());
    drop(coordinator);
}
