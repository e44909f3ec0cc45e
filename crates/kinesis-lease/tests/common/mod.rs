//! A directory and stores that tests can look into.
#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests; each test binary uses a part of them")]

pub(crate) mod bad_rows;
pub(crate) mod looking_after;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_core::directory::{DirectoryError, ShardDirectory, ShardInfo, ShardPage, StreamDescription};
use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, Timestamp, WorkerId};
use kinesis_lease::{
    Coordinator, CoordinatorBuilder, HeartbeatMode, Lease, LeaseConfig, LeaseEvent, LeaseEvents, LeaseKey,
    LeaseStore, LeaseStoreSource, LeaseWrite, MemoryStore, Outcome, ScanPage, ScanRequest, StoreError,
    Tenure,
};

pub(crate) fn stream() -> StreamRef {
    StreamRef::new("orders").unwrap()
}

pub(crate) fn application() -> ApplicationName {
    ApplicationName::new("billing").unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(crate) fn shard(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).unwrap()
}

pub(crate) fn key(number: u32) -> LeaseKey {
    LeaseKey::new(application(), stream(), shard(number))
}

pub(crate) fn at(sequence: u128) -> Checkpoint {
    Checkpoint::At(Position::new(sequence.into(), 0))
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What happened at the seams, in order, by test-chosen names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn push(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, entry: &str) -> usize {
        self.entries().iter().filter(|found| *found == entry).count()
    }
}

/// A stream whose shards a test changes; two shards a page.
#[derive(Debug, Default)]
pub(crate) struct FakeDirectory {
    pub(crate) shards: Mutex<Vec<ShardInfo>>,
    pub(crate) failures: Mutex<VecDeque<DirectoryError>>,
    pub(crate) log: Log,
    pub(crate) readable: Mutex<bool>,
    pub(crate) time: Mutex<i64>,
    /// ARN and creation time, as far as the service tells them.
    pub(crate) identity: Mutex<(Option<String>, Option<Timestamp>)>,
}

impl FakeDirectory {
    pub(crate) fn new(shards: Vec<ShardInfo>) -> Arc<Self> {
        Self::logging(shards, Log::default())
    }

    pub(crate) fn logging(shards: Vec<ShardInfo>, log: Log) -> Arc<Self> {
        Arc::new(Self {
            shards: Mutex::new(shards),
            log,
            readable: Mutex::new(true),
            time: Mutex::new(1_000_000),
            ..Self::default()
        })
    }

    pub(crate) fn open(count: u32) -> Arc<Self> {
        Self::new((0..count).map(|number| ShardInfo::new(shard(number))).collect())
    }

    pub(crate) fn set(&self, shards: Vec<ShardInfo>) {
        *self.shards.lock().unwrap() = shards;
    }

    pub(crate) fn fail_next(&self, error: DirectoryError) {
        self.failures.lock().unwrap().push_back(error);
    }

    fn called(&self, action: &str) -> Result<(), DirectoryError> {
        self.log.push(action);
        match self.failures.lock().unwrap().pop_front() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl ShardDirectory for FakeDirectory {
    async fn list_shards(&self, _: &StreamRef, page: Option<&str>) -> Result<ShardPage, DirectoryError> {
        self.called("ListShards")?;
        let first: usize = page.map_or(0, |page| page.parse().unwrap());
        let shards = self.shards.lock().unwrap();
        let found: Vec<ShardInfo> = shards.iter().skip(first).take(2).cloned().collect();
        let next = (first + 2 < shards.len()).then(|| (first + 2).to_string());
        Ok(ShardPage::new(found, next))
    }

    async fn describe_stream(&self, _: &StreamRef) -> Result<StreamDescription, DirectoryError> {
        self.called("DescribeStreamSummary")?;
        let mut description = StreamDescription::new(1);
        description.readable = *self.readable.lock().unwrap();
        (description.arn, description.created_at) = self.identity.lock().unwrap().clone();
        Ok(description)
    }

    async fn server_time(&self, _: &StreamRef) -> Result<Timestamp, DirectoryError> {
        self.called("ServerTime")?;
        Ok(Timestamp::from_millis(*self.time.lock().unwrap()))
    }
}

/// What a call of a faulty store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Works, but the reply is lost.
    ReplyLost,
    /// Nothing happens, and the store says that it is not available.
    Unavailable,
    /// Nothing happens, and the store asks for fewer calls.
    Throttled,
    /// Never returns.
    Hang,
    /// Works, but the reply comes late.
    Slow(Duration),
    /// Refuses for good.
    Misconfigured,
}

type Chooser = dyn FnMut(&LeaseWrite) -> Option<Fault> + Send;
type ReadChooser = dyn FnMut() -> Option<Fault> + Send;

/// Memory with a log and faults.
#[derive(Clone, Default)]
pub(crate) struct FaultyStore {
    pub(crate) memory: MemoryStore,
    pub(crate) log: Log,
    pub(crate) scan_fault: Arc<Mutex<Option<Fault>>>,
    pub(crate) get_fault: Arc<Mutex<Option<Fault>>>,
    /// Beside those two, for each read anew.
    pub(crate) read_fault: Arc<Mutex<Option<Box<ReadChooser>>>>,
    pub(crate) apply_fault: Arc<Mutex<Option<Box<Chooser>>>>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl FaultyStore {
    pub(crate) fn on_apply(&self, choose: impl FnMut(&LeaseWrite) -> Option<Fault> + Send + 'static) {
        *self.apply_fault.lock().unwrap() = Some(Box::new(choose));
    }

    pub(crate) fn on_read(&self, choose: impl FnMut() -> Option<Fault> + Send + 'static) {
        *self.read_fault.lock().unwrap() = Some(Box::new(choose));
    }

    fn fault_of_read(&self, set: &Mutex<Option<Fault>>) -> Option<Fault> {
        let set = *set.lock().unwrap();
        set.or_else(|| self.read_fault.lock().unwrap().as_mut().and_then(|choose| choose()))
    }

    pub(crate) fn heal(&self) {
        *self.read_fault.lock().unwrap() = None;
        *self.apply_fault.lock().unwrap() = None;
        *self.scan_fault.lock().unwrap() = None;
        *self.get_fault.lock().unwrap() = None;
    }

    pub(crate) fn break_all(&self, fault: Fault) {
        self.on_apply(move |_| Some(fault));
        *self.scan_fault.lock().unwrap() = Some(fault);
        *self.get_fault.lock().unwrap() = Some(fault);
    }

    pub(crate) fn row(&self, number: u32) -> Lease {
        self.memory.snapshot().into_iter().find(|row| row.key == key(number)).expect("a row")
    }
}

async fn fail<T>(fault: Fault, work: impl Future<Output = T> + Send) -> Result<T, StoreError> {
    match fault {
        Fault::ReplyLost => {
            work.await;
            Err(StoreError::unavailable("connection reset"))
        }
        Fault::Unavailable => Err(StoreError::unavailable("connection refused")),
        Fault::Throttled => Err(StoreError::throttled(None, "slow down")),
        Fault::Misconfigured => Err(StoreError::misconfigured("no such table", None)),
        Fault::Hang => std::future::pending().await,
        Fault::Slow(delay) => {
            let result = work.await;
            tokio::time::sleep(delay).await;
            Ok(result)
        }
    }
}

#[async_trait]
impl LeaseStore for FaultyStore {
    async fn setup(&self) -> Result<(), StoreError> {
        self.log.push("setup");
        self.memory.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.log.push("get");
        match self.fault_of_read(&self.get_fault) {
            Some(fault) => fail(fault, self.memory.get(keys)).await?,
            None => self.memory.get(keys).await,
        }
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.log.push("scan");
        match self.fault_of_read(&self.scan_fault) {
            Some(fault) => fail(fault, self.memory.scan(request)).await?,
            None => self.memory.scan(request).await,
        }
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        self.log.push(format!("apply {}", writes.len()));
        let mut results = Vec::new();
        for write in writes {
            let fault = self.apply_fault.lock().unwrap().as_mut().and_then(|choose| choose(write));
            let work = self.memory.apply(std::slice::from_ref(write));
            results.push(match fault {
                Some(fault) => fail(fault, work).await.and_then(|mut done| done.remove(0)),
                None => work.await.remove(0),
            });
        }
        results
    }
}

/// An inline coordinator over a store and a directory.
pub(crate) fn builder(
    store: impl Into<LeaseStoreSource>,
    directory: &Arc<FakeDirectory>,
    name: &str,
) -> CoordinatorBuilder {
    Coordinator::builder(store, Arc::clone(directory) as Arc<dyn ShardDirectory>, application(), stream())
        .worker(worker(name))
        .heartbeat(HeartbeatMode::Inline)
        .seed(7)
}

/// The next tenure, whatever warnings come before.
pub(crate) async fn acquired(events: &mut LeaseEvents) -> Tenure {
    loop {
        match events.next().await.expect("the coordinator lives") {
            LeaseEvent::Acquired(tenure) => return tenure,
            LeaseEvent::Warning(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// Waits until a condition holds, in steps of the look interval's tenth.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(millis(100)).await;
    }
    panic!("never happened: {what}");
}

/// The same for a condition that has to be asked for.
pub(crate) async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(millis(100)).await;
    }
    panic!("never happened: {what}");
}

/// Two workers share the leases of what `source` opens, one takes over what the other releases, and checkpoints go on.
pub(crate) async fn workers_share_leases(source: impl Fn() -> LeaseStoreSource + Send + Sync) {
    let directory = FakeDirectory::open(4);
    let config = LeaseConfig::default().look_interval(millis(100));
    let start = |name: &'static str| {
        let builder = builder(source(), &directory, name).heartbeat(HeartbeatMode::OwnThread);
        builder.config(config.clone()).start()
    };
    let (first, mut events) = start("a").await.unwrap();
    let mut held = Vec::new();
    for number in 0..4 {
        let tenure = acquired(&mut events).await;
        tenure.checkpoint(at(100 + number)).await.unwrap();
        held.push(tenure);
    }
    let (second, mut others) = start("b").await.unwrap();
    let releasing = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let LeaseEvent::HandOver { key, .. } = event {
                let tenure = held.iter().find(|tenure| *tenure.key() == key).unwrap();
                tenure.release(None).await.unwrap();
            }
        }
    });
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(acquired(&mut others).await);
    }
    assert!(first.shutdown(secs(10)).await.is_complete());
    releasing.await.unwrap();
    for _ in 0..2 {
        taken.push(acquired(&mut others).await);
    }
    assert!(taken.iter().all(|tenure| tenure.lease().checkpoint >= at(100)));
    assert!(second.shutdown(secs(10)).await.is_complete());
}

/// A runtime that is blocked for three expiries holds up no heartbeat, also of a store that was opened on it.
pub(crate) async fn a_blocked_runtime_keeps_its_leases<S>(store: S)
where
    S: LeaseStore + Clone,
    LeaseStoreSource: From<S>,
{
    let directory = FakeDirectory::open(2);
    let config = LeaseConfig::default()
        .expiry(millis(2_000))
        .heartbeat_interval(millis(300))
        .look_interval(millis(200));
    let builder = builder(LeaseStoreSource::from(store.clone()), &directory, "a").config(config.clone());
    let (coordinator, mut events) = builder.heartbeat(HeartbeatMode::OwnThread).start().await.unwrap();
    let held = [acquired(&mut events).await, acquired(&mut events).await];
    std::thread::sleep(config.expiry * 3);
    for tenure in &held {
        assert!(!tenure.ownership().is_lost());
        tenure.checkpoint(at(5)).await.unwrap();
    }
    assert!(coordinator.shutdown(secs(10)).await.is_complete());
    let rows = store.get(&[key(0), key(1)]).await.unwrap();
    assert!(
        rows.into_iter().flatten().all(|row| row.epoch == 1 && row.counter > 10 && row.checkpoint == at(5))
    );
}

/// With a heartbeat for the whole worker its leases stand still, and its row moves once each interval: one write. A clean stop
/// leaves nothing of it.
pub(crate) async fn one_write_keeps_all_leases<S>(store: S, leases: u32)
where
    S: LeaseStore + Clone,
    LeaseStoreSource: From<S>,
{
    let directory = FakeDirectory::open(leases);
    let config = LeaseConfig::default().worker_heartbeat(true).expiry(secs(8)).heartbeat_interval(secs(1));
    let builder = builder(LeaseStoreSource::from(store.clone()), &directory, "a").config(config);
    let (coordinator, mut events) = builder.heartbeat(HeartbeatMode::OwnThread).start().await.unwrap();
    let reading = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                LeaseEvent::Acquired(tenure) => held.push(tenure),
                LeaseEvent::Lost { key, reason, .. } => panic!("{key} is lost: {reason}"),
                _ => {}
            }
        }
    });
    let rows = async || {
        let (mut workers, mut rows, mut cursor) = (Vec::new(), Vec::new(), None);
        loop {
            let request = ScanRequest::new(application()).stream(stream()).cursor(cursor);
            let page = store.scan(&request).await.unwrap();
            let (of_workers, of_leases): (Vec<Lease>, Vec<Lease>) =
                page.leases.into_iter().partition(|row| row.key.shard().as_str().starts_with("worker:"));
            workers.extend(of_workers);
            rows.extend(of_leases);
            cursor = page.cursor;
            if cursor.is_none() {
                rows.sort_by(|a, b| a.key.cmp(&b.key));
                return (workers, rows);
            }
        }
    };
    until_async("all leases are held, and the heartbeat keeps them", async || {
        let (workers, rows) = rows().await;
        workers.first().is_some_and(|row| row.counter >= 3) && rows.iter().all(|row| row.token.is_some())
    })
    .await;
    let (before, leases_before) = rows().await;
    let began = std::time::Instant::now();
    tokio::time::sleep(secs(5)).await;
    let (after, leases_after) = rows().await;
    let intervals = began.elapsed().as_secs();
    assert_eq!(leases_before, leases_after, "no lease is written");
    assert_eq!((leases_after.len(), after.len()), (leases as usize, 1));
    let beats = after[0].counter - before[0].counter;
    assert!(beats >= 3 && beats <= intervals + 1, "{beats} in {intervals} s");
    assert!(coordinator.shutdown(secs(30)).await.is_complete());
    reading.await.unwrap();
    let (workers, rows) = rows().await;
    assert_eq!(workers, []);
    assert!(rows.iter().all(|row| row.owner.is_none()));
}
