//! Workers in Java (Kinesis Client Library 2) and in Rust over one stream and one lease table.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "peers/kcl.rs"]
mod kcl;

use std::collections::BTreeSet;

use kcl::{Fleet, Java, LAST_PLACE, Rust, SHARDS, start_of};

/// S-033, S-038, S-041, S-043, S-055: Java alone, Rust alone, Java and Rust, Java again, with orders coming in. Every
/// order is processed; nobody starts anew where another has stored a position, also not inside an aggregate; leases
/// that one has left or given back go to the other, and Java takes its part from a Rust worker that runs.
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
    let first = java.stop().await;

    // Rust alone: Java leaves its name in its rows, so they expire first.
    let rust = Rust::start(&fleet, "rust-1");
    let producing = fleet.keep_putting();
    fleet.until("Rust has every shard", async || fleet.owned_by("rust-1").await == SHARDS).await;
    fleet.until("Rust has new orders", async || rust.orders().len() > 50).await;
    producing.stop().await;
    let ends = fleet.put_aggregates().await;
    let of_both = fleet.put_count();
    fleet.until("Rust has everything", async || rust.orders().len() == of_both - of_java).await;
    fleet.until("Rust has stored everything", async || fleet.stored().await == ends).await;
    let again: Vec<usize> = rust.orders().into_iter().filter(|order| *order <= of_java).collect();
    assert_eq!(again, [0_usize; 0], "orders that Java had stored");

    // Java joins, takes its half, and goes on after the last record of an aggregate.
    let java = Java::start(&fleet, "java-2");
    fleet
        .until("two workers share the shards", async || {
            fleet.owned_by("java-2").await == SHARDS / 2 && fleet.owned_by("rust-1").await == SHARDS / 2
        })
        .await;
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
    let before: BTreeSet<usize> = first.union(&second).copied().collect();
    fleet
        .until("no order is lost", async || before.union(&java.orders()).copied().eq(all.iter().copied()))
        .await;
    let third = java.stop().await;
    assert!(third.iter().all(|order| *order > of_both), "Java has read again what Rust had stored");
}
