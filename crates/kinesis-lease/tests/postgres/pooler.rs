//! Through pgbouncer in transaction mode, and what is sent to the server.

use kinesis_core::Checkpoint;
use kinesis_lease::{
    Lease, LeaseConfig, LeaseStore, LeaseStoreExt as _, LeaseWrite, Outcome, Pooler, TenureToken, ops,
};
use sqlx::postgres::PgConnectOptions;
use std::str::FromStr as _;

use crate::common::{FakeDirectory, acquired, at, builder, key, millis, secs, worker};
use crate::server::{Bouncer, Server};
use crate::table::Table;

/// F-46: twenty workers on two server connections share forty leases and give them all back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn twenty_workers_share_two_server_connections() {
    const WORKERS: u32 = 20;
    let table = Table::pooled().await;
    let directory = FakeDirectory::open(WORKERS * 2);
    let config = LeaseConfig::default()
        .expiry(secs(20))
        .heartbeat_interval(millis(500))
        .look_interval(millis(500))
        .max_leases(2);
    let mut running = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let builder = builder(table.store(), &directory, &format!("w{number}")).config(config.clone());
        running.spawn(async move {
            let (coordinator, mut events) = builder.start().await.unwrap();
            let held = [acquired(&mut events).await, acquired(&mut events).await];
            for round in 1..=5 {
                for tenure in &held {
                    tenure.checkpoint(at(round)).await.unwrap();
                }
            }
            (coordinator, events, held)
        });
    }
    let workers = running.join_all().await;
    let mut keys: Vec<_> =
        workers.iter().flat_map(|(_, _, held)| held).map(|held| held.key().clone()).collect();
    keys.sort();
    assert_eq!(keys, (0..WORKERS * 2).map(key).collect::<Vec<_>>());
    assert_eq!(
        table.value("SELECT count(*) FROM {s}.kinesis_leases_checkpoints WHERE checkpoint = '5'").await,
        40
    );
    let mut stops = tokio::task::JoinSet::new();
    for (coordinator, events, held) in workers {
        stops.spawn(async move {
            let report = coordinator.shutdown(secs(20)).await;
            drop((events, held));
            report.is_complete()
        });
    }
    assert!(stops.join_all().await.into_iter().all(|complete| complete));
    assert_eq!(table.value("SELECT count(*) FROM {s}.kinesis_leases WHERE owner IS NULL").await, 40);
}

/// How many statements with this word the server was sent.
fn count(statements: &[String], word: &str) -> usize {
    statements.iter().filter(|statement| statement.contains(word)).count()
}

/// All leases of a worker are renewed in one statement; a mix of writes is one statement of each kind. Through a pooler
/// each is a transaction, nothing is prepared under a name, and nothing listens.
#[tokio::test]
#[ignore = "needs postgres"]
async fn a_hundred_renewals_are_one_statement() {
    let server = Server::start().await;
    let options = PgConnectOptions::from_str(&server.url()).unwrap();
    let bouncer = Bouncer::start(&options).await;
    for pooler in [Pooler::Direct, Pooler::Transaction] {
        let table = Table::on(options.clone());
        let through = if pooler == Pooler::Direct { options.clone() } else { bouncer.options() };
        let store = table.builder().pooler(pooler).options(through).unwrap();
        store.setup().await.unwrap();
        let creations: Vec<_> =
            (0..100).map(|number| LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))).collect();
        let token = TenureToken::from_random(3);
        let taken = |row: &Lease| ops::take(row, &worker("a"), token);
        let rows = |results: Vec<Result<Outcome, _>>| -> Vec<Lease> {
            let row = |result| match result {
                Ok(Outcome::Applied(row)) => row,
                other => panic!("{other:?}"),
            };
            results.into_iter().map(row).collect()
        };
        let made = rows(store.apply(&creations).await);
        let mut held = rows(store.apply(&made.iter().map(taken).collect::<Vec<_>>()).await);

        let before = server.statements();
        let renewals: Vec<_> = held.iter().map(|row| ops::renew(row, token)).collect();
        held = rows(store.apply(&renewals).await);
        let sent = server.statements()[before.len()..].to_vec();
        assert_eq!((count(&sent, "UPDATE \""), count(&sent, "_checkpoints\" c SET")), (1, 0), "{sent:?}");
        assert!(held.iter().all(|row| row.counter == 2));
        let transactions = if pooler == Pooler::Direct { 0 } else { 1 };
        assert_eq!(count(&sent, "BEGIN; SET LOCAL"), transactions, "{sent:?}");
        assert_eq!(count(&sent, "COMMIT"), transactions, "{sent:?}");

        // Ninety renewals, nine checkpoints and a refused one: two statements, and one to see what was refused.
        let before = server.statements();
        let mut writes: Vec<_> = held[..90].iter().map(|row| ops::renew(row, token)).collect();
        writes.extend(held[90..99].iter().map(|row| ops::checkpoint(row, token, at(7))));
        writes.push(ops::checkpoint(&held[99], TenureToken::from_random(4), at(7)));
        let results = store.apply(&writes).await;
        assert!(matches!(&results[99], Ok(Outcome::Refused { current: Some(row) }) if *row == held[99]));
        assert_eq!(rows(results.into_iter().take(99).collect()).len(), 99);
        let sent = server.statements()[before.len()..].to_vec();
        assert_eq!((count(&sent, "UPDATE OF"), count(&sent, "unnest(")), (2, 3), "{sent:?}");
        assert_eq!(store.list(held[0].key.application(), held[0].key.stream()).await.unwrap().len(), 100);

        assert_eq!(count(&server.statements(), "LISTEN"), 0);
        if pooler == Pooler::Transaction {
            let mine: Vec<_> =
                server.statements().into_iter().filter(|text| text.contains(&table.schema)).collect();
            let prepared = "SELECT count(*) FROM pg_prepared_statements";
            assert!(!mine.is_empty());
            assert_eq!(table.value(prepared).await, 1, "of this very connection");
            assert_eq!(server.named(&table.schema), 0, "no statement has a name");
        } else {
            assert!(server.named(&table.schema) > 0);
        }
    }
}
