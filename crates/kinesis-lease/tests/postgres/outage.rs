//! Servers that restart, take no writes for a while, or are replaced by their stand-by.

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use kinesis_core::Checkpoint;
use kinesis_lease::{
    Coordinator, HeartbeatMode, Lease, LeaseConfig, LeaseError, LeaseEvents, LeaseStore, LeaseWrite, Outcome,
    PostgresStore, StoreError, Tenure,
};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::common::{
    FakeDirectory, a_blocked_runtime_keeps_its_leases, acquired, at, builder, key, millis, secs,
};
use crate::server::{Server, url};
use crate::table::Table;

fn create(number: u32) -> LeaseWrite {
    LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))
}

async fn sql(url: &str, statements: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    // Each by itself: some must not be in a transaction.
    for statement in statements.split(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    }
}

/// Writes until that works; every failure before is one that passes.
async fn until_written(store: &PostgresStore, number: u32) {
    for _ in 0..600 {
        match store.apply(&[create(number)]).await.remove(0) {
            Ok(Outcome::Applied(_)) => return,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
        tokio::time::sleep(millis(50)).await;
    }
    panic!("the store did not come back");
}

/// A worker that holds two leases.
struct Holder {
    coordinator: Coordinator,
    events: LeaseEvents,
    held: [Tenure; 2],
}

impl Holder {
    async fn start(store: PostgresStore, directory: Arc<FakeDirectory>, name: String) -> Self {
        let config = LeaseConfig::default()
            .expiry(secs(60))
            .heartbeat_interval(millis(300))
            .look_interval(millis(300))
            .store_timeout(secs(2))
            .max_leases(2);
        let builder = builder(store, &directory, &name).config(config);
        let started = builder.heartbeat(HeartbeatMode::OwnThread).start().await;
        let (coordinator, mut events) = started.unwrap();
        let held = [acquired(&mut events).await, acquired(&mut events).await];
        Self { coordinator, events, held }
    }
}

/// Each of the holders asks for a checkpoint of one of its leases.
fn ask_for_checkpoints(holders: &[Holder], lease: usize, position: u128) -> JoinSet<Result<(), LeaseError>> {
    let tenures = holders.iter().map(|holder| holder.held[lease].clone());
    tenures.map(|tenure| async move { tenure.checkpoint(at(position)).await }).collect()
}

/// The server crashes and is started again; then it takes no writes for a while.
async fn restart_and_pause(mut server: Server, table: Table, workers: u32) {
    let store = table.store();
    let directory = FakeDirectory::open(workers * 2);
    let starts: JoinSet<Holder> = (0..workers)
        .map(|number| Holder::start(table.store(), directory.clone(), format!("w{number}")))
        .collect();
    let holders = starts.join_all().await;

    server.crash();
    let asked = ask_for_checkpoints(&holders, 0, 7);
    // A pooler may let the caller wait for the server.
    let answer = tokio::time::timeout(secs(10), store.get(&[key(0)])).await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.unwrap_err().is_retryable()));
    server.boot().await;
    assert!(asked.join_all().await.iter().all(Result::is_ok));

    sql(&server.url(), "ALTER SYSTEM SET default_transaction_read_only = on").await;
    sql(&server.url(), "SELECT pg_reload_conf()").await;
    let refused = loop {
        // Settings arrive in the sessions a little later.
        if let Err(error) = store.apply(&[create(50 + fastrand::u32(..1_000_000))]).await.remove(0) {
            break error;
        }
    };
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    let mut asked = ask_for_checkpoints(&holders, 1, 8);
    // Writes of the lease tasks were refused meanwhile, not only the one above.
    let refusals = workers as usize + 2;
    crate::common::until("the lease tasks' writes are refused", || server.refusals() >= refusals).await;
    assert!(asked.try_join_next().is_none());
    sql(
        &server.url(),
        "SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only",
    )
    .await;
    sql(&server.url(), "SELECT pg_reload_conf()").await;
    assert!(asked.join_all().await.iter().all(Result::is_ok));

    let mut stops = JoinSet::new();
    for Holder { coordinator, events, held } in holders {
        assert!(held.iter().all(|tenure| !tenure.ownership().is_lost() && tenure.fence().epoch() == 1));
        let store = store.clone();
        stops.spawn(async move {
            assert!(coordinator.shutdown(secs(30)).await.is_complete());
            let rows = store.get(&held.each_ref().map(|tenure| tenure.key().clone())).await.unwrap();
            drop(events);
            rows.into_iter().flatten().map(|row| (row.checkpoint, row.epoch)).collect::<Vec<_>>()
        });
    }
    for stored in stops.join_all().await {
        assert_eq!(stored, [(at(7), 1), (at(8), 1)]);
    }
}

/// F-46: leases survive a restart of the server, and one that takes no writes for a while, when it is shorter than the
/// time for which a holder believes in them; checkpoints that are asked for meanwhile are stored afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn leases_survive_a_restart_and_a_pause_for_writes() {
    let server = Server::start().await;
    let table = Table::on(PgConnectOptions::from_str(&server.url()).unwrap());
    restart_and_pause(server, table, 3).await;
}

/// F-46: the same for twenty workers behind a pooler with two server connections, which is not restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn leases_survive_a_restart_and_a_pause_for_writes_behind_a_pooler() {
    let server = Server::start().await;
    let table = Table::pooled_on(PgConnectOptions::from_str(&server.url()).unwrap()).await;
    restart_and_pause(server, table, 20).await;
}

/// F-46: a stand-by is read but takes no writes, which is an error that passes: it works once it is promoted.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_standby_is_an_error_that_passes() {
    let primary = Server::start().await;
    let table = Table::on(PgConnectOptions::from_str(&primary.url()).unwrap());
    table.ready().await.apply(&[create(0)]).await.remove(0).unwrap();
    let standby = Server::standby_of(&primary).await;
    let store = table.builder().connect(&standby.url()).unwrap();
    crate::common::until_async("the row has come over", async || {
        store.get(&[key(0)]).await.is_ok_and(|rows| rows[0].is_some())
    })
    .await;
    store.setup().await.unwrap();
    let refused = store.apply(&[create(1), create(2)]).await;
    assert!(refused.iter().all(|result| matches!(result, Err(StoreError::Unavailable(_)))), "{refused:?}");
    drop(primary);
    standby.promote();
    until_written(&store, 1).await;
}

/// Passes connections on to a port that can be changed, as a name does that is pointed elsewhere.
struct Name {
    port: u16,
    leads_to: Arc<AtomicU16>,
}

impl Name {
    async fn new(first: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let leads_to = Arc::new(AtomicU16::new(first.port()));
        let target = Arc::clone(&leads_to);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let target = target.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(("127.0.0.1", target)).await else { return };
                    drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
                });
            }
        });
        Self { port, leads_to }
    }
}

/// F-46: after a failover the former primary lives on without writes, and connections to it too: new ones are made, which
/// lead to the server that took over. A lease that was held is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn a_failover_is_followed() {
    let primary = Server::start().await;
    let name = Name::new(&primary).await;
    let table = Table::on(PgConnectOptions::from_str(&url(name.port)).unwrap());
    let store = table.ready().await;
    let standby = Server::standby_of(&primary).await;
    let directory = FakeDirectory::open(1);
    let config =
        LeaseConfig::default().expiry(secs(60)).heartbeat_interval(millis(300)).look_interval(millis(300));
    let builder = builder(store.clone(), &directory, "a").config(config.store_timeout(secs(2)));
    let (coordinator, mut events) = builder.heartbeat(HeartbeatMode::OwnThread).start().await.unwrap();
    let tenure = acquired(&mut events).await;
    tenure.checkpoint(at(3)).await.unwrap();
    // All that was written has arrived before the switch, as in a planned one.
    sql(&primary.url(), "ALTER SYSTEM SET default_transaction_read_only = on").await;
    sql(&primary.url(), "SELECT pg_reload_conf()").await;
    let copy = table.builder().connect(&standby.url()).unwrap();
    crate::common::until_async("nothing is under way any more", async || {
        let (here, there) = (store.get(&[key(0)]).await, copy.get(&[key(0)]).await);
        let refused = store.apply(&[create(90)]).await.remove(0).is_err();
        refused && here.is_ok_and(|here| there.is_ok_and(|there| here == there && here[0].is_some()))
    })
    .await;
    standby.promote();
    name.leads_to.store(standby.port(), Ordering::SeqCst);
    tenure.checkpoint(at(4)).await.unwrap();
    until_written(&store, 91).await;
    assert!(!tenure.ownership().is_lost());
    assert_eq!(copy.get(&[key(0)]).await.unwrap()[0].as_ref().unwrap().checkpoint, at(4));
    assert!(coordinator.shutdown(secs(20)).await.is_complete());
    assert_eq!(copy.get(&[key(0)]).await.unwrap()[0].as_ref().unwrap().epoch, 1);
}

/// S-047: a store that was opened on the caller's runtime is not held up when that runtime is blocked.
#[tokio::test(flavor = "current_thread")]
#[ignore = "needs postgres"]
async fn a_blocked_runtime_holds_up_no_heartbeat() {
    let table = Table::new();
    let store = table.builder().options(table.options.clone()).unwrap();
    store.setup().await.unwrap();
    // As many connections as the pool may have belong to this runtime.
    let absent = [key(9)];
    let open = futures_util::future::join_all((0..8).map(|_| store.get(&absent)));
    assert!(open.await.iter().all(Result::is_ok));
    a_blocked_runtime_keeps_its_leases(store).await;
}

/// F-22: a commit that worked but whose reply was lost is recognised as our own write.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_write_whose_call_was_dropped_is_applied_or_not_and_leaves_the_store_usable() {
    let table = Table::new();
    let store = table.ready().await;
    let mut written = 0;
    for number in 0..40 {
        let write = [create(number)];
        // From no time at all to enough for the whole call, also on a busy machine.
        let limit = std::time::Duration::from_micros(u64::from(number * number) * 50);
        drop(tokio::time::timeout(limit, store.apply(&write)).await);
        let again = store.apply(&write).await.remove(0).unwrap();
        written += usize::from(matches!(again, Outcome::Refused { current: Some(_) }));
        assert!(store.get(&[key(number)]).await.unwrap()[0].is_some());
    }
    assert!(written < 40, "some calls were cut off before they were sent");
    assert!(written > 0, "some were done, whether or not their caller heard of it");
}
