//! The workers: they crash, are cut off from their leases, stop and come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_consumer::core::error_chain;
use kinesis_consumer::core::lease::{
    Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
};
use kinesis_consumer::lease::{HeartbeatMode, LeaseConfig, MemoryStore, StartError};
use kinesis_consumer::{Consumer, ConsumerError, ConsumerHandle, Report};
use kinesis_testkit::TestKinesis;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::Source;
use crate::handler::{Handler, Shared};
use crate::ledger::Ledger;
use crate::service::STREAM;

pub(crate) const APPLICATION: &str = "soak";
pub(crate) const WORKERS: usize = 3;

/// What a worker finished so long before it crashed or was cut off may not have been stored: `checkpoint_interval`,
/// `checkpoint_spacing`, and a turn of the lease task.
const UNSTORED: Duration = Duration::from_secs(4);

/// How long after a cut-off a worker may still hold on to what it lost.
const AFTERMATH: Duration = Duration::from_secs(10);

const STOP: Duration = Duration::from_secs(30);

/// After this time a start is tried again that was refused.
const RESTART: Duration = Duration::from_secs(5);

/// How often a worker looks at all leases: rarely, for they are not what the soak is about.
const LOOK: Duration = Duration::from_secs(5);

/// A worker's way to the leases, which can be cut.
#[derive(Debug)]
struct Line {
    store: Arc<MemoryStore>,
    is_cut: AtomicBool,
}

impl Line {
    async fn pass(&self) -> Result<(), StoreError> {
        if self.is_cut.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            return Err(StoreError::unavailable("cut off by script"));
        }
        Ok(())
    }
}

#[async_trait]
impl LeaseStore for Line {
    async fn setup(&self) -> Result<(), StoreError> {
        self.pass().await?;
        self.store.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.pass().await?;
        self.store.get(keys).await
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.pass().await?;
        self.store.scan(request).await
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        match self.pass().await {
            Ok(()) => self.store.apply(writes).await,
            Err(_) => {
                let error = || Err(StoreError::unavailable("cut off by script"));
                writes.iter().map(|_| error()).collect()
            }
        }
    }
}

struct Worker {
    number: u32,
    handle: ConsumerHandle,
    line: Arc<Line>,
    cut_until: Option<Instant>,
}

/// How a worker ended.
type Ended = (u32, Result<Report, Arc<ConsumerError>>);

/// A place in the fleet.
enum Slot {
    Up(Worker),
    Down { until: Instant },
}

/// How often each thing happened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Happened {
    pub(crate) crashes: u32,
    pub(crate) cut_offs: u32,
    pub(crate) stops: u32,
}

/// How many causes of refused starts are told apart; there are fewer.
const CAUSES: usize = 50;

pub(crate) struct Fleet {
    source: Source,
    kinesis: TestKinesis,
    pub(crate) store: Arc<MemoryStore>,
    ledger: Arc<Ledger>,
    pub(crate) storm: Arc<AtomicBool>,
    random: fastrand::Rng,
    slots: Vec<Slot>,
    next_worker: u32,
    stops: JoinSet<Ended>,
    pub(crate) happened: Happened,
    /// Why starts were refused, and how often.
    pub(crate) refused_starts: BTreeMap<String, u32>,
}

impl Fleet {
    pub(crate) fn new(source: Source, kinesis: TestKinesis, ledger: Arc<Ledger>, seed: u64) -> Self {
        let now = Instant::now();
        Self {
            source,
            kinesis,
            store: Arc::new(MemoryStore::new()),
            ledger,
            storm: Arc::default(),
            random: fastrand::Rng::with_seed(seed),
            slots: (0..WORKERS).map(|_| Slot::Down { until: now }).collect(),
            next_worker: 0,
            stops: JoinSet::new(),
            happened: Happened::default(),
            refused_starts: BTreeMap::new(),
        }
    }

    /// Brings up and heals who is due, and looks after those that run.
    pub(crate) fn tend(&mut self, now: Instant) {
        for place in 0..self.slots.len() {
            match &mut self.slots[place] {
                Slot::Down { until } if *until <= now => {
                    let worker = self.start();
                    self.slots[place] = Slot::Up(worker);
                }
                Slot::Up(worker) => {
                    if worker.cut_until.take_if(|until| *until <= now).is_some() {
                        worker.line.is_cut.store(false, Ordering::Relaxed);
                    }
                    if worker.handle.is_finished() {
                        let until = now + RESTART;
                        if let Slot::Up(worker) =
                            std::mem::replace(&mut self.slots[place], Slot::Down { until })
                        {
                            self.stops.spawn(async move { (worker.number, worker.handle.finished().await) });
                        }
                    }
                }
                Slot::Down { .. } => {}
            }
        }
        while let Some(report) = self.stops.try_join_next() {
            self.stopped(report);
        }
    }

    /// Something happens to one of the workers, unless too few are well.
    pub(crate) fn disturb(&mut self, now: Instant) {
        let is_well = |slot: &Slot| matches!(slot, Slot::Up(worker) if worker.cut_until.is_none());
        let well: Vec<_> = (0..self.slots.len()).filter(|place| is_well(&self.slots[*place])).collect();
        if well.len() < 2 {
            return;
        }
        let place = well[self.random.usize(0..well.len())];
        let Slot::Up(worker) = &mut self.slots[place] else { return };
        let from = now.checked_sub(UNSTORED).unwrap_or(now);
        let pause = Duration::from_millis(self.random.u64(2_000..60_000));
        match self.random.u32(0..3) {
            0 => {
                self.happened.crashes += 1;
                self.ledger.outage(worker.number, from, None);
                self.slots[place] = Slot::Down { until: now + pause };
            }
            1 => {
                self.happened.cut_offs += 1;
                let until = now + pause;
                self.ledger.outage(worker.number, from, Some(until + AFTERMATH));
                worker.line.is_cut.store(true, Ordering::Relaxed);
                worker.cut_until = Some(until);
            }
            _ => self.stop(place, now + pause),
        }
    }

    /// Makes everybody well.
    pub(crate) fn calm(&mut self, now: Instant) {
        for slot in &mut self.slots {
            match slot {
                Slot::Down { until } => *until = now.min(*until),
                Slot::Up(worker) => worker.cut_until = worker.cut_until.map(|_| now),
            }
        }
        self.tend(now);
    }

    /// Stops everybody in order and waits for it.
    pub(crate) async fn close(&mut self) {
        for place in 0..self.slots.len() {
            self.stop(place, Instant::now());
        }
        while let Some(report) = self.stops.join_next().await {
            self.stopped(report);
        }
    }

    fn stop(&mut self, place: usize, until: Instant) {
        if let Slot::Up(worker) = std::mem::replace(&mut self.slots[place], Slot::Down { until }) {
            self.happened.stops += 1;
            self.stops.spawn(async move { (worker.number, worker.handle.shutdown(STOP).await) });
        }
    }

    fn stopped(&mut self, ended: Result<Ended, JoinError>) {
        match ended {
            // A handler that is stuck for longer than the stop waits is no violation.
            Ok((_, Ok(_))) => {}
            // A start does not try for ever; it is tried again.
            Ok((_, Err(error)))
                if matches!(
                    *error,
                    ConsumerError::Start(StartError::Directory(_)) | ConsumerError::Registration(_)
                ) =>
            {
                let text = error_chain(&*error);
                let cause = text.split(" (request id").next().unwrap_or_default();
                if self.refused_starts.len() < CAUSES || self.refused_starts.contains_key(cause) {
                    *self.refused_starts.entry(cause.to_owned()).or_default() += 1;
                }
            }
            Ok((number, Err(error))) => {
                self.ledger.violation(format!("worker {number} ended: {}", error_chain(&*error)));
            }
            Err(_) => self.ledger.violation("a stop panicked".to_owned()),
        }
    }

    fn start(&mut self) -> Worker {
        let number = self.next_worker;
        self.next_worker += 1;
        let line = Arc::new(Line { store: Arc::clone(&self.store), is_cut: AtomicBool::new(false) });
        let store: Arc<dyn LeaseStore> = line.clone();
        let seed = self.random.u64(..);
        let mut builder = Consumer::builder(self.kinesis.client(), APPLICATION, STREAM)
            .worker_id(format!("worker-{number}"))
            .lease_store(store)
            .heartbeat(HeartbeatMode::Inline)
            .lease(LeaseConfig::default().look_interval(LOOK))
            // Small, so that bursts fill it.
            .buffer_bytes(64 * 1024)
            .seed(seed);
        if self.source == Source::Efo {
            builder = builder.enhanced_fan_out(APPLICATION);
        }
        let shared =
            Shared { worker: number, ledger: Arc::clone(&self.ledger), storm: Arc::clone(&self.storm) };
        let mut random = fastrand::Rng::with_seed(seed);
        let seeds = std::sync::Mutex::new(move || random.u64(..));
        let consumer = builder
            .processor(move |_| {
                let seed = seeds.lock().map_or(0, |mut next| next());
                Handler::new(shared.clone(), seed)
            })
            .build()
            .expect("the settings are valid");
        Worker { number, handle: consumer.spawn(), line, cut_until: None }
    }
}
