//! Several workers of one application: they share the shards, hand them over, and take over from the dead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::{Ack, ConsumerHandle, Initialize, RecordBatch, RecordProcessor};
use tokio::time::Instant;

use crate::common::{Journal, STREAM, World, eventually, stop, text};
use crate::shelf::Trouble;

fn spawn(world: &World, journal: &Journal, worker: &'static str) -> ConsumerHandle {
    world.consumer(worker).for_each(journal.handler(worker)).build().unwrap().spawn()
}

/// S-046, F-23: three workers that join one after the other split the shards evenly and disjointly. What moves is handed
/// over: nothing is delivered twice, the order of each key is kept.
#[tokio::test(start_paused = true)]
async fn workers_that_join_get_their_share_without_a_duplicate() {
    let world = World::new(8);
    let journal = Journal::default();
    let mut handles = Vec::new();
    let mut number = 0;
    for worker in ["w1", "w2", "w3"] {
        handles.push(spawn(&world, &journal, worker));
        for _ in 0..150 {
            world.put(number, number + 2, 50);
            number += 2;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let mut shares = world.shares(&["w1", "w2", "w3"]);
    shares.sort_unstable();
    assert_eq!(shares, [2, 3, 3]);
    journal.until_distinct(number as usize).await;
    assert_eq!(journal.duplicates(), 0);
    journal.assert_order_by_key();
    for worker in ["w1", "w2", "w3"] {
        assert!(journal.all().iter().any(|seen| seen.worker == worker), "{worker} has work");
    }
    for handle in &handles {
        assert!(stop(handle).await.is_clean());
    }
}

/// S-044, F-23: whatever the numbers, the shares are within one of even, and then nothing moves any more.
#[tokio::test(start_paused = true)]
async fn shares_become_even_and_stay() {
    let workers = ["w1", "w2", "w3", "w4", "w5"];
    for (shards, count) in [(1, 3), (5, 2), (12, 5)] {
        let world = World::new(shards);
        let journal = Journal::default();
        let workers = &workers[..count];
        let handles: Vec<_> = workers.iter().map(|worker| spawn(&world, &journal, worker)).collect();
        let (least, most) = (shards as usize / count, (shards as usize).div_ceil(count));
        eventually(|| {
            let shares = world.shares(workers);
            let even = shares.iter().all(|share| (least..=most).contains(share));
            even && shares.iter().sum::<usize>() == shards as usize
        })
        .await;
        // What is asked for is still to be handed over.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let epochs = || world.leases.rows().iter().map(|row| row.epoch).collect::<Vec<_>>();
        let before = epochs();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(epochs(), before, "no lease moves without a reason");
        for handle in &handles {
            assert!(stop(handle).await.is_clean());
        }
    }
}

/// S-043: the leases of a crashed worker are taken after the expiry and one look, and its records come again from where
/// it had stored.
#[tokio::test(start_paused = true)]
async fn a_crashed_worker_is_taken_over_from() {
    let world = World::new(4);
    let journal = Journal::default();
    let one = spawn(&world, &journal, "w1");
    let two = spawn(&world, &journal, "w2");
    eventually(|| world.shares(&["w1", "w2"]) == [2, 2]).await;
    world.put(0, 100, 40);
    journal.until_distinct(100).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let crashed = Instant::now();
    drop(two);
    world.put(100, 200, 40);
    eventually(|| world.shares(&["w1", "w2"]) == [4, 0]).await;
    let took = crashed.elapsed();
    assert!((Duration::from_secs(7)..Duration::from_secs(13)).contains(&took), "{took:?}");
    journal.until_distinct(200).await;
    journal.assert_order_by_key();
    assert_eq!(journal.duplicates(), 0, "everything before the crash was stored");
    assert!(stop(&one).await.is_clean());
}

/// S-042: what a worker gives back when it stops is taken at the next look, not after an expiry, and read at once.
#[tokio::test(start_paused = true)]
async fn a_stopped_worker_is_taken_over_from_at_once() {
    let world = World::new(4);
    let journal = Journal::default();
    let one = spawn(&world, &journal, "w1");
    let two = spawn(&world, &journal, "w2");
    eventually(|| world.shares(&["w1", "w2"]) == [2, 2]).await;
    world.put(0, 100, 40);
    assert!(stop(&two).await.is_clean());
    let stopped = Instant::now();
    assert!(journal.all().iter().all(|seen| seen.worker == "w1"), "what w2 had is left to w1");
    let shards =
        |journal: &Journal| journal.all().into_iter().map(|seen| seen.shard).collect::<BTreeSet<_>>();
    assert!(shards(&journal).len() <= 2);
    journal.until_distinct(100).await;
    assert!(stopped.elapsed() < Duration::from_secs(2), "{:?}", stopped.elapsed());
    assert_eq!((world.shares(&["w1"]), shards(&journal).len()), (vec![4], 4));
    assert!(stop(&one).await.is_clean());
}

/// What is alive in this process, per shard.
#[derive(Clone, Default)]
struct Census(Arc<Mutex<BTreeMap<String, u32>>>);

struct Counted {
    census: Census,
    shard: String,
    /// Records that this tenure was handed.
    seen: BTreeSet<u32>,
    journal: Journal,
    blocked: tokio::sync::watch::Receiver<bool>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.census.0.lock().unwrap().get_mut(&self.shard).unwrap() -= 1;
    }
}

impl RecordProcessor for Counted {
    type Error = std::convert::Infallible;

    async fn initialize(&mut self, _: &Initialize) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, Self::Error> {
        for record in batch.records() {
            assert!(self.seen.insert(text(record).parse().unwrap()), "handed over twice in one tenure");
            self.journal.add("w1", record);
        }
        self.blocked.wait_for(|blocked| !blocked).await.unwrap();
        Ok(Ack::All)
    }
}

/// F-12: while no write of a lease is answered in time and handlers are blocked, leases are lost and taken anew by the
/// same worker; there is never more than one live processor of a shard, and no processor is handed a record twice.
#[tokio::test(start_paused = true)]
async fn a_worker_that_takes_over_from_itself_has_one_consumer_per_shard() {
    let world = World::new(8);
    let (census, journal) = (Census::default(), Journal::default());
    let (block, blocked) = tokio::sync::watch::channel(false);
    let (counts, log) = (census.clone(), journal.clone());
    let consumer = world.consumer("w1").processor(move |shard| {
        let shard = shard.shard().as_str().to_owned();
        let mut alive = counts.0.lock().unwrap();
        let alive = alive.entry(shard.clone()).or_default();
        *alive += 1;
        assert_eq!(*alive, 1, "two live consumers of {shard}");
        Counted {
            census: counts.clone(),
            shard,
            seen: BTreeSet::new(),
            journal: log.clone(),
            blocked: blocked.clone(),
        }
    });
    let handle = consumer.build().unwrap().spawn();
    eventually(|| world.shares(&["w1"]) == [8]).await;
    let mut number = 0;
    for round in 0..5 {
        block.send_replace(true);
        world.put(number, number + 40, 40);
        number += 40;
        let slow = Duration::from_secs(30);
        let trouble = if round % 2 == 0 { Trouble::SlowAnswers(slow) } else { Trouble::SlowCalls(slow) };
        world.leases.trouble(trouble);
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.leases.trouble(Trouble::None);
        block.send_replace(false);
        journal.until_distinct(number as usize).await;
        eventually(|| world.shares(&["w1"]) == [8]).await;
    }
    assert_eq!(world.kinesis.records(STREAM).unwrap().len(), 200);
    journal.assert_order_by_key();
    assert!(stop(&handle).await.is_clean());
    assert!(census.0.lock().unwrap().values().all(|alive| *alive == 0));
}
