//! Stopping: everything ends, in time, and the report says what became of each shard.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_consumer::core::lease::LeaseStore;
use kinesis_consumer::core::source::{OpenShard, ShardReader, ShardSource, SourceError, SourceEvent};
use kinesis_consumer::lease::HeartbeatMode;
use kinesis_consumer::{
    Ack, BoxError, Checkpointer, Consumer, Initialize, Record, RecordBatch, RecordProcessor, ShardOutcome,
};
use kinesis_testkit::{Fault, Operation};
use tokio::time::Instant;

use crate::common::{
    APPLICATION, Journal, LONG, STREAM, Seen, World, eventually, numbers, sorted, stop, text,
};
use crate::shelf::Trouble;
use crate::sources::PushSource;

/// A source whose readers never close.
#[derive(Debug)]
struct Clinging(PushSource);

struct ClingingReader(Box<dyn ShardReader>);

impl ShardSource for Clinging {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        Box::new(ClingingReader(self.0.open(request)))
    }
}

#[async_trait]
impl ShardReader for ClingingReader {
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        self.0.next().await
    }

    async fn close(self: Box<Self>) {
        std::future::pending().await
    }
}

/// A reader that does not close is given up after `close_timeout`, and the report says so; everything else about the stop
/// is in order.
#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_close_is_given_up_and_reported() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let journal = Journal::default();
    let consumer = world
        .consumer("w1")
        .source(Arc::new(Clinging(PushSource::new(&world.kinesis))))
        .close_timeout(Duration::from_secs(2));
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(3).await;
    let begun = Instant::now();
    let report = stop(&handle).await;
    let took = begun.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_100)).contains(&took), "{took:?}");
    assert!(!report.is_clean() && report.leases_released);
    let [shard] = &report.shards[..] else { panic!("one shard") };
    assert_eq!((&shard.outcome, shard.unfinished, shard.reader_closed), (&ShardOutcome::Clean, 0, false));
    let last = world.kinesis.records(STREAM).unwrap()[2].sequence_number.clone();
    assert_eq!(shard.stored.as_ref().unwrap().sequence().to_string(), last);
}

/// The tasks of this runtime that have not ended; the test itself is none.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Lets aborted tasks end.
async fn no_task_is_left() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), 0, "tasks are left");
}

/// Sets a flag for as long as it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// S-004: after a stop, a dropped handle or a dropped `run`, no task of the consumer is alive: neither the coordinator nor
/// a shard's, not even one whose handler never returns.
#[tokio::test(start_paused = true)]
async fn nothing_outlives_its_owner() {
    let world = World::new(4);
    world.put(0, 40, 40);
    let busy = Arc::new(AtomicUsize::new(0));
    let build = || {
        let count = Arc::clone(&busy);
        let consumer = world.consumer("w1").for_each(move |_: Record| {
            let alive = Alive::new(&count);
            async move {
                let _alive = alive;
                std::future::pending::<Result<(), Infallible>>().await
            }
        });
        consumer.build().unwrap()
    };
    let working = || eventually(|| busy.load(Ordering::SeqCst) == 4);

    let handle = build().spawn();
    working().await;
    assert!(tasks() >= 5, "a coordinator and four shards");
    handle.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(handle.is_finished());
    no_task_is_left().await;
    assert_eq!(busy.load(Ordering::SeqCst), 0);
    drop(handle);

    let handle = build().spawn();
    working().await;
    drop(handle);
    no_task_is_left().await;
    assert_eq!(busy.load(Ordering::SeqCst), 0);

    let mut run = Box::pin(build().run(std::future::pending()));
    tokio::select! {
        _ = &mut run => panic!("nobody asked for a stop"),
        () = working() => {}
    }
    drop(run);
    no_task_is_left().await;
    assert_eq!(busy.load(Ordering::SeqCst), 0);
    assert_eq!(world.owners().iter().filter(|(_, owner)| owner.is_some()).count(), 4, "nothing was released");
}

/// S-004: the thread of the heartbeat ends with its consumer, however that ends. It holds the store as long as it lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heartbeat_thread_ends_with_its_consumer() {
    for graceful in [true, false] {
        let world = World::new(1);
        world.put(0, 1, 1);
        let seen = Seen::default();
        let log = seen.clone();
        let store: Arc<dyn LeaseStore> = world.leases.clone();
        let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
            .lease_store(store)
            .heartbeat(HeartbeatMode::OwnThread)
            .for_each(move |record: Record| {
                log.add(text(&record));
                async { Ok::<_, Infallible>(()) }
            });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.len() == 1).await;
        assert!(Arc::strong_count(&world.leases) > 1);
        if graceful {
            assert!(stop(&handle).await.is_clean());
        }
        drop(handle);
        eventually(|| Arc::strong_count(&world.leases) == 1).await;
    }
}

/// S-018: `run` goes on until its signal, and `spawn` until it is told; both return when all workers have ended, those
/// whose handler is busy included.
#[tokio::test(start_paused = true)]
async fn both_ways_to_stop_wait_for_handlers_at_work() {
    for spawned in [false, true] {
        for (works_for, clean) in [(Duration::from_secs(5), true), (LONG, false)] {
            let world = World::new(2);
            world.put(0, 20, 20);
            let (busy, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (count, done) = (Arc::clone(&busy), Arc::clone(&finished));
            let consumer = world.consumer("w1").shutdown_timeout(Duration::from_secs(20)).for_each_batch(
                move |_: RecordBatch| {
                    let (alive, done) = (Alive::new(&count), Arc::clone(&done));
                    async move {
                        tokio::time::sleep(works_for).await;
                        done.fetch_add(1, Ordering::SeqCst);
                        drop(alive);
                        Ok::<_, Infallible>(())
                    }
                },
            );
            let consumer = consumer.build().unwrap();
            let at_work = eventually(|| busy.load(Ordering::SeqCst) == 2);
            let (report, took) = if spawned {
                let handle = consumer.spawn();
                at_work.await;
                let asked = Instant::now();
                (handle.shutdown(Duration::from_secs(20)).await.unwrap(), asked.elapsed())
            } else {
                let mut asked = None;
                let report = consumer.run(async {
                    at_work.await;
                    asked = Some(Instant::now());
                });
                (report.await.unwrap(), asked.unwrap().elapsed())
            };
            assert_eq!(busy.load(Ordering::SeqCst), 0, "all workers have ended");
            assert_eq!(report.is_clean(), clean, "{report:?}");
            assert_eq!(finished.load(Ordering::SeqCst), if clean { 2 } else { 0 });
            assert_eq!(took.as_secs(), if clean { 4 } else { 20 }, "{took:?}");
            assert!(world.owners().iter().all(|(_, owner)| owner.is_none()), "all leases are given back");
            no_task_is_left().await;
        }
    }
}

/// A processor for each kind of trouble at a stop, by the number of its shard.
struct Mixed {
    number: u32,
    seen: Seen,
}

impl RecordProcessor for Mixed {
    type Error = BoxError;

    async fn initialize(&mut self, _: &Initialize) -> Result<(), BoxError> {
        match self.number {
            9 => tokio::time::sleep(Duration::from_secs(8)).await,
            10 => std::future::pending().await,
            _ => {}
        }
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, BoxError> {
        self.seen.add(format!("works {}", self.number));
        match self.number {
            6 | 7 => tokio::time::sleep(Duration::from_secs(5)).await,
            8 => std::future::pending().await,
            _ => {}
        }
        batch.records().iter().for_each(|record| self.seen.add(text(record)));
        Ok(Ack::All)
    }

    async fn shutdown_requested(&mut self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
        self.seen.add(format!("last chance {}", self.number));
        Ok(checkpointer.checkpoint().await?)
    }
}

fn number_of(shard: &str) -> u32 {
    shard[18..].parse().unwrap()
}

/// F-37: twelve shards: idle, in a long read, with a handler that takes a while, one that never returns, one in a long
/// initialize and one that never leaves it. Stopped with a deadline, twice: each has its last chance, both calls have the
/// same report, it names the two that were given up, and nothing is left.
#[tokio::test(start_paused = true)]
async fn a_stop_with_a_deadline_reports_each_of_twelve_shards() {
    let world = World::new(12);
    let step = u128::MAX / 12;
    for shard in [6_u32, 7, 8, 11] {
        let key = format!("k{shard}");
        world.kinesis.put_at(STREAM, step * u128::from(shard) + step / 2, &key, shard.to_string()).unwrap();
    }
    for shard in [4, 5] {
        let shard = format!("shardId-{shard:012}");
        let hang = Fault::Hang(Duration::from_secs(25));
        world.kinesis.faults().on(Operation::GetRecords).shard(shard).always().inject(hang);
    }
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world
        .consumer("w1")
        .processor(move |shard| Mixed { number: number_of(shard.shard().as_str()), seen: log.clone() });
    let handle = Arc::new(consumer.build().unwrap().spawn());
    seen.until(|seen| seen.iter().filter(|line| line.starts_with("works")).count() == 4).await;

    let asked = Instant::now();
    let again = Arc::clone(&handle);
    let second = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        again.shutdown(Duration::from_secs(60)).await.unwrap()
    });
    let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 10, "the later call puts nothing off");
    assert_eq!(second.await.unwrap(), report);
    for shard in &report.shards {
        let number = number_of(shard.shard.shard().as_str());
        let expected = if [8, 10].contains(&number) { ShardOutcome::GaveUp } else { ShardOutcome::Clean };
        assert_eq!(shard.outcome, expected, "{number}");
        assert_eq!(shard.unfinished, usize::from(number == 8), "{number}");
        assert_eq!(seen.count(&format!("last chance {number}")), 1, "{number}");
    }
    assert_eq!(report.shards.len(), 12);
    assert!(report.leases_released && !report.is_clean());
    assert!(world.owners().iter().all(|(_, owner)| owner.is_none()));
    no_task_is_left().await;
}

/// F-37: a later call may bring the deadline forward.
#[tokio::test(start_paused = true)]
async fn a_later_call_may_bring_the_deadline_forward() {
    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        log.add(text(&record));
        std::future::pending::<Result<(), Infallible>>()
    });
    let handle = Arc::new(consumer.build().unwrap().spawn());
    seen.until(|seen| seen.len() == 1).await;
    let asked = Instant::now();
    let first = Arc::clone(&handle);
    // Longer than the setting `shutdown_timeout`: what is asked for counts.
    let first = tokio::spawn(async move { first.shutdown(Duration::MAX).await.unwrap() });
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!handle.is_finished());
    let report = handle.shutdown(Duration::from_secs(2)).await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 52);
    assert_eq!(first.await.unwrap(), report);
}

/// F-37: the lease store is down when the stop comes: it ends all the same, says what was not stored, and the records come
/// again on the next worker.
#[tokio::test(start_paused = true)]
async fn a_stop_without_the_lease_store_ends_and_says_so() {
    let world = World::new(3);
    world.put(0, 30, 30);
    let journal = Journal::default();
    let consumer = world.consumer("w1").checkpoint_interval(LONG).for_each(journal.handler("w1"));
    let handle = consumer.build().unwrap().spawn();
    journal.until_distinct(30).await;
    world.leases.trouble(Trouble::Down);
    let asked = Instant::now();
    let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert!(!report.is_clean(), "{report:?}");
    for shard in &report.shards {
        let lost = shard.outcome == ShardOutcome::LeaseLost;
        assert!(lost || matches!(shard.outcome, ShardOutcome::NotStored { .. }), "{shard:?}");
        assert_eq!(shard.stored, None);
    }
    no_task_is_left().await;
    world.leases.trouble(Trouble::None);
    let again = Journal::default();
    let handle = world.consumer("w2").for_each(again.handler("w2")).build().unwrap().spawn();
    again.until_distinct(30).await;
    assert!(stop(&handle).await.is_clean());
}

/// F-37, R-09: the signal comes during the start: at whatever moment, nothing is left running or owned; and a start that
/// hangs does not hold it up for longer than a closing step.
#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_leaves_nothing() {
    for moments in 0..60 {
        let world = World::new(3);
        world.put(0, 9, 9);
        let journal = Journal::default();
        let handle = world.consumer("w1").for_each(journal.handler("w1")).build().unwrap().spawn();
        for _ in 0..moments {
            tokio::task::yield_now().await;
        }
        let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(world.owners().iter().all(|(_, owner)| owner.is_none()), "{moments}: {:?}", world.owners());
        no_task_is_left().await;
    }
    for operation in [Operation::DescribeStreamSummary, Operation::ListShards] {
        let world = World::new(1);
        world.kinesis.faults().on(operation).always().inject(Fault::Hang(LONG));
        let handle = world.consumer("w1").for_each(Journal::default().handler("w1")).build().unwrap().spawn();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let asked = Instant::now();
        let report = handle.shutdown(Duration::from_secs(60)).await.unwrap();
        assert_eq!(asked.elapsed().as_secs(), 5, "close_timeout");
        assert!(report.shards.is_empty() && report.is_clean());
        no_task_is_left().await;
    }
}

/// F-16: a handler that blocks its thread beyond the stop's deadline is reported as stuck; its lease is not given to
/// another worker, which might meet the handler still at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_is_reported_as_stuck() {
    let world = World::new(2);
    world.put(0, 10, 10);
    let seen = Seen::default();
    let log = seen.clone();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let blocked = world.kinesis.records(STREAM).unwrap()[0].shard_id.clone();
    let name = blocked.clone();
    let store: Arc<dyn LeaseStore> = world.leases.clone();
    let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
        .lease_store(store)
        .close_timeout(Duration::from_millis(100))
        .for_each_batch(move |batch: RecordBatch| {
            log.add(batch.source().shard().as_str());
            if batch.source().shard().as_str() == name {
                held.lock().unwrap().recv().unwrap_err();
            }
            async { Ok::<_, Infallible>(()) }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 2).await;
    let report = handle.shutdown(Duration::from_millis(100)).await.unwrap();
    for shard in &report.shards {
        let is_blocked = shard.shard.shard().as_str() == blocked;
        assert_eq!(shard.outcome, if is_blocked { ShardOutcome::Stuck } else { ShardOutcome::Clean });
    }
    assert!(!report.leases_released);
    assert!(world.row(&blocked).await.owner.is_some(), "it expires by itself");
    drop(release);
}

/// S-004, S-043: dropping a consumer is a crash also with the heartbeat on its own thread: nothing is released, so that no
/// other worker meets a handler that is still at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_consumer_releases_nothing() {
    for _ in 0..20 {
        let world = World::new(4);
        let store: Arc<dyn LeaseStore> = world.leases.clone();
        let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
            .lease_store(store)
            .worker_id("w1")
            .for_each(Journal::default().handler("w1"));
        let handle = consumer.build().unwrap().spawn();
        eventually(|| world.shares(&["w1"]) == [4]).await;
        drop(handle);
        eventually(|| Arc::strong_count(&world.leases) == 1).await;
        assert_eq!(world.shares(&["w1"]), [4]);
    }
}

/// S-018: what was delivered before the stop and after the restart is everything, once.
#[tokio::test(start_paused = true)]
async fn stops_and_restarts_repeat_nothing() {
    let world = World::new(3);
    let journal = Journal::default();
    for round in 0..5 {
        world.put(round * 30, round * 30 + 30, 30);
        let handle = world.consumer("w1").for_each(journal.handler("w1")).build().unwrap().spawn();
        let part = usize::try_from(round).unwrap() * 30 + 10;
        eventually(|| journal.len() >= part).await;
        assert!(stop(&handle).await.is_clean());
    }
    let handle = world.consumer("w1").for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(150).await;
    assert!(stop(&handle).await.is_clean());
    let seen: Vec<String> = journal.all().iter().map(|seen| seen.number.to_string()).collect();
    assert_eq!(sorted(seen), sorted(numbers(0, 150)));
}
