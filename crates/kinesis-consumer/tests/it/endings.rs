//! Every tenure has exactly one ending callback, whatever happened; and nothing unfinished is ever stored.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::{
    Ack, BoxError, CheckpointVerb, Checkpointer, ConsumerBuilder, ConsumerHandle, FailurePolicy, Initialize,
    OnExhausted, Record, RecordAck, RecordBatch, RecordProcessor, ShardOutcome,
};
use kinesis_core::Checkpoint;
use tokio::time::Instant;

use crate::common::{Journal, LONG, STREAM, Seen, World, eventually, stop, text};
use crate::shelf::Trouble;
use crate::sources::PushSource;

const SHARD: &str = "shardId-000000000000";

/// What a callback does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Does {
    #[default]
    Works,
    Fails,
    Hangs,
}

impl Does {
    async fn it(self) -> Result<(), BoxError> {
        match self {
            Self::Works => Ok(()),
            Self::Fails => Err("it fails".into()),
            Self::Hangs => std::future::pending().await,
        }
    }
}

/// A processor whose callbacks do as told, and which writes down that they were called.
#[derive(Clone, Default)]
struct Actor {
    seen: Seen,
    initialize: Does,
    /// From this record on.
    process: (u32, Does),
    shard_ended: Does,
    shutdown_requested: Does,
}

impl Actor {
    fn process(from: u32, does: Does) -> Self {
        Self { process: (from, does), ..Self::default() }
    }

    /// The endings that were called, each once: a callback that is tried again counts once.
    fn endings(&self) -> Vec<String> {
        let mut endings: Vec<_> =
            self.seen.all().into_iter().filter(|line| line.contains("ending")).collect();
        endings.dedup();
        endings
    }

    fn spawn(&self, consumer: ConsumerBuilder) -> ConsumerHandle {
        let actor = self.clone();
        consumer.processor(move |_| actor.clone()).build().unwrap().spawn()
    }
}

impl RecordProcessor for Actor {
    type Error = BoxError;

    async fn initialize(&mut self, _: &Initialize) -> Result<(), BoxError> {
        self.seen.add("initialize");
        self.initialize.it().await
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, BoxError> {
        for record in batch.records() {
            self.seen.add(text(record));
        }
        let last: u32 = text(batch.records().last().unwrap()).parse()?;
        if last >= self.process.0 { self.process.1.it().await.map(|()| Ack::All) } else { Ok(Ack::All) }
    }

    async fn shard_ended(&mut self, _: &Checkpointer) -> Result<(), BoxError> {
        self.seen.add("ending: shard ended");
        self.shard_ended.it().await
    }

    async fn shutdown_requested(&mut self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
        self.seen.add("ending: shutdown requested");
        // As in every example of the KCL: whatever was handed over and worked is finished.
        checkpointer.checkpoint().await?;
        self.shutdown_requested.it().await
    }

    async fn lease_lost(&mut self) {
        self.seen.add("ending: lease lost");
    }
}

fn sequence(world: &World, record: usize) -> String {
    world.kinesis.records(STREAM).unwrap()[record].sequence_number.clone()
}

/// S-014, S-021, F-37: a handler that does not return is given up; its processor still hears of the stop, once, and what
/// that stores ends before the records that it did not finish.
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_given_up_stores_nothing_unfinished() {
    let world = World::new(1);
    world.put(0, 4, 1);
    let actor = Actor::process(2, Does::Hangs);
    let handle = actor.spawn(world.consumer("w1").max_batch_records(2).checkpoint_interval(LONG));
    actor.seen.until(|seen| seen.len() == 5).await;
    let report = handle.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(report.shards[0].outcome, ShardOutcome::GaveUp);
    assert_eq!(report.shards[0].unfinished, 2);
    assert_eq!(actor.endings(), ["ending: shutdown requested"]);
    assert_eq!(world.stored(SHARD), sequence(&world, 1));
    assert_eq!(world.row(SHARD).await.owner, None);
}

/// S-017, C-14: a handler that failed for good: one ending, when the lease is given up, and nothing stored past the
/// failure, whatever becomes of the shard.
#[tokio::test(start_paused = true)]
async fn a_handler_that_failed_for_good_stores_nothing_unfinished() {
    for on_exhausted in [OnExhausted::HoldIdle, OnExhausted::ReleaseLease, OnExhausted::StopWorker] {
        let world = World::new(1);
        world.put(0, 4, 1);
        let actor = Actor::process(2, Does::Fails);
        let consumer = world
            .consumer("w1")
            .max_batch_records(2)
            .checkpoint_interval(LONG)
            .failure_policy(FailurePolicy::StopShard { attempts: 2 })
            .on_exhausted(on_exhausted);
        let handle = actor.spawn(consumer);
        actor.seen.until(|seen| seen.iter().filter(|line| *line == "2").count() == 2).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let held = on_exhausted == OnExhausted::HoldIdle;
        assert_eq!(world.row(SHARD).await.owner.is_some(), held, "{on_exhausted:?}");
        assert_eq!(actor.endings().is_empty(), held, "the end comes when the lease is given up");
        let result = handle.shutdown(Duration::from_secs(1)).await;
        assert_eq!(result.is_err(), on_exhausted == OnExhausted::StopWorker);
        assert_eq!(actor.endings(), ["ending: shutdown requested"]);
        assert_eq!(world.stored(SHARD), sequence(&world, 1), "{on_exhausted:?}");
    }
}

/// S-015, S-017: a lease that is lost while a handler works: the handler is dropped after a grace, then lease-lost.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_a_handler_ends_with_lease_lost() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let actor = Actor::process(0, Does::Hangs);
    let handle = actor.spawn(world.consumer("w1"));
    actor.seen.until(|seen| seen.len() == 3).await;
    world.steal(SHARD).await;
    actor.seen.until(|seen| seen.len() == 4).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(actor.endings(), ["ending: lease lost"]);
    assert_eq!(world.row(SHARD).await.checkpoint, Checkpoint::TrimHorizon);
    drop(handle);
}

/// S-017: a lease that is lost while the callback that ends the tenure is running gets no second ending.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_while_ending_has_no_second_ending() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let actor = Actor { shutdown_requested: Does::Hangs, ..Actor::default() };
    let handle = Arc::new(actor.spawn(world.consumer("w1")));
    actor.seen.until(|seen| seen.len() == 3).await;
    let stopping = Arc::clone(&handle);
    let report = tokio::spawn(async move { stopping.shutdown(Duration::from_secs(60)).await.unwrap() });
    actor.seen.until(|seen| seen.len() == 4).await;
    world.steal(SHARD).await;
    let report = report.await.unwrap();
    assert_eq!(report.shards[0].outcome, ShardOutcome::LeaseLost);
    assert_eq!(actor.endings(), ["ending: shutdown requested"]);
    assert!(report.uptime < Duration::from_secs(20), "{report:?}");

    let world = World::new(1);
    world.put(0, 2, 1);
    world.kinesis.split(STREAM, SHARD).unwrap();
    let actor = Actor { shard_ended: Does::Hangs, ..Actor::default() };
    let handle = actor.spawn(world.consumer("w1"));
    actor.seen.until(|seen| seen.len() == 4).await;
    world.steal(SHARD).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(actor.endings(), ["ending: shard ended"]);
    assert_eq!(world.stored(SHARD), sequence(&world, 1), "the end is the thief's to store");
    drop(handle);
}

/// S-013, F-37: a stop that comes during initialize: one that returns in time goes on to a clean end; one that does not
/// is given up.
#[tokio::test(start_paused = true)]
async fn a_stop_during_initialize_ends_the_tenure() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let actor = Actor { initialize: Does::Hangs, ..Actor::default() };
    let handle = actor.spawn(world.consumer("w1"));
    actor.seen.until(|seen| seen.len() == 1).await;
    let asked = Instant::now();
    let report = handle.shutdown(Duration::from_secs(3)).await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 3);
    assert_eq!(report.shards[0].outcome, ShardOutcome::GaveUp);
    assert_eq!(actor.seen.all(), ["initialize", "ending: shutdown requested"]);
    assert_eq!(world.row(SHARD).await.owner, None);
}

/// F-20, S-017: a shard whose end callback keeps failing when the stop comes: no other ending, the end is not stored,
/// and the next owner reads it again.
#[tokio::test(start_paused = true)]
async fn a_stop_while_the_end_callback_fails_leaves_the_end_to_the_next_owner() {
    let world = World::new(1);
    world.put(0, 2, 1);
    world.kinesis.split(STREAM, SHARD).unwrap();
    let actor = Actor { shard_ended: Does::Fails, ..Actor::default() };
    let handle = actor.spawn(world.consumer("w1"));
    actor.seen.until(|seen| seen.len() > 8).await;
    let asked = Instant::now();
    let report = stop(&handle).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "nothing is worth waiting for");
    assert!(!report.is_clean());
    assert_eq!(actor.endings(), ["ending: shard ended"]);
    assert_eq!(world.stored(SHARD), sequence(&world, 1));
    let next = Actor::default();
    let handle = next.spawn(world.consumer("w2"));
    eventually(|| world.is_ended(SHARD)).await;
    assert_eq!(next.seen.all()[..2], ["initialize", "ending: shard ended"]);
    assert!(stop(&handle).await.is_clean());
}

/// F-23: shards that are held idle, wait for room, or whose handler keeps failing are handed over when asked for.
#[tokio::test(start_paused = true)]
async fn shards_that_do_not_get_on_are_handed_over_all_the_same() {
    for policy in [FailurePolicy::StopShard { attempts: 1 }, FailurePolicy::RetryForever] {
        let world = World::new(2);
        world.put(0, 20, 20);
        let actor = Actor::process(0, Does::Fails);
        let one = actor.spawn(world.consumer("w1").failure_policy(policy));
        actor.seen.until(|seen| seen.len() > 20).await;
        let journal = Journal::default();
        let two = world.consumer("w2").for_each(journal.handler("w2")).build().unwrap().spawn();
        let asked = Instant::now();
        eventually(|| journal.len() > 0).await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{policy:?}: {:?}", asked.elapsed());
        assert_eq!(world.shares(&["w1", "w2"]), [1, 1]);
        stop(&one).await;
        stop(&two).await;
    }
    // Waiting for room: the batch is finished by hand, later.
    let world = World::new(2);
    world.put(0, 20, 20);
    let held = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&held);
    let consumer = world.consumer("w1").checkpoint_limit(1).for_each(move |mut record: Record| {
        taken.lock().unwrap().push(record.completion().unwrap());
        async { Ok::<_, BoxError>(RecordAck::Manual) }
    });
    let one = consumer.build().unwrap().spawn();
    eventually(|| held.lock().unwrap().len() == 2).await;
    let journal = Journal::default();
    let two = world.consumer("w2").for_each(journal.handler("w2")).build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(journal.len(), 0, "the record in work may still be finished");
    held.lock().unwrap().drain(..).for_each(kinesis_consumer::Completion::done);
    let asked = Instant::now();
    eventually(|| journal.len() > 0).await;
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    drop((one, two));
}

/// F-37: a stop does not wait for records that only the engine could offer again.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_failing_handler() {
    let world = World::new(1);
    world.put(0, 4, 1);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let consumer = world.consumer("w1").for_each_batch(move |_: RecordBatch| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err::<(), BoxError>("destination away".into()) }
    });
    let handle = consumer.build().unwrap().spawn();
    eventually(|| calls.load(Ordering::SeqCst) == 4).await;
    let asked = Instant::now();
    let report = stop(&handle).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(report.shards[0].outcome, ShardOutcome::GaveUp);
    assert_eq!(report.shards[0].unfinished, 4);
}

/// S-014: a processor that finishes its batches by hand does so when it hears of the stop, and the stop waits for that.
#[tokio::test(start_paused = true)]
async fn a_processor_finishes_its_batches_when_it_hears_of_the_stop() {
    struct Buffers(Seen);
    impl RecordProcessor for Buffers {
        type Error = BoxError;
        async fn process(&mut self, batch: RecordBatch) -> Result<Ack, BoxError> {
            batch.records().iter().for_each(|record| self.0.add(text(record)));
            Ok(Ack::Manual)
        }
        async fn shutdown_requested(&mut self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
            tokio::time::sleep(Duration::from_secs(7)).await; // It flushes.
            Ok(checkpointer.checkpoint().await?)
        }
    }
    let world = World::new(1);
    world.put(0, 4, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Buffers(log.clone())).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    let asked = Instant::now();
    let report = stop(&handle).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(asked.elapsed().as_secs(), 7);
    assert_eq!(world.stored(SHARD), sequence(&world, 3));
}

/// S-021: when the records of a failed batch are offered one by one, the checkpointer of each means that record, and the
/// bad one is not passed over before the dead-letter service has it.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_during_single_offers_means_the_single_record() {
    let world = World::new(1);
    world.put(0, 4, 1);
    let letters = Seen::default();
    let (post, rows) = (letters.clone(), world.clone());
    let consumer = world
        .consumer("w1")
        .failure_policy(FailurePolicy::SkipAfter { attempts: 2 })
        .dead_letter(tower::service_fn(move |letter: kinesis_consumer::DeadLetter| {
            post.add(format!("{} with {} stored", text(&letter.record), rows.stored(SHARD)));
            async { Ok::<_, BoxError>(()) }
        }))
        .for_each_batch(move |batch: RecordBatch| async move {
            if batch.records().iter().any(|record| text(record) == "2") {
                return Err::<(), BoxError>("bad".into());
            }
            batch.checkpointer().checkpoint().await?;
            Ok(())
        });
    let handle = consumer.build().unwrap().spawn();
    letters.until(|letters| letters.len() == 1).await;
    assert_eq!(letters.all(), [format!("2 with {} stored", sequence(&world, 1))]);
    assert!(stop(&handle).await.is_clean());
    assert_eq!(world.stored(SHARD), sequence(&world, 3));
}

/// F-11: what a handler finished through its checkpointer before it failed is not offered again, with either verb.
#[tokio::test(start_paused = true)]
async fn what_was_finished_by_hand_is_not_offered_again() {
    for verb in [CheckpointVerb::UpTo, CheckpointVerb::Done] {
        let world = World::new(1);
        world.put(0, 5, 1);
        let seen = Seen::default();
        let log = seen.clone();
        let consumer =
            world.consumer("w1").checkpoint_verb(verb).for_each_batch(move |batch: RecordBatch| {
                let first = log.len() == 0;
                log.add(batch.records().iter().map(text).collect::<Vec<_>>().join(" "));
                async move {
                    if !first {
                        return Ok::<_, BoxError>(());
                    }
                    let third = batch.records()[2].position();
                    match verb {
                        CheckpointVerb::UpTo => batch.checkpointer().checkpoint_to(third).await?,
                        CheckpointVerb::Done => batch.checkpointer().done(third)?,
                    }
                    Err("away".into())
                }
            });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.len() == 2).await;
        let again = if verb == CheckpointVerb::UpTo { "3 4" } else { "0 1 3 4" };
        assert_eq!(seen.all(), ["0 1 2 3 4", again]);
        assert!(stop(&handle).await.is_clean());
        assert_eq!(world.stored(SHARD), sequence(&world, 4));
    }
}

/// A handle of a try that failed means nothing for the next one.
#[tokio::test(start_paused = true)]
async fn a_handle_of_a_failed_try_means_nothing_later() {
    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let held = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&held);
    let consumer = world.consumer("w1").for_each(move |mut record: Record| {
        log.add("offered");
        let completion = record.completion().unwrap();
        match log.len() {
            1 => drop(completion),
            _ => taken.lock().unwrap().push(completion),
        }
        let fails = log.len() < 3;
        async move { if fails { Err("away") } else { Ok(RecordAck::Manual) } }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 3).await;
    drop(held.lock().unwrap().remove(0)); // Of the second try.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.len(), 3);
    held.lock().unwrap().remove(0).done();
    assert!(stop(&handle).await.is_clean());
    assert_eq!(world.stored(SHARD), sequence(&world, 0));
}

/// F-16: a factory of processors that panics costs its own shard a rest and nobody else anything.
#[tokio::test(start_paused = true)]
async fn a_factory_that_panics_is_contained_to_its_shard() {
    let world = World::new(2);
    world.put(0, 40, 40);
    let on_first =
        world.kinesis.records(STREAM).unwrap().iter().filter(|record| record.shard_id == SHARD).count();
    let (actor, panics) = (Actor::default(), Arc::new(AtomicU32::new(0)));
    let (made, counted) = (actor.clone(), Arc::clone(&panics));
    let consumer = world.consumer("w1").cool_down(Duration::from_secs(100)).processor(move |shard| {
        if shard.shard().as_str() == SHARD && counted.fetch_add(1, Ordering::SeqCst) < 2 {
            panic!("no connection");
        }
        made.clone()
    });
    let handle = consumer.build().unwrap().spawn();
    actor.seen.until(|seen| seen.len() == 1 + 40 - on_first).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let row = world.row(SHARD).await;
    assert_eq!((row.owner, row.cool_down.unwrap().failures), (None, 1));
    assert_eq!(panics.load(Ordering::SeqCst), 1, "no crash loop");
    // It works the third time, after two rests.
    actor.seen.until(|seen| seen.len() == 2 + 40).await;
    assert!(stop(&handle).await.is_clean());
}

/// S-058: a source that does not say which shards follow: they are found by listing, and read.
#[tokio::test(start_paused = true)]
async fn children_that_the_source_does_not_name_are_found() {
    let world = World::new(1);
    world.put(0, 5, 5);
    world.kinesis.split(STREAM, SHARD).unwrap();
    world.put(5, 10, 5);
    let journal = Journal::default();
    let source = PushSource::new(&world.kinesis).without_children();
    let consumer = world.consumer("w1").source(Arc::new(source)).for_each(journal.handler("w1"));
    let handle = consumer.build().unwrap().spawn();
    let started = Instant::now();
    journal.until_distinct(10).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(world.is_ended(SHARD));
    assert!(stop(&handle).await.is_clean());
}

/// F-37: the end of a shard that cannot be stored at the stop is reported, and the next owner stores it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_that_cannot_be_stored_is_reported() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let actor = Actor::default();
    let handle = actor.spawn(world.consumer("w1"));
    actor.seen.until(|seen| seen.len() == 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.leases.trouble(Trouble::Down);
    world.kinesis.split(STREAM, SHARD).unwrap();
    actor.seen.until(|seen| seen.len() == 4).await;
    let report = handle.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(matches!(report.shards[0].outcome, ShardOutcome::NotStored { .. }), "{report:?}");
    assert!(!report.leases_released && !report.is_clean());
    assert_eq!(actor.endings(), ["ending: shard ended"]);
    world.leases.trouble(Trouble::None);
    let next = Actor::default();
    let handle = next.spawn(world.consumer("w2"));
    eventually(|| world.is_ended(SHARD)).await;
    assert!(stop(&handle).await.is_clean());
}
