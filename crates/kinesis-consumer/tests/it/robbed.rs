//! A worker that loses its lease while it reads with enhanced fan-out.

use std::time::Duration;

use kinesis_consumer::core::lease::{Change, FieldWrite, Guard, LeaseStore as _, LeaseWrite};
use kinesis_consumer::efo::{EfoConfig, EfoSource};
use kinesis_core::source::{OpenShard, ShardReader as _, SourceEvent};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_testkit::Operation;

use crate::common::{Journal, STREAM, World, stop};

const SHARD: &str = "shardId-000000000000";

/// Renews the thief's lease for a while.
async fn renew(world: &World, time: Duration) {
    for _ in 0..time.as_secs() {
        let row = world.row(SHARD).await;
        let fields = Change::Update(vec![FieldWrite::AddCounter(1)]);
        world.leases.apply(&[LeaseWrite::new(row.key.clone(), Guard::Counter(row.counter), fields)]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// F-03: a worker whose lease and subscription another one took makes no further SubscribeToShard: it would wait for
/// longer than it takes to learn of the theft, and then its reader is closed.
#[tokio::test(start_paused = true)]
async fn a_robbed_worker_does_not_subscribe_again() {
    let world = World::new(1);
    world.kinesis.register_consumer(STREAM, "billing").unwrap();
    world.put(0, 5, 1);
    let journal = Journal::default();
    let consumer = world.consumer("w1").enhanced_fan_out("billing");
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(5).await;
    // The service lets nobody take over a subscription younger than 5 s.
    tokio::time::sleep(Duration::from_secs(6)).await;
    // Just after a renewal, so that the next one, by which it learns of the theft, is as far away as can be.
    let before = world.row(SHARD).await.counter;
    while world.row(SHARD).await.counter == before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.steal(SHARD).await;
    let source = EfoSource::new(world.kinesis.client(), EfoConfig::new("billing")).unwrap();
    let shard = ShardRef::new(STREAM.parse().unwrap(), SHARD.parse().unwrap());
    let mut thief = source.reader(OpenShard::new(shard, StartPosition::TrimHorizon));
    while !matches!(thief.next().await.unwrap(), SourceEvent::Records(_)) {}
    renew(&world, Duration::from_secs(120)).await;
    assert_eq!(world.kinesis.calls(Operation::SubscribeToShard), 2, "one by each");
    assert_eq!(world.kinesis.subscriptions(STREAM).unwrap().len(), 1, "that of the thief");
    Box::new(thief).close().await;
    stop(&handle).await;
}
