//! What the tests of this crate share: a Kinesis in process, a consumer over it under paused time, a log of what
//! handlers saw.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::core::lease::{Lease, LeaseStore, ScanRequest};
use kinesis_consumer::lease::{HeartbeatMode, LeaseConfig, MemoryStore};
use kinesis_consumer::{Consumer, ConsumerBuilder, ConsumerHandle};
use kinesis_core::ApplicationName;
use kinesis_testkit::TestKinesis;

pub(crate) const STREAM: &str = "orders";
pub(crate) const APPLICATION: &str = "billing";
/// Far longer than anything takes; virtual time costs nothing.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A stream and a lease store for the workers of one test.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) kinesis: TestKinesis,
    pub(crate) leases: Arc<MemoryStore>,
}

impl World {
    pub(crate) fn new(shards: u32) -> Self {
        let kinesis = TestKinesis::new();
        kinesis.create_stream(STREAM, shards as _).unwrap();
        Self { kinesis, leases: Arc::new(MemoryStore::new()) }
    }

    /// A consumer under paused time: its lease task runs on the test's own runtime.
    pub(crate) fn consumer(&self, worker: &str) -> ConsumerBuilder {
        let store: Arc<dyn LeaseStore> = self.leases.clone();
        Consumer::builder(self.kinesis.client(), APPLICATION, STREAM)
            .worker_id(worker)
            .lease_store(store)
            .lease(LeaseConfig::default())
            .heartbeat(HeartbeatMode::Inline)
            .seed(7)
    }

    /// Puts records `from..to` with their number as payload; key `k{number % keys}`.
    pub(crate) fn put(&self, from: u32, to: u32, keys: u32) {
        for number in from..to {
            let key = format!("k{}", number % keys);
            self.kinesis.put(STREAM, &key, number.to_string()).unwrap();
        }
    }

    pub(crate) async fn rows(&self) -> Vec<Lease> {
        let request = ScanRequest::new(ApplicationName::new(APPLICATION).unwrap());
        let mut leases = self.leases.scan(&request).await.unwrap().leases;
        leases.sort_by(|a, b| a.key.cmp(&b.key));
        leases
    }

    pub(crate) async fn row(&self, shard: &str) -> Lease {
        self.rows().await.into_iter().find(|lease| lease.key.shard().as_str() == shard).unwrap()
    }
}

/// What handlers saw, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| *seen == text).count()
    }

    /// Waits (in virtual time) until `done`, and fails after a long while.
    pub(crate) async fn until(&self, done: impl Fn(&[String]) -> bool + Send + Sync) {
        eventually(|| done(&self.0.lock().unwrap())).await;
    }
}

/// Waits in virtual time until something is true.
pub(crate) async fn eventually(done: impl Fn() -> bool + Send + Sync) {
    let waited = tokio::time::timeout(LONG, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("it did not come true");
}

/// The payload of a record as text.
pub(crate) fn text(record: &kinesis_core::Record) -> String {
    String::from_utf8(record.data().to_vec()).unwrap()
}

pub(crate) async fn stop(handle: &ConsumerHandle) -> kinesis_consumer::Report {
    handle.shutdown(Duration::from_secs(30)).await.unwrap()
}

/// The numbers from `from` to `to` as text.
pub(crate) fn numbers(from: u32, to: u32) -> Vec<String> {
    (from..to).map(|number| number.to_string()).collect()
}

pub(crate) fn sorted<T: Ord + Debug>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}
