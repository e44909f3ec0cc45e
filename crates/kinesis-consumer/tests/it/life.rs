//! The life of processors under random trouble; layers; what a handler that blocks or panics costs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::core::lease::LeaseStore;
use kinesis_consumer::lease::LeaseConfig;
use kinesis_consumer::poll::PollConfig;
use kinesis_consumer::{
    Ack, BatchService, BoxError, Checkpointer, Consumer, Initialize, OnExhausted, RecordBatch,
    RecordProcessor,
};
use kinesis_core::metrics::Recorder;
use tower::util::MapRequestLayer;
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::common::{APPLICATION, STREAM, Seen, World, eventually, stop, text};
use crate::shelf::Trouble;

/// The calls of each processor, in order.
type Calls = Arc<Mutex<BTreeMap<u32, Vec<&'static str>>>>;

/// A processor that works, fails, panics, dawdles or hangs as the dice fall.
struct Dice {
    id: u32,
    calls: Calls,
    random: fastrand::Rng,
    finished: Seen,
}

impl Dice {
    fn call(&self, name: &'static str) {
        self.calls.lock().unwrap().entry(self.id).or_default().push(name);
    }

    async fn roll(&mut self) -> Result<(), BoxError> {
        match self.random.u32(..12) {
            0 | 1 => Err("unlucky".into()),
            2 => panic!("unlucky"),
            3 => {
                tokio::time::sleep(Duration::from_secs(self.random.u64(..40))).await;
                Ok(())
            }
            4 => {
                tokio::time::sleep(Duration::from_secs(100)).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl RecordProcessor for Dice {
    type Error = BoxError;

    async fn initialize(&mut self, _: &Initialize) -> Result<(), BoxError> {
        self.call("initialize");
        self.roll().await
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, BoxError> {
        self.call("process");
        self.roll().await?;
        batch.records().iter().for_each(|record| self.finished.add(text(record)));
        Ok(Ack::All)
    }

    async fn shard_ended(&mut self, _: &Checkpointer) -> Result<(), BoxError> {
        self.call("shard ended");
        self.roll().await
    }

    async fn shutdown_requested(&mut self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
        self.call("shutdown requested");
        drop(checkpointer.checkpoint().await);
        self.roll().await
    }

    async fn lease_lost(&mut self) {
        self.call("lease lost");
        drop(self.roll().await);
    }
}

/// S-017, S-022: whatever handlers do and whatever happens around them (stops, thefts, joining workers, reshards, a store
/// that is down): each processor is initialized first, then processes, then has exactly one ending, and no call after it;
/// and in the end every record was finished.
#[tokio::test(start_paused = true)]
async fn every_processor_has_one_life() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::new(2);
        world.put(0, 40, 10);
        let (calls, ids, finished) = (Calls::default(), Arc::new(AtomicU32::new(0)), Seen::default());
        let (log, count, done) = (Arc::clone(&calls), Arc::clone(&ids), finished.clone());
        let spawn = |worker: &str| {
            let (log, count, done) = (Arc::clone(&log), Arc::clone(&count), done.clone());
            let consumer = world
                .consumer(worker)
                .max_batch_records(3)
                .retry_max(Duration::from_secs(2))
                .poll(PollConfig::default().idle_interval(Duration::from_secs(5)))
                .on_exhausted(OnExhausted::ReleaseLease)
                .processor(move |_| {
                    let id = count.fetch_add(1, Ordering::SeqCst);
                    Dice {
                        id,
                        calls: Arc::clone(&log),
                        random: fastrand::Rng::with_seed(seed * 1_000 + u64::from(id)),
                        finished: done.clone(),
                    }
                });
            consumer.build().unwrap().spawn()
        };
        let mut workers = vec![spawn("w0")];
        for event in 0..8 {
            tokio::time::sleep(Duration::from_secs(random.u64(1..20))).await;
            match random.u32(..5) {
                0 => workers.push(spawn(&format!("w{}", event + 1))),
                1 if workers.len() > 1 => {
                    workers.remove(0).shutdown(Duration::from_secs(random.u64(..15))).await.unwrap();
                }
                2 => {
                    let rows = world.leases.rows();
                    let owned = rows.iter().filter(|row| row.owner.is_some()).collect::<Vec<_>>();
                    if let Some(row) = random.choice(owned) {
                        world.steal(row.key.shard().as_str()).await;
                    }
                }
                3 => {
                    let shards = world.kinesis.shards(STREAM).unwrap();
                    let open = shards.iter().filter(|shard| shard.is_open()).collect::<Vec<_>>();
                    if open.len() < 5 {
                        world.kinesis.split(STREAM, &random.choice(open).unwrap().shard_id).unwrap();
                    }
                }
                _ => {
                    world.leases.trouble(Trouble::Down);
                    tokio::time::sleep(Duration::from_secs(random.u64(1..15))).await;
                    world.leases.trouble(Trouble::None);
                }
            }
        }
        let all = |seen: &[String]| (0..40).all(|number| seen.contains(&number.to_string()));
        let waited = tokio::time::timeout(Duration::from_secs(3_600), async {
            while !all(&finished.all()) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("seed {seed}: {:?}", finished.all()));
        for worker in &workers {
            worker.shutdown(Duration::from_secs(30)).await.unwrap();
        }
        for (id, calls) in &*calls.lock().unwrap() {
            let mut kinds = calls.clone();
            kinds.dedup();
            let [first, middle @ .., last] = &kinds[..] else { panic!("seed {seed}, {id}: {kinds:?}") };
            assert_eq!(*first, "initialize", "seed {seed}, {id}: {kinds:?}");
            assert!(middle.is_empty() || middle == ["process"], "seed {seed}, {id}: {kinds:?}");
            let endings = ["shard ended", "shutdown requested", "lease lost"];
            assert!(endings.contains(last), "seed {seed}, {id}: {kinds:?}");
        }
    }
}

/// F-16, S-017: a processor that panics once in each of its callbacks: contained, tried again where that is of use, and
/// the stop is clean.
#[tokio::test(start_paused = true)]
async fn panics_in_callbacks_are_contained() {
    struct Panics(Seen);
    impl Panics {
        fn first(&self, call: &'static str) {
            self.0.add(call);
            assert!(self.0.count(call) > 1, "bug in {call}");
        }
    }
    impl RecordProcessor for Panics {
        type Error = Infallible;
        async fn initialize(&mut self, _: &Initialize) -> Result<(), Infallible> {
            self.first("initialize");
            Ok(())
        }
        async fn process(&mut self, _: RecordBatch) -> Result<Ack, Infallible> {
            self.first("process");
            Ok(Ack::All)
        }
        async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), Infallible> {
            self.first("shutdown requested");
            Ok(())
        }
    }
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Panics(log.clone())).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), ["initialize", "initialize", "process", "process", "shutdown requested"]);
    assert_eq!(
        world.stored("shardId-000000000000"),
        world.kinesis.records(STREAM).unwrap()[2].sequence_number
    );
}

/// F-16, S-047: a handler that blocks the only thread of its runtime for three expiries keeps its lease, because the
/// heartbeat has a thread of its own.
#[tokio::test]
async fn a_handler_that_blocks_its_runtime_keeps_its_lease() {
    let world = World::new(1);
    world.put(0, 1, 1);
    let recorder = Recorder::new();
    let seen = Seen::default();
    let log = seen.clone();
    let store: Arc<dyn LeaseStore> = world.leases.clone();
    let expiry = Duration::from_millis(1_500);
    let lease = LeaseConfig::default().expiry(expiry).heartbeat_interval(Duration::from_millis(200));
    let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
        .lease_store(store)
        .lease(lease)
        .metrics(Arc::new(recorder.clone()))
        .for_each_batch(move |_: RecordBatch| {
            std::thread::sleep(expiry * 3);
            log.add("done");
            async { Ok::<_, Infallible>(()) }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 1).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(recorder.total("lease_lost_total"), 0);
    assert_eq!(world.row("shardId-000000000000").await.epoch, 1, "it was taken once");
    assert_eq!(seen.len(), 1);
}

/// Writes down that a batch passes, on its way in.
fn note(
    seen: &Seen,
    name: &'static str,
) -> MapRequestLayer<impl Fn(RecordBatch) -> RecordBatch + Clone + use<>> {
    let seen = seen.clone();
    MapRequestLayer::new(move |batch| {
        seen.add(name);
        batch
    })
}

/// D-03: with the builder the last layer is outermost, inside a `ServiceBuilder` the first; lifecycle callbacks pass no
/// layer; a layer that is not ready holds the batch back.
#[tokio::test(start_paused = true)]
async fn layers_wrap_as_documented() {
    struct Plain;
    impl RecordProcessor for Plain {
        type Error = Infallible;
        async fn process(&mut self, _: RecordBatch) -> Result<Ack, Infallible> {
            Ok(Ack::All)
        }
    }
    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let handle = world
        .consumer("w1")
        .processor(|_| Plain)
        .layer(note(&seen, "inner"))
        .layer(note(&seen, "outer"))
        .build()
        .unwrap()
        .spawn();
    seen.until(|seen| seen.len() == 2).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), ["outer", "inner"], "and nothing for initialize and the stop");

    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let service = ServiceBuilder::new()
        .layer(note(&seen, "outer"))
        .layer(note(&seen, "inner"))
        .service(tower::service_fn(|_: RecordBatch| async { Ok::<_, Infallible>(()) }));
    let handle = world.consumer("w1").batches(service).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 2).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), ["outer", "inner"]);

    // One permit for two shards: the other waits in `ready`, not in the handler.
    let world = World::new(2);
    world.put(0, 20, 20);
    let (busy, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, highest) = (Arc::clone(&busy), Arc::clone(&most));
    let handle = world
        .consumer("w1")
        .for_each_batch(move |_: RecordBatch| {
            let (count, highest) = (Arc::clone(&count), Arc::clone(&highest));
            async move {
                highest.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(5)).await;
                count.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(())
            }
        })
        .layer(tower::limit::GlobalConcurrencyLimitLayer::new(1))
        .build()
        .unwrap()
        .spawn();
    let stored = || world.leases.rows().iter().filter(|row| row.checkpoint.position().is_some()).count();
    eventually(|| stored() == 2).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(stop(&handle).await.is_clean());
}

/// The erased services are services: a layer of one's own can call them.
fn _erased_services_compose(service: BatchService) -> impl Service<RecordBatch> {
    service.map_response(drop)
}
