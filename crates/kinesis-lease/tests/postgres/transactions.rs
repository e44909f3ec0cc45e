//! Checkpoints inside of users' transactions.

use std::time::{Duration, Instant};

use kinesis_core::Position;
use kinesis_core::lease::Fence;
use kinesis_lease::{
    CheckpointInError, Lease, LeaseConfig, LeaseStore, LeaseStoreExt as _, PostgresStore, StoreError,
    TenureToken, ops,
};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Postgres, Transaction};

use crate::common::{FakeDirectory, acquired, at, builder, key, millis, worker};
use crate::table::Table;

fn position(sequence: u128) -> Position {
    Position::new(sequence.into(), 0)
}

fn token(number: u128) -> TenureToken {
    TenureToken::from_random(number)
}

/// A lease held by worker `a`.
async fn held(store: &PostgresStore, number: u32) -> Lease {
    let lease = Lease::new(key(number), kinesis_core::Checkpoint::TrimHorizon);
    let row = store.create_if_not_exists(lease).await.unwrap().unwrap();
    store.take(&row, &worker("a"), token(1)).await.unwrap().unwrap()
}

/// A place for results, and a transaction that has written one there.
struct Results<'t> {
    table: &'t Table,
    pool: PgPool,
}

impl<'t> Results<'t> {
    async fn new(table: &'t Table) -> Self {
        table.sql("CREATE TABLE {s}.results (n bigint PRIMARY KEY)").await;
        Self { table, pool: table.pool() }
    }

    async fn write(&self, number: i64) -> Transaction<'static, Postgres> {
        let mut transaction = self.pool.begin().await.unwrap();
        let insert = format!("INSERT INTO {}.results VALUES ({number})", self.table.schema);
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *transaction).await.unwrap();
        transaction
    }

    async fn count(&self) -> i64 {
        self.table.value("SELECT count(*) FROM {s}.results").await
    }
}

async fn stored(store: &PostgresStore, number: u32) -> String {
    store.get(&[key(number)]).await.unwrap().remove(0).unwrap().checkpoint.to_string()
}

/// The checkpoint and the results are kept together or not at all, and the position moves forward only.
#[tokio::test]
#[ignore = "needs postgres"]
async fn results_and_position_are_kept_together() {
    let table = Table::new();
    let store = table.ready().await;
    let results = Results::new(&table).await;
    let fence = held(&store, 0).await.fence();

    let mut rolled_back = results.write(1).await;
    store.checkpoint_in(&mut rolled_back, &fence, &position(9)).await.unwrap();
    rolled_back.rollback().await.unwrap();
    assert_eq!((stored(&store, 0).await.as_str(), results.count().await), ("TRIM_HORIZON", 0));

    let mut kept = results.write(1).await;
    store.checkpoint_in(&mut kept, &fence, &position(9)).await.unwrap();
    kept.commit().await.unwrap();
    assert_eq!((stored(&store, 0).await.as_str(), results.count().await), ("9", 1));

    // A hundred is more than nine, though not as text.
    let mut next = results.write(2).await;
    store.checkpoint_in(&mut next, &fence, &position(100)).await.unwrap();
    next.commit().await.unwrap();
    for old in [position(100), position(99), position(9)] {
        let mut again = results.write(3).await;
        let refused = store.checkpoint_in(&mut again, &fence, &old).await.unwrap_err();
        assert!(matches!(&refused, CheckpointInError::AlreadyStored { position, .. } if *position == old));
        // Whoever overlooks the error keeps nothing nevertheless.
        drop(again.commit().await);
    }
    let inside = Position::new(100_u128.into(), 1);
    let mut part = results.write(4).await;
    store.checkpoint_in(&mut part, &fence, &inside).await.unwrap();
    part.commit().await.unwrap();
    assert_eq!(results.count().await, 3);
    let row = store.get(&[key(0)]).await.unwrap().remove(0).unwrap();
    assert_eq!(row.checkpoint.position(), Some(&inside));
}

/// A worker that lost the lease is told so, and none of its effects remain, even when it commits.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_worker_that_lost_the_lease_leaves_no_effect() {
    let table = Table::new();
    let store = table.ready().await;
    let results = Results::new(&table).await;
    let row = held(&store, 0).await;
    let old = row.fence();

    // Its results are written, its position is not when the lease is taken.
    let mut stalled = results.write(1).await;
    let taken = store.steal(&row, &worker("b"), token(2)).await.unwrap().unwrap();
    let lost = store.checkpoint_in(&mut stalled, &old, &position(5)).await.unwrap_err();
    assert!(matches!(lost, CheckpointInError::LeaseLost), "{lost:?}");
    assert!(!lost.is_retryable());
    drop(stalled.commit().await);
    assert_eq!((stored(&store, 0).await.as_str(), results.count().await), ("TRIM_HORIZON", 0));

    let mut new = results.write(1).await;
    store.checkpoint_in(&mut new, &taken.fence(), &position(5)).await.unwrap();
    new.commit().await.unwrap();
    assert_eq!((stored(&store, 0).await.as_str(), results.count().await), ("5", 1));

    // Nor after the end of the shard, nor on a lease that nobody knows.
    let row = store.get(&[key(0)]).await.unwrap().remove(0).unwrap();
    store.apply(&[ops::end(&row, token(2), Vec::new())]).await.remove(0).unwrap();
    for fence in [taken.fence(), Fence::new(key(7), 1)] {
        let mut late = results.write(2).await;
        let lost = store.checkpoint_in(&mut late, &fence, &position(6)).await.unwrap_err();
        assert!(matches!(lost, CheckpointInError::LeaseLost), "{lost:?}");
    }
    assert_eq!((stored(&store, 0).await.as_str(), results.count().await), ("SHARD_END", 1));
}

/// A taker waits for an open transaction that has moved the checkpoint, and then begins where that ended.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_taker_begins_where_the_open_transaction_ended() {
    let table = Table::new();
    let store = table.builder().lock_timeout(Duration::from_secs(60)).options(table.options.clone()).unwrap();
    store.setup().await.unwrap();
    let results = Results::new(&table).await;
    let row = held(&store, 0).await;
    let mut open = results.write(1).await;
    store.checkpoint_in(&mut open, &row.fence(), &position(5)).await.unwrap();
    let taking = tokio::spawn({
        let (store, row) = (store.clone(), row.clone());
        async move { store.steal(&row, &worker("b"), token(2)).await.unwrap().unwrap() }
    });
    let waiting =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity
                   WHERE query LIKE '%{s}%')";
    while table.value(waiting).await == 0 {
        tokio::time::sleep(millis(10)).await;
    }
    // A late heartbeat is not held up by the taker that waits.
    open.commit().await.unwrap();
    let taken = taking.await.unwrap();
    assert_eq!((taken.checkpoint.clone(), taken.epoch), (at(5), row.epoch + 1));
}

/// A take waits for an open transaction at most `lock_timeout`, holds up neither the heartbeat of the owner nor the
/// other takes of its call, and fails with an error that passes.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_take_waits_no_longer_than_it_should() {
    let table = Table::new();
    let store = table.builder().lock_timeout(Duration::from_secs(1)).options(table.options.clone()).unwrap();
    store.setup().await.unwrap();
    let results = Results::new(&table).await;
    let mut rows = Vec::new();
    for number in 0..6 {
        rows.push(held(&store, number).await);
    }
    // All but the last one are in transactions that stay open.
    let mut open = Vec::new();
    for row in &rows[..5] {
        let mut transaction = table.pool().begin().await.unwrap();
        store.checkpoint_in(&mut transaction, &row.fence(), &position(5)).await.unwrap();
        open.push(transaction);
    }
    let takes: Vec<_> = rows.iter().map(|row| ops::take(row, &worker("b"), token(2))).collect();
    let before = Instant::now();
    let (taken, renewed) = tokio::join!(store.apply(&takes), store.renew(&rows[0], rows[0].token.unwrap()));
    let waited = before.elapsed();
    assert!(renewed.unwrap().is_some(), "the owner renews meanwhile");
    for result in &taken[..5] {
        let error = result.as_ref().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    assert!(matches!(&taken[5], Ok(kinesis_lease::Outcome::Applied(_))), "a free lease is taken");
    // The least is what it must wait; the most is less than five waits in a row, and than what ends a statement.
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(4), "{waited:?}");
    drop(open);
    assert_eq!(results.count().await, 0);
}

/// A transaction that stays open for three lease durations delays the renewal of no lease.
#[tokio::test]
#[ignore = "needs postgres"]
async fn an_open_transaction_delays_no_renewal() {
    const LEASES: u32 = 40;
    let table = Table::new();
    let store = table.ready().await;
    let directory = FakeDirectory::open(LEASES);
    let config = LeaseConfig::default()
        .expiry(millis(2_000))
        .heartbeat_interval(millis(200))
        .look_interval(millis(500));
    let start = |name| builder(store.clone(), &directory, name).config(config.clone()).start();
    let (_coordinator, mut events) = start("a").await.unwrap();
    let mut tenures = Vec::new();
    for _ in 0..LEASES {
        tenures.push(acquired(&mut events).await);
    }
    let mut open = table.pool().begin().await.unwrap();
    for tenure in tenures.iter().take(3) {
        store.checkpoint_in(&mut open, &tenure.fence(), &position(5)).await.unwrap();
    }
    // Another worker watches for something to take.
    let opened = Instant::now();
    let (_watcher, mut others) = start("b").await.unwrap();
    while opened.elapsed() < config.expiry * 3 {
        let before = Instant::now();
        let least = table.value("SELECT min(counter) FROM {s}.kinesis_leases WHERE owner = 'a'").await;
        let renewed =
            format!("SELECT count(*) FROM {{s}}.kinesis_leases WHERE owner = 'a' AND counter <= {least}");
        while table.value(&renewed).await > 0 {
            assert!(before.elapsed() < config.expiry, "a renewal is held up");
            tokio::time::sleep(millis(20)).await;
        }
    }
    assert!(tenures.iter().all(|tenure| !tenure.ownership().is_lost()));
    assert_eq!(table.value("SELECT max(epoch) FROM {s}.kinesis_leases").await, 1);
    open.commit().await.unwrap();
    drop(others.next());
    let row = store.get(&[tenures[0].key().clone()]).await.unwrap().remove(0).unwrap();
    assert_eq!(row.checkpoint, at(5));
}
