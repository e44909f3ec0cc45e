//! A server that asks for passwords.

use std::str::FromStr as _;

use kinesis_core::Checkpoint;
use kinesis_lease::{HeartbeatMode, Lease, LeaseStore, LeaseWrite, PostgresStore, StoreError};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::{Instant, timeout};

use crate::common::{FakeDirectory, builder, key, secs};
use crate::server::Server;
use crate::table::Table;

/// S-117: a wrong password is one clear error of this store, at once and not retried, and neither it nor the store
/// shows a password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn a_wrong_password_is_a_clear_error_and_not_retried() {
    let server = Server::start().await;
    let owner = PgConnectOptions::from_str(&server.url()).unwrap();
    let table = Table::on(owner.clone());
    let right = table.ready().await;
    table
        .sql(
            "CREATE ROLE locked LOGIN PASSWORD 'right-one'; GRANT USAGE ON SCHEMA {s} TO locked;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO locked",
        )
        .await;
    server.ask_for_the_password_of("locked");
    let pool = PgPoolOptions::new().max_connections(1).connect_with(owner).await.unwrap();
    sqlx::query("SELECT pg_reload_conf()").execute(&pool).await.unwrap();
    let with = |password: &str| {
        let options = table.options.clone().username("locked").password(password);
        table.builder().options(options).unwrap()
    };
    // The server reads its settings a moment later.
    let mut tries = 0;
    let error = loop {
        match with("wrong-one").setup().await {
            Err(error) => break error,
            Ok(()) if tries < 100 => tries += 1,
            Ok(()) => panic!("the server does not ask for a password"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(!error.is_retryable());
    let text = kinesis_core::error_chain(&error);
    assert!(text.contains("PostgreSQL refuses the user name or the password"), "{text}");
    let store = with("wrong-one");
    let shown = format!("{store:?} {error:?} {text}");
    assert!(!shown.contains("wrong-one") && !shown.contains("right-one"), "{shown}");

    for mode in [HeartbeatMode::Inline, HeartbeatMode::OwnThread] {
        let began = Instant::now();
        let starting = builder(with("wrong-one"), &FakeDirectory::open(1), "a").heartbeat(mode).start();
        let error = timeout(secs(20), starting).await.expect("no endless retry").unwrap_err();
        assert_eq!(error.to_string(), "setup of the lease store failed");
        assert!(!error.is_retryable());
        assert!(began.elapsed() < secs(10), "{:?}", began.elapsed());
    }
    // The right one works, and other stores of the process were not disturbed.
    with("right-one").setup().await.unwrap();
    let write = |number| LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest));
    with("right-one").apply(&[write(0)]).await.remove(0).unwrap();
    right.apply(&[write(1)]).await.remove(0).unwrap();

    // A password that is changed while the store is used.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(table.options.clone().username("locked").password("right-one"));
    let store: PostgresStore = table.builder().pool(pool.clone()).unwrap();
    store.get(&[key(0)]).await.unwrap();
    table.sql("ALTER ROLE locked PASSWORD 'new-one'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locked'").await;
    let mut last = None;
    for _ in 0..3 {
        last = store.get(&[key(0)]).await.err();
    }
    assert!(matches!(last, Some(StoreError::Misconfigured { .. })), "{last:?}");
}
