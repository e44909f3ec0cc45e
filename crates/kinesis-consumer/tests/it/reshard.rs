//! Splits and merges: parents first, order by key, every shard finished once, with no restart.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::{ConsumerHandle, Record, RecordAck};
use kinesis_core::Checkpoint;
use kinesis_testkit::Operation;

use crate::common::{Journal, STREAM, World, eventually, stop};

const FIRST: &str = "shardId-000000000000";

/// A consumer that checks, with each record, that the parents of its shard are finished by what is stored.
fn spawn(world: &World, journal: &Journal, worker: &'static str, each: Duration) -> ConsumerHandle {
    let (checked, journal) = (world.clone(), journal.clone());
    let consumer = world.consumer(worker).for_each(move |record: Record| {
        let shard = record.source().shard().as_str().to_owned();
        let shards = checked.kinesis.shards(STREAM).unwrap();
        let view = shards.iter().find(|view| view.shard_id == shard).unwrap();
        for parent in &view.parents {
            assert!(checked.is_ended(parent), "{shard} was read before its parent {parent} was finished");
        }
        journal.add(worker, &record);
        async move {
            tokio::time::sleep(each).await;
            Ok::<_, Infallible>(())
        }
    });
    consumer.build().unwrap().spawn()
}

fn assert_finished(world: &World) {
    for view in world.kinesis.shards(STREAM).unwrap().iter().filter(|view| !view.is_open()) {
        assert!(world.is_ended(&view.shard_id), "{} is not finished", view.shard_id);
    }
}

/// No shard was read a second time.
fn assert_opened_once(world: &World) {
    let opened = world.kinesis.calls_of(Operation::GetShardIterator);
    for view in world.kinesis.shards(STREAM).unwrap() {
        let times = opened.iter().filter(|call| call.shard.as_deref() == Some(&view.shard_id)).count();
        assert_eq!(times, 1, "{} was opened {times} times", view.shard_id);
    }
}

/// F-18, S-057, S-056: closed parents that still have records are read first, each once, also through several steps.
#[tokio::test(start_paused = true)]
async fn closed_parents_with_unread_records_are_read_first() {
    for steps in 0..3 {
        let world = World::new(1);
        world.put(0, 100, 10);
        let children = world.kinesis.split(STREAM, FIRST).unwrap();
        world.put(100, 200, 10);
        let mut total = 200;
        if steps > 0 {
            let grandchildren = world.kinesis.split(STREAM, &children[0]).unwrap();
            world.put(200, 300, 10);
            total = 300;
            if steps > 1 {
                world.kinesis.merge(STREAM, &grandchildren[1], &children[1]).unwrap();
                world.put(300, 400, 10);
                total = 400;
            }
        }
        let journal = Journal::default();
        let handle = spawn(&world, &journal, "w1", Duration::ZERO);
        journal.until_distinct(total).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        journal.assert_order_by_key();
        assert_eq!(journal.duplicates(), 0);
        assert_finished(&world);
        assert_opened_once(&world);
        assert!(stop(&handle).await.is_clean());
    }
}

/// S-056, S-057: shards that are split and merged while two workers read them are followed with no restart, without a
/// duplicate and in the order of each key.
#[tokio::test(start_paused = true)]
async fn splits_and_merges_are_followed_while_reading() {
    let world = World::new(2);
    let journal = Journal::default();
    let one = spawn(&world, &journal, "w1", Duration::from_millis(20));
    let two = spawn(&world, &journal, "w2", Duration::from_millis(20));
    eventually(|| world.shares(&["w1", "w2"]) == [1, 1]).await;
    let mut number = 0;
    let mut write = |count: u32| {
        world.put(number, number + count, 12);
        number += count;
    };
    write(100);
    let children = world.kinesis.split(STREAM, FIRST).unwrap();
    write(100);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(100);
    world.kinesis.merge(STREAM, &children[1], "shardId-000000000001").unwrap();
    write(100);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(100);
    journal.until_distinct(500).await;
    journal.assert_order_by_key();
    assert_eq!(journal.duplicates(), 0);
    assert_finished(&world);
    assert!(stop(&one).await.is_clean());
    assert!(stop(&two).await.is_clean());
}

/// F-19, S-057: the parents of a merged shard are on different workers, one with a long backlog, and the child is split
/// at once. The child waits for both, also when the worker with the backlog is killed in the middle.
#[tokio::test(start_paused = true)]
async fn parents_on_different_workers_are_both_finished_before_the_child() {
    for kill in [false, true] {
        let world = World::new(2);
        let journal = Journal::default();
        let one = spawn(&world, &journal, "w1", Duration::ZERO);
        let two = spawn(&world, &journal, "w2", Duration::from_millis(300));
        eventually(|| world.shares(&["w1", "w2"]) == [1, 1]).await;
        world.put(0, 200, 10);
        let child = world.kinesis.merge(STREAM, FIRST, "shardId-000000000001").unwrap();
        world.put(200, 300, 10);
        world.kinesis.split(STREAM, &child).unwrap();
        world.put(300, 400, 10);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(journal.all().iter().all(|seen| seen.number < 200), "the child waits");
        if kill {
            drop(two);
            journal.until_distinct(400).await;
        } else {
            journal.until_distinct(400).await;
            assert_eq!(journal.duplicates(), 0);
            assert!(stop(&two).await.is_clean());
        }
        journal.assert_order_by_key();
        assert!(world.is_ended(&child));
        assert!(stop(&one).await.is_clean());
    }
}

/// F-20: a handler without any code for the end of a shard; the end is stored once its records are finished, and not
/// before: a record that is finished later keeps it, and the children, back.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_waits_for_records_in_work() {
    let world = World::new(1);
    world.put(0, 3, 3);
    world.kinesis.split(STREAM, FIRST).unwrap();
    world.put(3, 6, 3);
    let journal = Journal::default();
    let held = Arc::new(Mutex::new(Vec::new()));
    let (log, taken) = (journal.clone(), Arc::clone(&held));
    let consumer = world.consumer("w1").for_each(move |mut record: Record| {
        log.add("w1", &record);
        if record.source().shard().as_str() == FIRST {
            taken.lock().unwrap().push(record.completion().unwrap());
            return std::future::ready(Ok::<_, Infallible>(RecordAck::Manual));
        }
        std::future::ready(Ok(RecordAck::Done))
    });
    let handle = consumer.build().unwrap().spawn();
    journal.until_distinct(3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let row = world.row(FIRST).await;
    assert_eq!((row.checkpoint, row.owner.unwrap().as_str()), (Checkpoint::TrimHorizon, "w1"));
    assert_eq!(journal.distinct(), 3, "the children wait");
    held.lock().unwrap().drain(..).for_each(kinesis_consumer::Completion::done);
    journal.until_distinct(6).await;
    assert!(world.is_ended(FIRST));
    journal.assert_order_by_key();
    assert!(stop(&handle).await.is_clean());
}

/// S-060, S-058: a shard that is finished is not read again after a restart, although it is still listed.
#[tokio::test(start_paused = true)]
async fn a_finished_shard_is_not_read_again_after_a_restart() {
    let world = World::new(1);
    world.put(0, 10, 5);
    world.kinesis.split(STREAM, FIRST).unwrap();
    let journal = Journal::default();
    let handle = spawn(&world, &journal, "w1", Duration::ZERO);
    journal.until_distinct(10).await;
    eventually(|| world.is_ended(FIRST)).await;
    assert!(stop(&handle).await.is_clean());
    world.kinesis.clear_calls();
    world.put(10, 20, 5);
    let handle = spawn(&world, &journal, "w2", Duration::ZERO);
    journal.until_distinct(20).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(journal.duplicates(), 0);
    let opened = world.kinesis.calls_of(Operation::GetShardIterator);
    assert!(opened.iter().all(|call| call.shard.as_deref() != Some(FIRST)));
    assert_eq!(world.kinesis.shards(STREAM).unwrap().len(), 3, "it is still listed");
    assert!(stop(&handle).await.is_clean());
}
