//! Workers in Java (Kinesis Client Library 2 and 3) and in Rust over one stream and one lease table.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "peers/kcl.rs"]
mod kcl;

use std::collections::BTreeSet;

use kcl::{Fleet, Java, LAST_PLACE, Rust, SHARDS, start_of};
use kinesis_consumer::ConsumerError;
use kinesis_lease::{Coordination, Regime, StartError};

/// How many orders may be under way, or be processed and not stored, at one moment.
const UNDER_WAY: usize = 100;

/// Half of the shards each.
async fn until_shared(fleet: &Fleet, java: &str, rust: &str) {
    fleet
        .until("two workers share the shards", async || {
            fleet.owned_by(java).await == SHARDS / 2 && fleet.owned_by(rust).await == SHARDS / 2
        })
        .await;
}

/// S-033, S-038, S-041, S-043, S-055: Java and Rust join each other while the other runs, stop, and take over from each
/// other, with orders coming in. Every order is processed, and twice only around a change of hands; nobody starts anew where
/// another has stored a position, also not inside an aggregate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn java_and_rust_share_one_table() {
    let fleet = Fleet::new().await;

    // Java alone makes the table and the leases.
    let java = Java::start(&fleet, "java-1");
    fleet.put(100).await;
    let ends = fleet.put_aggregates().await;
    let of_java = fleet.put_count();
    fleet.until("Java has everything", async || java.orders().len() == of_java).await;
    fleet.until("Java has stored everything", async || fleet.stored().await == ends).await;
    assert_eq!(fleet.owned_by("java-1").await, SHARDS);

    // Rust joins while Java runs, takes its half, and goes on after the last record of an aggregate.
    let rust = Rust::start(&fleet, "rust-1");
    until_shared(&fleet, "java-1", "rust-1").await;
    // It reads on until its next renewal is refused.
    fleet.until("Java has noticed", async || java.lines_of("lost").len() == SHARDS / 2).await;
    let producing = fleet.keep_putting();
    fleet
        .until("both have new orders", async || {
            rust.orders().len() > 20 && java.orders().len() > of_java + 20
        })
        .await;
    assert!(rust.lives().await);
    let again: Vec<usize> = rust.orders().into_iter().filter(|order| *order <= of_java).collect();
    assert_eq!(again, [0_usize; 0], "orders that Java had stored");

    // Rust gives its leases back, and Java has all of them again.
    let first = rust.stop().await;
    let twice: Vec<usize> = first.intersection(&java.orders()).copied().collect();
    assert_eq!(twice, [0_usize; 0], "nothing was under way when Rust joined");
    fleet.until("Java has every shard", async || fleet.owned_by("java-1").await == SHARDS).await;

    // Rust joins while orders come in, and takes over from Java, which leaves its name in its rows.
    let before = fleet.put_count();
    fleet
        .until("Java has caught up", async || {
            let done: BTreeSet<usize> = java.orders().union(&first).copied().collect();
            (1..=before).all(|order| done.contains(&order))
        })
        .await;
    let rust = Rust::start(&fleet, "rust-2");
    until_shared(&fleet, "java-1", "rust-2").await;
    let by_java = java.stop().await;
    fleet.until("Rust has every shard", async || fleet.owned_by("rust-2").await == SHARDS).await;
    let alone = rust.orders().len();
    fleet.until("Rust has new orders", async || rust.orders().len() > alone + 50).await;
    producing.stop().await;
    let ends = fleet.put_aggregates().await;
    let of_both = fleet.put_count();
    fleet.until("Rust has stored everything", async || fleet.stored().await == ends).await;
    let all: BTreeSet<usize> = (1..=of_both).collect();
    let done = || by_java.union(&first).chain(&rust.orders()).copied().collect::<BTreeSet<usize>>();
    fleet.until("no order is lost", async || done() == all).await;
    let oldest = rust.orders().first().copied();
    assert!(oldest.is_some_and(|order| order + UNDER_WAY > before), "{oldest:?} was stored before {before}");

    // Java joins, takes its half, and goes on after the last record of an aggregate.
    let java = Java::start(&fleet, "java-2");
    until_shared(&fleet, "java-2", "rust-2").await;
    fleet.until("Java has started", async || java.lines_of("start").len() == SHARDS / 2).await;
    let possible: BTreeSet<String> =
        ends.iter().map(|(shard, end)| start_of(shard, end, LAST_PLACE)).collect();
    let starts: BTreeSet<String> = java.lines_of("start").into_iter().collect();
    assert!(starts.is_subset(&possible), "{starts:?} in {possible:?}");
    let (with_java, with_rust) = (java.orders().len(), rust.orders().len());
    assert_eq!(with_java, 0, "orders that Rust had stored");
    let producing = fleet.keep_putting();
    fleet
        .until("both have new orders", async || {
            java.orders().len() > 20 && rust.orders().len() > with_rust + 20
        })
        .await;
    assert!(rust.lives().await);

    // Java again: Rust gives its leases back.
    let second = rust.stop().await;
    fleet.until("Java has every shard", async || fleet.owned_by("java-2").await == SHARDS).await;
    let alone = java.orders().len();
    fleet.until("Java has new orders", async || java.orders().len() > alone + 20).await;
    producing.stop().await;
    let all: BTreeSet<usize> = (1..=fleet.put_count()).collect();
    let before: BTreeSet<usize> = by_java.iter().chain(&first).chain(&second).copied().collect();
    fleet
        .until("no order is lost", async || before.union(&java.orders()).copied().eq(all.iter().copied()))
        .await;
    let third = java.stop().await;
    assert!(third.iter().all(|order| *order > of_both), "Java has read again what Rust had stored");
}

/// S-033: beside a worker of the KCL 3.x in its mode for 2.x leases are shared as before, and the upgrade is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn version_3_in_its_mode_for_version_2_shares() {
    let fleet = Fleet::new().await;
    let rust = Rust::start_with(&fleet, "rust-1", |lease| {
        lease.coordination(Coordination::KclCompatible).publish_worker_metrics(true)
    });
    fleet.put(100).await;
    fleet.until("Rust has everything", async || rust.orders().len() == 100).await;
    let java = Java::start_version_3(&fleet, "java-3", "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X");
    until_shared(&fleet, "java-3", "rust-1").await;
    fleet.until("the upgrade is seen", async || fleet.regime().await.regime == Regime::Upgrading).await;
    let found = fleet.regime().await;
    assert_eq!(
        (found.item.as_str(), found.state.as_str()),
        ("Migration3.0", "CLIENT_VERSION_UPGRADE_FROM_2X")
    );
    assert!(rust.lives().await);
    let by_java = java.stop().await;
    fleet.until("Rust has every shard", async || fleet.owned_by("rust-1").await == SHARDS).await;
    let by_rust = rust.stop().await;
    assert_eq!((by_java.len(), by_rust.len()), (0, 100), "nothing was put while Java was there");
}

/// S-033: when workers of the KCL 3.x begin to assign leases, a running worker of ours finishes, stores its positions, gives
/// its leases back and says why; version 3 goes on from there. A new worker of ours is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn version_3_ends_the_sharing() {
    let fleet = Fleet::new().await;
    let rust = Rust::start_with(&fleet, "rust-1", |lease| lease.coordination(Coordination::KclCompatible));
    fleet.put(100).await;
    fleet.until("Rust has everything", async || rust.orders().len() == 100).await;
    let ends = fleet.put_aggregates().await;
    fleet.until("Rust has stored everything", async || fleet.stored().await == ends).await;
    let of_rust = fleet.put_count();

    let java = Java::start_version_3(&fleet, "java-3", "CLIENT_VERSION_CONFIG_3X");
    let ended = rust.ended().await;
    let ConsumerError::RegimeChanged(found) = &*ended else { panic!("{ended}") };
    assert_eq!((&found.regime, found.item.as_str()), (&Regime::Leader, "Migration3.0"), "{found}");
    assert!(found.table.starts_with(Fleet::APPLICATION), "{found}");
    assert_eq!(rust.orders().len(), of_rust);
    let again = Rust::start(&fleet, "rust-2").ended().await;
    let ConsumerError::Start(StartError::Regime(refused)) = &*again else { panic!("{again}") };
    assert_eq!((&refused.table, &refused.item), (&found.table, &found.item));

    fleet.put(50).await;
    fleet.until("Java has every shard", async || fleet.owned_by("java-3").await == SHARDS).await;
    fleet.until("Java has the new orders", async || java.orders().len() == 50).await;
    let starts: BTreeSet<String> = java.lines_of("start").into_iter().collect();
    let expected: BTreeSet<String> =
        ends.iter().map(|(shard, end)| start_of(shard, end, LAST_PLACE)).collect();
    assert_eq!(starts, expected, "it goes on after the last record of each aggregate");
    let last = java.stop().await;
    assert!(last.iter().all(|order| *order > of_rust), "{last:?}");
}
