//! Settings, databases, tables and rows that cannot be used: each is named.

use kinesis_core::Checkpoint;
use kinesis_lease::{
    Change, FieldWrite, Guard, Lease, LeaseStore, LeaseWrite, Outcome, PostgresStore, StoreError, ops,
};
use sqlx::postgres::PgPoolOptions;

use crate::common::{FakeDirectory, builder, key, millis};
use crate::table::Table;

fn problem(error: StoreError) -> String {
    assert!(!error.is_retryable(), "{error:?}");
    match error {
        StoreError::Misconfigured { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

fn create(number: u32) -> LeaseWrite {
    LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))
}

/// S-117: names are identifiers, times and counts have limits; the error names the setting.
#[tokio::test]
async fn settings_that_cannot_be_used_are_named() {
    let url = "postgres://nobody@127.0.0.1:1/none";
    for name in ["", "1st", "a b", "a\"; DROP TABLE x; --", "pg_leases", "ü", &"x".repeat(52)] {
        let error = PostgresStore::builder().table(name).connect(url).unwrap_err();
        assert!(problem(error).contains("invalid table name"));
    }
    let error = PostgresStore::builder().schema("a.b").connect(url).unwrap_err();
    assert!(problem(error).contains("invalid schema name"));
    for timeout in [millis(0), millis(3_600_001)] {
        let error = PostgresStore::builder().lock_timeout(timeout).connect(url).unwrap_err();
        assert!(problem(error).contains("lock_timeout"));
    }
    let error = PostgresStore::builder().max_connections(0).connect(url).unwrap_err();
    assert!(problem(error).contains("max_connections"));
    for not_a_url in ["", "nonsense", "https://example.org"] {
        let error = PostgresStore::connect(not_a_url).unwrap_err();
        assert!(problem(error).contains("URL"));
        let error = PostgresStore::builder().hint_url(not_a_url).connect(url).unwrap_err();
        assert!(problem(error).contains("hint_url"));
    }
    // What is not there yet may come.
    assert!(PostgresStore::connect(url).unwrap().setup().await.unwrap_err().is_retryable());
}

/// Neither an error nor the debug output of a store has the password.
#[tokio::test]
async fn a_password_is_never_shown() {
    let url = "postgres://user:s3cret@127.0.0.1:1/none";
    let builder = PostgresStore::builder().hint_url(url);
    let store = builder.clone().connect(url).unwrap();
    let error = store.setup().await.unwrap_err();
    let shown = format!("{builder:?} {store:?} {error:?} {}", kinesis_core::error_chain(&error));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn a_database_that_does_not_exist_is_named_as_such() {
    let table = Table::new();
    let store = table.builder().options(table.options.clone().database("no_such_thing")).unwrap();
    assert_eq!(problem(store.setup().await.unwrap_err()), "the database does not exist");
    let error = builder(store, &FakeDirectory::open(1), "a").start().await.unwrap_err();
    assert_eq!(error.to_string(), "setup of the lease store failed");
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn a_role_that_does_not_exist_is_refused() {
    let table = Table::new();
    let store = table.builder().options(table.options.clone().username("no_such_role")).unwrap();
    assert!(problem(store.setup().await.unwrap_err()).contains("user name or the password"));
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn tables_of_somebody_else_or_another_version_are_refused() {
    let table = Table::new();
    table.sql("CREATE SCHEMA {s}; CREATE TABLE {s}.kinesis_leases (id integer)").await;
    let text = problem(table.store().setup().await.unwrap_err());
    assert!(text.contains(&table.schema) && text.contains("not made by this library"), "{text}");

    let table = Table::new();
    let store = table.ready().await;
    table.sql("ALTER TABLE {s}.kinesis_leases ALTER COLUMN owner TYPE varchar(10)").await;
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("has owner as character varying and not as text"), "{text}");
    table.sql("ALTER TABLE {s}.kinesis_leases_checkpoints DROP COLUMN epoch; ALTER TABLE {s}.kinesis_leases ALTER COLUMN owner TYPE text").await;
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("_checkpoints\" has no column epoch"), "{text}");
    let table = Table::new();
    let store = table.ready().await;
    table
        .sql(
            "ALTER TABLE {s}.kinesis_leases DROP CONSTRAINT kinesis_leases_pkey CASCADE;
             ALTER TABLE {s}.kinesis_leases ADD PRIMARY KEY (shard, stream)",
        )
        .await;
    let text = problem(store.setup().await.unwrap_err());
    assert!(
        text.contains("kinesis_leases\" has (shard, stream) as its key and not (application, stream, shard)"),
        "{text}"
    );
    let error = store.apply(&[create(0)]).await.remove(0).unwrap_err();
    assert!(problem(error).contains("does not have the key that is expected"));
    table.sql("UPDATE {s}.kinesis_leases_schema SET version = 99").await;
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("version 99") && text.contains("up to 1"), "{text}");
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn a_table_without_its_key_is_a_clear_error_and_not_a_panic() {
    let table = Table::new();
    let store = table.ready().await;
    table.sql("ALTER TABLE {s}.kinesis_leases DROP COLUMN shard CASCADE").await;
    assert!(problem(store.get(&[key(0)]).await.unwrap_err()).contains("does not have the columns"));
    let error = store.apply(&[create(0), create(1)]).await.remove(1).unwrap_err();
    assert!(problem(error).contains("does not have the columns"));
}

#[tokio::test]
#[ignore = "needs postgres"]
async fn a_missing_table_is_a_clear_error_and_not_a_panic() {
    let store = Table::new().store();
    assert!(problem(store.get(&[key(0)]).await.unwrap_err()).contains("does not exist"));
    let error = store.apply(&[create(0)]).await.remove(0).unwrap_err();
    assert!(problem(error).contains("does not exist"));
}

/// A worker's role needs no right to make tables, once somebody else has made them; without any right it is told so.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_role_needs_rights_on_the_tables_alone() {
    let table = Table::new();
    let role = format!("role_{}", table.schema);
    table.sql(&format!("CREATE ROLE {role} LOGIN; CREATE SCHEMA {{s}}")).await;
    let store = table.builder().options(table.options.clone().username(&role)).unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert!(text.contains("no permission") && text.contains(&table.schema), "{text}");
    table.ready().await;
    table
        .sql(&format!(
            "GRANT USAGE ON SCHEMA {{s}} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {{s}} TO {role}"
        ))
        .await;
    store.setup().await.unwrap();
    let error = store.apply(&[create(0)]).await.remove(0).unwrap_err();
    assert!(problem(error).contains("no permission"));
    table.sql(&format!("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{s}} TO {role}")).await;
    store.setup().await.unwrap();
    assert!(matches!(store.apply(&[create(0)]).await.remove(0), Ok(Outcome::Applied(_))));
    table.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Garbage in one row is an error of that lease; the others are read and written as if it were not there.
#[tokio::test]
#[ignore = "needs postgres"]
async fn garbage_in_a_row_is_an_error_of_that_row() {
    let table = Table::new();
    let store = table.ready().await;
    let creations: Vec<_> = (0..3).map(create).collect();
    assert!(store.apply(&creations).await.iter().all(Result::is_ok));
    let spoil = "UPDATE {s}.kinesis_leases SET @ WHERE shard = 'shardId-000000000001'";
    let whole = "counter = 5, epoch = 0, token = NULL, cool_down_ms = NULL";
    for garbage in ["counter = -5", "counter = 9223372036854775807", "token = 'what?'", "cool_down_ms = -1"] {
        table.sql(&spoil.replace('@', whole)).await;
        table.sql(&spoil.replace('@', garbage)).await;
        let before = store.get(&[key(0), key(2)]).await.unwrap();
        let add = |number| {
            let fields = vec![FieldWrite::AddCounter(1)];
            LeaseWrite::new(key(number), Guard::Exists, Change::Update(fields))
        };
        let results = store.apply(&[add(0), add(1), add(2)]).await;
        let corrupt = results[1].as_ref().unwrap_err();
        assert!(
            matches!(corrupt, StoreError::Corrupt { key: of, .. } if **of == key(1)),
            "{garbage}: {corrupt:?}"
        );
        for (place, before) in [(0, &before[0]), (2, &before[1])] {
            let Ok(Outcome::Applied(row)) = &results[place] else { panic!("{garbage}") };
            assert_eq!(row.counter, before.as_ref().unwrap().counter + 1);
        }
    }
    // A lease whose checkpoint is gone.
    table.sql(&spoil.replace('@', whole)).await;
    table.sql("DELETE FROM {s}.kinesis_leases_checkpoints WHERE shard = 'shardId-000000000001'").await;
    let rows = store.get(&[key(0), key(1), key(2)]).await;
    assert!(matches!(rows, Err(StoreError::Corrupt { .. })));
    let lease = Lease::new(key(1), Checkpoint::Latest);
    let mut lease_five = lease.clone();
    lease_five.counter = 5;
    let take =
        ops::take(&lease_five, &crate::common::worker("a"), kinesis_lease::TenureToken::from_random(1));
    assert!(matches!(store.apply(&[take]).await.remove(0), Err(StoreError::Corrupt { .. })));
}

/// S-052: the store is built from a pool that the program has anyway, and a table's name.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_store_is_made_of_a_pool_and_a_name() {
    let table = Table::new();
    table.sql("CREATE SCHEMA {s}").await;
    let pool = PgPoolOptions::new().max_connections(2).connect_with(table.options.clone()).await.unwrap();
    let store = PostgresStore::builder().schema(&table.schema).table("my_leases").pool(pool.clone()).unwrap();
    store.setup().await.unwrap();
    assert!(matches!(store.apply(&[create(0)]).await.remove(0), Ok(Outcome::Applied(_))));
    let other = table.ready().await;
    assert_eq!(other.get(&[key(0)]).await.unwrap(), [None], "two tables of one schema are apart");
    let name = format!("unused_{:08x}", fastrand::u32(..));
    let public = PostgresStore::with_pool(pool, &name).unwrap();
    assert!(public.get(&[key(0)]).await.is_err(), "nothing is made without setup");
}
