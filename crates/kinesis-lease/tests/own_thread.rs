//! The lease task on its own thread, on real time: results are asserted, never durations.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::*;
use kinesis_lease::{HeartbeatMode, LeaseConfig, LeaseStoreSource};

/// Five heartbeats fit into the time that a holder believes, so that a busy machine costs no lease.
fn config() -> LeaseConfig {
    LeaseConfig::default().expiry(millis(2_000)).heartbeat_interval(millis(300)).look_interval(millis(200))
}

/// Three leases survive when everything that runs tasks is held up by `block` for three expiries, while another worker
/// looks for something to take.
async fn no_lease_is_lost(block: impl AsyncFnOnce(Duration)) {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(3);
    let start = |name| {
        let builder = builder(store.clone(), &directory, name).config(config());
        builder.heartbeat(HeartbeatMode::OwnThread).start()
    };
    let (first, mut events) = start("a").await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(acquired(&mut events).await);
    }
    let before: Vec<u64> = (0..3).map(|number| store.row(number).counter).collect();
    let (second, _others) = start("b").await.unwrap();
    block(config().expiry * 3).await;
    assert!(held.iter().all(|tenure| !tenure.ownership().is_lost()));
    for tenure in &held {
        tenure.checkpoint(at(5)).await.unwrap();
    }
    for (number, counter) in before.into_iter().enumerate() {
        let row = store.row(number as u32);
        assert!(row.counter >= counter + 5, "{} to {}", counter, row.counter);
        assert_eq!(row.epoch, 1, "no change of owner");
    }
    assert!(first.shutdown(secs(10)).await.is_complete());
    second.shutdown(secs(10)).await;
}

/// S-047: a handler that blocks the runtime's only thread for three expiries loses no lease.
#[tokio::test(flavor = "current_thread")]
async fn a_handler_that_blocks_the_only_thread_loses_no_lease() {
    no_lease_is_lost(async |time| std::thread::sleep(time)).await;
}

/// S-047: nor do handlers that block both workers of a runtime at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_worker_of_the_runtime_lose_no_lease() {
    no_lease_is_lost(async |time| {
        // They meet, so that no worker is left to run anything else; the thread of the test is no worker.
        let meeting = Arc::new(Barrier::new(3));
        let handlers = [(); 2].map(|()| {
            let meeting = Arc::clone(&meeting);
            tokio::spawn(async move {
                meeting.wait();
                std::thread::sleep(time);
            })
        });
        meeting.wait();
        std::thread::sleep(time);
        for handler in handlers {
            handler.await.unwrap();
        }
    })
    .await;
}

/// S-004: the thread and its store are gone after a shutdown, and soon after a drop.
#[tokio::test(flavor = "current_thread")]
async fn the_thread_ends_with_its_coordinator() {
    let directory = FakeDirectory::open(1);
    let start = || async {
        let store = Arc::new(FaultyStore::default());
        let alive = Arc::downgrade(&store);
        let builder = builder(store, &directory, "a").heartbeat(HeartbeatMode::OwnThread);
        let (coordinator, events) = builder.start().await.unwrap();
        (coordinator, events, alive)
    };
    let (coordinator, _events, alive) = start().await;
    assert!(alive.upgrade().is_some());
    coordinator.shutdown(secs(10)).await;
    assert!(alive.upgrade().is_none());
    let (coordinator, _events, alive) = start().await;
    drop(coordinator);
    until("the thread is gone", || alive.upgrade().is_none()).await;
}

/// A factory is called once, on the lease thread.
#[tokio::test(flavor = "current_thread")]
async fn a_factory_opens_the_store_on_the_lease_thread() {
    let log = Log::default();
    let seen = log.clone();
    let source = LeaseStoreSource::factory(move || {
        seen.push(std::thread::current().name().unwrap_or_default());
        async { Ok(FaultyStore::default()) }
    });
    let directory = FakeDirectory::open(1);
    let builder = builder(source, &directory, "a").heartbeat(HeartbeatMode::OwnThread);
    let (coordinator, mut events) = builder.start().await.unwrap();
    acquired(&mut events).await;
    coordinator.shutdown(secs(10)).await;
    assert_eq!(log.entries(), ["kinesis-lease"]);
}
