//! Workers that share the shards by their load.

use std::convert::Infallible;
use std::time::Duration;

use kinesis_consumer::core::lease::Lease;
use kinesis_consumer::lease::{Balance, LeaseConfig};
use kinesis_consumer::{ConsumerHandle, Record};

use crate::common::{STREAM, Seen, World, eventually, stop, text};

const SHARDS: u32 = 4;

/// A worker whose handler is busy for as many milliseconds as the payload says.
fn spawn(world: &World, seen: &Seen, worker: &'static str) -> ConsumerHandle {
    let seen = seen.clone();
    let handler = move |record: Record| {
        let seen = seen.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(text(&record).parse().unwrap())).await;
            seen.add(record.position().to_string());
            Ok::<_, Infallible>(())
        }
    };
    let lease = LeaseConfig::default().balance(Balance::Load).load_window(Duration::from_secs(60));
    world.consumer(worker).lease(lease).for_each(handler).build().unwrap().spawn()
}

/// Each second 0.8 s of work for the first shard, and little for the others.
async fn run(world: &World, seconds: u32) -> usize {
    for _ in 0..seconds {
        for shard in 0..SHARDS {
            let hash = u128::MAX / u128::from(SHARDS) * u128::from(shard) + 1;
            let work: &[&str] = if shard == 0 { &["400", "400"] } else { &["20"] };
            for millis in work {
                world.kinesis.put_at(STREAM, hash, "key", *millis).unwrap();
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    (seconds * (SHARDS + 1)) as usize
}

fn epochs(world: &World) -> Vec<u64> {
    world.leases.rows().iter().map(|row| row.epoch).collect()
}

fn hot_owner(world: &World) -> String {
    let rows = world.leases.rows();
    let hot = rows.iter().find(|row: &&Lease| row.key.shard().as_str().ends_with("000")).unwrap();
    hot.owner.as_ref().unwrap().as_str().to_owned()
}

/// Both have two shards, and one of these is hot: its worker gives the other one away, nothing is delivered twice, and
/// then nothing moves for a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn the_worker_of_a_hot_shard_has_fewer_others() {
    let (world, seen) = (World::new(SHARDS), Seen::default());
    let handles = ["w1", "w2"].map(|worker| spawn(&world, &seen, worker));
    eventually(|| world.shares(&["w1", "w2"]) == [2, 2]).await;
    let mut records = run(&world, 30).await;
    assert_eq!(world.shares(&["w1", "w2"]), [2, 2], "not before loads were measured");
    // What was handed over when the second worker joined is left there for five windows.
    records += run(&world, 400).await;
    let hot = hot_owner(&world);
    assert_eq!(world.shares(&[&hot]), [1], "{:?}", world.owners());
    let before = epochs(&world);
    records += run(&world, 900).await;
    assert_eq!(epochs(&world), before, "no lease moves without a reason");
    eventually(|| seen.len() >= records).await;
    for handle in &handles {
        assert!(stop(handle).await.is_clean());
    }
    assert_eq!(seen.len(), records, "each record came once");
}
