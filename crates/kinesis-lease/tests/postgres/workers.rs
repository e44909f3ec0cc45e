//! Workers and applications that share one table.

use kinesis_core::{ApplicationName, Checkpoint};
use kinesis_lease::{
    Coordinator, HeartbeatMode, Lease, LeaseConfig, LeaseKey, LeaseStore, LeaseWrite, Outcome, ops,
};
use std::sync::Arc;

use crate::common::{
    FakeDirectory, acquired, at, bad_rows, builder, key, looking_after, millis, stream, worker,
    workers_share_leases,
};
use crate::table::Table;

/// S-042, S-046: two workers share the leases of one table, and one takes over what the other releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn workers_share_the_leases_of_one_table() {
    let table = Table::new();
    workers_share_leases(|| table.store().into()).await;
}

/// S-043: the leases of a worker that vanished without a word are taken after the expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn leases_of_a_vanished_worker_are_taken() {
    let table = Table::new();
    let directory = FakeDirectory::open(3);
    let config = LeaseConfig::default()
        .expiry(millis(1_500))
        .heartbeat_interval(millis(200))
        .look_interval(millis(100));
    let start = |name| builder(table.store(), &directory, name).config(config.clone()).start();
    let (first, mut events) = start("a").await.unwrap();
    for number in 0..3 {
        acquired(&mut events).await.checkpoint(at(10 + number)).await.unwrap();
    }
    drop((first, events));
    let (_second, mut others) = start("b").await.unwrap();
    for _ in 0..3 {
        let tenure = acquired(&mut others).await;
        assert!(tenure.lease().checkpoint >= at(10));
        assert_eq!((tenure.lease().epoch, tenure.lease().owner_switches), (2, 1));
    }
}

/// One table serves many applications: the same shards are leased for each of them.
#[tokio::test]
#[ignore = "needs postgres"]
async fn one_table_serves_many_applications() {
    let table = Table::new();
    let store = table.ready().await;
    let directory = FakeDirectory::open(2);
    let mut running = Vec::new();
    for name in ["billing", "audit", "search"] {
        let application = ApplicationName::new(name).unwrap();
        let coordinator =
            Coordinator::builder(store.clone(), Arc::clone(&directory) as _, application, stream());
        let (coordinator, mut events) =
            coordinator.worker(worker("a")).heartbeat(HeartbeatMode::Inline).start().await.unwrap();
        for _ in 0..2 {
            acquired(&mut events).await;
        }
        running.push((coordinator, events));
    }
    let keys =
        "SELECT count(DISTINCT application) * 100 + count(*) FROM {s}.kinesis_leases WHERE owner = 'a'";
    assert_eq!(table.value(keys).await, 306);
}

/// S-037: stores that set up a fresh database at the same moment all find usable tables, and a deleted lease leaves no
/// checkpoint behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn many_set_up_a_fresh_schema_at_once() {
    let table = Table::new();
    let mut setups = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = table.store();
        setups.spawn(async move {
            store.setup().await.unwrap();
            store.apply(&[LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))]).await.remove(0)
        });
    }
    for made in setups.join_all().await {
        assert!(matches!(made, Ok(Outcome::Applied(_))), "{made:?}");
    }
    table.sql("DELETE FROM {s}.kinesis_leases WHERE shard = 'shardId-000000000003'").await;
    assert_eq!(table.value("SELECT count(*) FROM {s}.kinesis_leases_checkpoints").await, 7);
}

/// S-041: under concurrent writers of the same leases every guarded write is counted exactly once, and none waits for
/// another for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn compare_and_set_is_exact_among_concurrent_writers() {
    const WRITERS: u32 = 6;
    const ROUNDS: usize = 30;
    const LEASES: u32 = 20;
    let table = Table::new();
    let store = table.ready().await;
    let keys: Vec<LeaseKey> = (0..LEASES).map(key).collect();
    let creations: Vec<_> =
        keys.iter().map(|key| LeaseWrite::create(Lease::new(key.clone(), Checkpoint::Latest))).collect();
    store.apply(&creations).await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let (store, keys) = (table.store(), keys.clone());
        writers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(u64::from(number));
            let mut applied = 0;
            for _ in 0..ROUNDS {
                let mut rows: Vec<Lease> = store.get(&keys).await.unwrap().into_iter().flatten().collect();
                random.shuffle(&mut rows);
                let token = kinesis_lease::TenureToken::from_random(random.u128(..));
                let writes: Vec<_> = rows
                    .iter()
                    .map(|row| match row.token {
                        Some(token) if random.bool() => ops::renew(row, token),
                        Some(token) => ops::checkpoint(row, token, at(1)),
                        None => ops::take(row, &worker("a"), token),
                    })
                    .collect();
                for result in store.apply(&writes).await {
                    match result {
                        Ok(Outcome::Applied(_)) => applied += 1,
                        Ok(Outcome::Refused { current: Some(_) }) => {}
                        // A row that another writer has locked.
                        Err(error) if error.is_retryable() => {
                            assert!(!kinesis_core::error_chain(&error).contains("deadlock"), "{error:?}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            applied
        });
    }
    let applied: u64 = writers.join_all().await.into_iter().sum();
    let rows = store.get(&keys).await.unwrap();
    assert_eq!(rows.into_iter().flatten().map(|row| row.counter).sum::<u64>(), applied);
    assert!(applied >= ROUNDS as u64);
}

/// S-036, S-053: everything that an operator can do works on this store.
#[tokio::test]
#[ignore = "needs postgres"]
async fn leases_are_looked_after() {
    looking_after::admin_on(&Table::new(), &Table::new()).await;
}

/// S-117: garbage in a row costs that shard alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn the_other_shards_go_on_beside_an_unreadable_row() {
    bad_rows::other_shards_go_on(&Table::new()).await;
}
