//! The SQLite store: the conformance suite, what it says of unusable files, and workers on one file.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use common::*;
use kinesis_core::Checkpoint;
use kinesis_core::lease::conformance::{ForeignWriter, StoreFactory};
use kinesis_lease::{
    Change, Durability, FieldWrite, Guard, Lease, LeaseKey, LeaseStore, LeaseStoreSource, LeaseWrite,
    Outcome, SqliteStore, StoreError, ops,
};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tempfile::TempDir;

#[derive(Debug)]
struct File {
    folder: TempDir,
}

impl File {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }
}

async fn plain_pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(secs(10));
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

#[async_trait]
impl StoreFactory for File {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(SqliteStore::open(self.path()).await.unwrap())
    }

    fn foreign_writer(&self) -> Option<Arc<dyn ForeignWriter>> {
        Some(Arc::new(Foreign { path: self.path() }))
    }
}

/// Writes past the store.
#[derive(Debug)]
struct Foreign {
    path: PathBuf,
}

#[async_trait]
impl ForeignWriter for Foreign {
    async fn set_unknown(&self, key: &LeaseKey, value: &str) {
        let pool = plain_pool(&self.path).await;
        sqlx::query("ALTER TABLE kinesis_leases ADD COLUMN of_another TEXT").execute(&pool).await.unwrap();
        let set = sqlx::query("UPDATE kinesis_leases SET of_another = ? WHERE shard = ?");
        set.bind(value).bind(key.shard().as_str()).execute(&pool).await.unwrap();
    }

    async fn get_unknown(&self, key: &LeaseKey) -> Option<String> {
        let pool = plain_pool(&self.path).await;
        let get = sqlx::query_scalar("SELECT of_another FROM kinesis_leases WHERE shard = ?");
        get.bind(key.shard().as_str()).fetch_one(&pool).await.unwrap()
    }

    async fn corrupt(&self, key: &LeaseKey) {
        let pool = plain_pool(&self.path).await;
        let set = sqlx::query("UPDATE kinesis_leases SET checkpoint = 'garbage' WHERE shard = ?");
        set.bind(key.shard().as_str()).execute(&pool).await.unwrap();
    }
}

/// S-036 to S-039, S-041, S-055, S-061, S-062: the contract on the SQLite store.
mod suite {
    use super::*;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        File::new(), with foreign writer
    }
}

fn problem(error: StoreError) -> String {
    match error {
        StoreError::Misconfigured { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let file = File::new();
    let path = file.folder.path().join("nowhere/leases.db");
    let text = problem(SqliteStore::open(&path).await.unwrap_err());
    assert!(text.contains("nowhere") && text.contains("does not exist"), "{text}");
}

#[tokio::test]
async fn a_folder_is_not_a_lease_file() {
    let file = File::new();
    let text = problem(SqliteStore::open(file.folder.path()).await.unwrap_err());
    assert!(text.contains("is a folder"), "{text}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let file = File::new();
    let content = "this is not a database, but it is long enough to be one\n".repeat(100);
    std::fs::write(file.path(), &content).unwrap();
    let text = problem(SqliteStore::open(file.path()).await.unwrap_err());
    assert!(text.contains("leases.db is not an SQLite database"), "{text}");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), content);
}

#[tokio::test]
async fn a_file_that_is_not_writable_is_named_as_such() {
    let file = File::new();
    SqliteStore::open(file.path()).await.unwrap().setup().await.unwrap();
    let options = SqliteConnectOptions::new().filename(file.path()).read_only(true);
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let store = SqliteStore::with_pool(pool, SqliteStore::DEFAULT_TABLE).unwrap();
    for error in [
        store.setup().await.unwrap_err(),
        store
            .apply(&[LeaseWrite::create(Lease::new(key(0), Checkpoint::Latest))])
            .await
            .remove(0)
            .unwrap_err(),
    ] {
        assert!(!error.is_retryable());
        let text = problem(error);
        assert!(text.contains("is not writable"), "{text}");
    }
}

#[tokio::test]
async fn a_table_of_somebody_else_is_refused() {
    let file = File::new();
    let pool = plain_pool(&{
        std::fs::File::create(file.path()).unwrap();
        file.path()
    })
    .await;
    sqlx::query("CREATE TABLE kinesis_leases (id INTEGER)").execute(&pool).await.unwrap();
    let store = SqliteStore::open(file.path()).await.unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("kinesis_leases") && text.contains("not made by this library"), "{text}");
}

#[tokio::test]
async fn a_table_of_another_version_or_without_a_column_is_refused() {
    let file = File::new();
    let store = SqliteStore::open(file.path()).await.unwrap();
    store.setup().await.unwrap();
    let pool = plain_pool(&file.path()).await;
    sqlx::query("ALTER TABLE kinesis_leases DROP COLUMN epoch").execute(&pool).await.unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("has no column epoch"), "{text}");
    sqlx::query("UPDATE kinesis_leases_schema SET version = 2").execute(&pool).await.unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("version 2") && text.contains("version 1"), "{text}");
}

/// Without its key a table would have two rows of one lease.
#[tokio::test]
async fn a_table_with_another_key_is_refused() {
    let file = File::new();
    let store = SqliteStore::open(file.path()).await.unwrap();
    store.setup().await.unwrap();
    let pool = plain_pool(&file.path()).await;
    let definition: String =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE name = 'kinesis_leases'")
            .fetch_one(&pool)
            .await
            .unwrap();
    let other = definition.replace("PRIMARY KEY (application, stream, shard)", "PRIMARY KEY (shard)");
    assert_ne!(definition, other);
    sqlx::query("DROP TABLE kinesis_leases").execute(&pool).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(other)).execute(&pool).await.unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("has (shard) as its key and not (application, stream, shard)"), "{text}");
}

/// A full disk is an error that may pass: what is stored can be read, and writes work again when there is room.
#[tokio::test]
async fn a_full_file_is_an_error_that_passes() {
    let file = File::new();
    let options = SqliteConnectOptions::new()
        .filename(file.path())
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .busy_timeout(millis(100));
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let store = SqliteStore::with_pool(pool.clone(), SqliteStore::DEFAULT_TABLE).unwrap();
    store.setup().await.unwrap();
    let create = |number| LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest));
    store.apply(&[create(0)]).await.remove(0).unwrap();
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&pool).await.unwrap();
    let limit = |pages: i64| sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}")));
    limit(pages).fetch_one(&pool).await.unwrap();
    let writes: Vec<LeaseWrite> = (1..200).map(create).collect();
    let results = store.apply(&writes).await;
    let error = results.iter().find_map(|result| result.as_ref().err()).expect("there is no room for all");
    assert!(error.is_retryable(), "{error:?}");
    let text = kinesis_core::error_chain(error);
    assert!(text.contains("database or disk is full"), "{text}");
    assert!(store.get(&[key(0)]).await.unwrap().remove(0).is_some());
    let mut failures = Vec::new();
    for _ in 0..20 {
        limit(10_000).fetch_one(&pool).await.unwrap();
        let results = store.apply(&writes).await;
        match results.iter().find_map(|result| result.as_ref().err()) {
            None => break,
            Some(error) => failures.push(kinesis_core::error_chain(error)),
        }
    }
    assert!(failures.len() <= 2, "{failures:?}");
    assert_eq!(store.get(&[key(199)]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_table_name_is_an_identifier() {
    let file = File::new();
    for name in ["", "1st", "a b", "a\"; DROP TABLE x; --", "sqlite_leases", "ü", &"x".repeat(64)] {
        let error = SqliteStore::builder(file.path()).table(name).open().await.unwrap_err();
        assert!(problem(error).contains("invalid table name"));
    }
    let store = SqliteStore::builder(file.path()).table("my_leases").open().await.unwrap();
    store.setup().await.unwrap();
    store.apply(&[LeaseWrite::create(Lease::new(key(0), Checkpoint::Latest))]).await.remove(0).unwrap();
    assert_eq!(store.get(&[key(0)]).await.unwrap().len(), 1);
    let other = SqliteStore::open(file.path()).await.unwrap();
    other.setup().await.unwrap();
    assert_eq!(other.get(&[key(0)]).await.unwrap(), [None], "two tables of one file are apart");
}

#[tokio::test]
async fn a_missing_table_is_a_clear_error_and_not_a_panic() {
    let file = File::new();
    let store = SqliteStore::open(file.path()).await.unwrap();
    let text = problem(store.get(&[key(0)]).await.unwrap_err());
    assert!(text.contains("does not have the lease table"), "{text}");
}

/// S-037: stores that open a fresh file at the same moment all find a usable table.
#[tokio::test]
async fn many_open_and_set_up_a_fresh_file_at_once() {
    let file = File::new();
    let openings = (0..8).map(|number| {
        let path = file.path();
        tokio::spawn(async move {
            let store = SqliteStore::open(path).await.unwrap();
            store.setup().await.unwrap();
            store.apply(&[LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))]).await.remove(0)
        })
    });
    for opening in openings.collect::<Vec<_>>() {
        assert!(matches!(opening.await.unwrap().unwrap(), Outcome::Applied(_)));
    }
}

/// S-041, F-10: under concurrent writers every guarded write is counted exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compare_and_set_is_exact_among_concurrent_writers() {
    const WRITERS: usize = 4;
    const WRITES: usize = 50;
    let file = File::new();
    let store = SqliteStore::open(file.path()).await.unwrap();
    store.setup().await.unwrap();
    store.apply(&[LeaseWrite::create(Lease::new(key(0), Checkpoint::Latest))]).await.remove(0).unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let path = file.path();
            tokio::spawn(async move {
                let store = SqliteStore::open(path).await.unwrap();
                let mut applied = 0;
                let mut counter = 0;
                while applied < WRITES {
                    let add = Change::Update(vec![FieldWrite::AddCounter(1)]);
                    let write = LeaseWrite::new(key(0), Guard::Counter(counter), add);
                    match store.apply(&[write]).await.remove(0).unwrap() {
                        Outcome::Applied(row) => {
                            applied += 1;
                            counter = row.counter;
                        }
                        Outcome::Refused { current } => counter = current.unwrap().counter,
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let row = store.get(&[key(0)]).await.unwrap().remove(0).unwrap();
    assert_eq!(row.counter, (WRITERS * WRITES) as u64);
}

/// A statement of another process that holds the lock is waited for, and then is an error that passes.
#[tokio::test]
async fn a_locked_file_is_an_error_that_passes() {
    let file = File::new();
    let store = SqliteStore::builder(file.path()).busy_timeout(millis(50)).open().await.unwrap();
    store.setup().await.unwrap();
    let pool = plain_pool(&file.path()).await;
    let lock = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let write = LeaseWrite::create(Lease::new(key(0), Checkpoint::Latest));
    let error = store.apply(std::slice::from_ref(&write)).await.remove(0).unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    drop(lock);
    // The rollback of a dropped transaction is sent to its connection; the next statement there comes after it.
    sqlx::query("SELECT 1").execute(&pool).await.unwrap();
    assert!(matches!(store.apply(&[write]).await.remove(0), Ok(Outcome::Applied(_))));
}

/// S-055: checkpoints are durable: a store that is opened later, with another durability, reads them.
#[tokio::test]
async fn a_checkpoint_outlives_its_store() {
    let file = File::new();
    {
        let store = SqliteStore::open(file.path()).await.unwrap();
        store.setup().await.unwrap();
        let mut lease = Lease::new(key(0), Checkpoint::Latest);
        lease.token = Some(kinesis_lease::TenureToken::from_random(3));
        store.apply(&[LeaseWrite::create(lease.clone())]).await.remove(0).unwrap();
        let write = ops::checkpoint(&lease, lease.token.unwrap(), at(99));
        store.apply(&[write]).await.remove(0).unwrap();
    }
    let again = SqliteStore::builder(file.path()).durability(Durability::PowerLoss).open().await.unwrap();
    again.setup().await.unwrap();
    let row = again.get(&[key(0)]).await.unwrap().remove(0).unwrap();
    assert_eq!((row.checkpoint, row.counter), (at(99), 1));
}

/// S-042, S-046: two workers of one file share its leases, and one takes over what the other releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_the_leases_of_one_file() {
    let file = File::new();
    workers_share_leases(|| {
        let path = file.path();
        LeaseStoreSource::factory(move || SqliteStore::open(path.clone()))
    })
    .await;
}

#[tokio::test]
async fn an_unusable_file_fails_the_start_with_the_call_that_failed() {
    let file = File::new();
    std::fs::write(file.path(), "x".repeat(5_000)).unwrap();
    let path = file.path();
    let source = LeaseStoreSource::factory(move || SqliteStore::open(path.clone()));
    let error = builder(source, &FakeDirectory::open(1), "a").start().await.unwrap_err();
    assert_eq!(error.to_string(), "open of the lease store failed");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("is not an SQLite database"), "{source}");
    assert!(!error.is_retryable());
}

/// S-047: also a store that was opened on the caller's runtime is not held up when that runtime is blocked.
#[tokio::test(flavor = "current_thread")]
async fn a_blocked_runtime_holds_up_no_heartbeat() {
    let file = File::new();
    a_blocked_runtime_keeps_its_leases(SqliteStore::open(file.path()).await.unwrap()).await;
}

/// S-026: a thousand idle leases cost one write each heartbeat interval where the whole worker has one heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_leases_cost_one_write_each_interval() {
    let file = File::new();
    one_write_keeps_all_leases(SqliteStore::open(file.path()).await.unwrap(), 1_000).await;
}

/// S-036, S-053: everything that an operator can do works on this store.
#[tokio::test]
async fn leases_are_looked_after() {
    looking_after::admin_on(&File::new(), &File::new()).await;
}

/// S-117: garbage in a row costs that shard alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_shards_go_on_beside_an_unreadable_row() {
    bad_rows::other_shards_go_on(&File::new()).await;
}
