//! A fleet on a store that throttles for a while, in virtual time.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;

use common::*;
use kinesis_core::Checkpoint;
use kinesis_lease::{LeaseEvent, LeaseEvents, LeaseKey, Tenure};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const SHARDS: u32 = 30;
const WORKERS: [&str; 3] = ["a", "b", "c"];

/// The position of a shard is the time in seconds.
fn position(began: Instant) -> Checkpoint {
    at(began.elapsed().as_secs().into())
}

/// Stores a position of a lease each second.
async fn advance(tenure: Tenure, began: Instant) {
    while tenure.checkpoint(position(began)).await.is_ok() {
        tokio::time::sleep(secs(1)).await;
    }
}

/// Works on what it gets until it is asked for it, and writes down what it loses.
async fn work(mut events: LeaseEvents, began: Instant, lost: Log) {
    let mut held: BTreeMap<LeaseKey, (Tenure, JoinHandle<()>)> = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            LeaseEvent::Acquired(tenure) => {
                let advancing = tokio::spawn(advance(tenure.clone(), began));
                held.insert(tenure.key().clone(), (tenure, advancing));
            }
            LeaseEvent::HandOver { key, .. } => {
                let (tenure, advancing) = held.remove(&key).unwrap();
                advancing.abort();
                tenure.release(None).await.unwrap();
            }
            LeaseEvent::Lost { key, reason, .. } => lost.push(format!("{key}: {reason}")),
            _ => {}
        }
    }
}

/// Calls to the store, and the rows that they write, within 30 s.
async fn traffic(store: &FaultyStore) -> (usize, usize) {
    let before = store.log.entries().len();
    tokio::time::sleep(secs(30)).await;
    let calls = store.log.entries().split_off(before);
    let writes = calls.iter().filter_map(|call| call.strip_prefix("apply ")?.parse::<usize>().ok());
    (calls.len(), writes.sum())
}

/// F-15: while two of five calls are throttled for 30 s, three workers lose none of their 30 leases, nothing moves, no more
/// is tried than what was refused is tried again, and all positions go on.
#[tokio::test(start_paused = true)]
async fn a_throttled_fleet_keeps_its_leases_and_tries_little_more() {
    for seed in 0..5 {
        let (store, directory) = (FaultyStore::default(), FakeDirectory::open(SHARDS));
        let (began, lost) = (Instant::now(), Log::default());
        let mut coordinators = Vec::new();
        for name in WORKERS {
            let builder = builder(store.clone(), &directory, name).seed(seed);
            let (coordinator, events) = builder.start().await.unwrap();
            tokio::spawn(work(events, began, lost.clone()));
            coordinators.push(coordinator);
        }
        let owners = || {
            let rows = store.memory.snapshot().into_iter();
            rows.map(|row| (row.owner.unwrap(), row.token.is_some(), row.epoch)).collect::<Vec<_>>()
        };
        let share =
            |name: &str| owners().iter().filter(|(owner, held, _)| *held && *owner == worker(name)).count();
        until("each has its part", || WORKERS.iter().all(|name| share(name) == 10)).await;
        tokio::time::sleep(secs(10)).await;
        let (settled, calm) = (owners(), traffic(&store).await);

        let mut random = fastrand::Rng::with_seed(seed);
        let mut throttle = move || (random.u32(0..5) < 2).then_some(Fault::Throttled);
        store.on_read(throttle.clone());
        store.on_apply(move |_| throttle());
        let throttled = traffic(&store).await;
        store.heal();
        // A write takes 5 / 3 tries on average, and one that waits makes room for a later one. What is tried again goes in
        // calls of its own.
        assert!(throttled.1 * 3 <= calm.1 * 5, "seed {seed}: {calm:?} to {throttled:?}");
        assert!(throttled.0 <= calm.0 * 2, "seed {seed}: {calm:?} to {throttled:?}");
        assert_eq!(lost.entries(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(owners(), settled, "seed {seed}: nothing has moved");

        tokio::time::sleep(secs(2)).await;
        let least = at((began.elapsed().as_secs() - 2).into());
        assert!(store.memory.snapshot().iter().all(|row| row.checkpoint >= least), "seed {seed}");
        tokio::time::sleep(secs(60)).await;
        assert_eq!(
            (owners(), lost.entries()),
            (settled, vec![]),
            "seed {seed}: nor does anything move later"
        );
    }
}
