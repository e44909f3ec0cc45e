//! What the tests of this crate share: a Kinesis in process, a consumer over it under paused time, a log of what
//! handlers saw.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::core::lease::{Change, FieldWrite, Guard, Lease, LeaseStore, LeaseWrite, Outcome};
use kinesis_consumer::lease::{HeartbeatMode, LeaseConfig};
use kinesis_consumer::{Consumer, ConsumerBuilder, ConsumerHandle, Record};
use kinesis_core::{Checkpoint, WorkerId};
use kinesis_testkit::TestKinesis;

use crate::shelf::Shelf;

pub(crate) const STREAM: &str = "orders";
pub(crate) const APPLICATION: &str = "billing";
/// Far longer than anything takes; virtual time costs nothing.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A stream and a lease store for the workers of one test.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) kinesis: TestKinesis,
    pub(crate) leases: Arc<Shelf>,
}

impl World {
    pub(crate) fn new(shards: u32) -> Self {
        let kinesis = TestKinesis::new();
        kinesis.create_stream(STREAM, shards as _).unwrap();
        Self { kinesis, leases: Arc::default() }
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
        self.leases.rows()
    }

    pub(crate) async fn row(&self, shard: &str) -> Lease {
        self.rows().await.into_iter().find(|lease| lease.key.shard().as_str() == shard).unwrap()
    }
}

impl World {
    /// Who owns which shard, by the ends of the shards' names.
    pub(crate) fn owners(&self) -> Vec<(String, Option<String>)> {
        let owner = |row: &Lease| row.owner.as_ref().map(|owner| owner.as_str().to_owned());
        self.leases.rows().iter().map(|row| (row.key.shard().as_str()[18..].to_owned(), owner(row))).collect()
    }

    /// How many unfinished shards each of these workers owns.
    pub(crate) fn shares(&self, workers: &[&str]) -> Vec<usize> {
        let owners = self.owners();
        let of = |worker: &&str| owners.iter().filter(|(_, owner)| owner.as_deref() == Some(*worker)).count();
        workers.iter().map(of).collect()
    }

    /// Whether the end of a shard is stored.
    pub(crate) fn is_ended(&self, shard: &str) -> bool {
        let rows = self.leases.rows();
        rows.iter().any(|row| row.key.shard().as_str() == shard && row.checkpoint == Checkpoint::ShardEnd)
    }

    /// The stored position of a shard as text.
    pub(crate) fn stored(&self, shard: &str) -> String {
        let row = self.leases.rows().into_iter().find(|row| row.key.shard().as_str() == shard);
        row.expect("the shard has a lease").checkpoint.to_string()
    }

    /// Another worker takes the lease by force, as after an expiry.
    pub(crate) async fn steal(&self, shard: &str) -> Lease {
        let row = self.row(shard).await;
        let take = vec![
            FieldWrite::Owner(Some(WorkerId::new("thief").unwrap())),
            FieldWrite::AddCounter(1),
            FieldWrite::AddEpoch(1),
            FieldWrite::Token(None),
        ];
        let write = LeaseWrite::new(row.key.clone(), Guard::Counter(row.counter), Change::Update(take));
        let [Ok(Outcome::Applied(stolen))] = &self.leases.apply(&[write]).await[..] else {
            panic!("not taken")
        };
        stolen.clone()
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

/// One record that reached a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) worker: &'static str,
    pub(crate) shard: String,
    pub(crate) key: String,
    pub(crate) number: u32,
}

/// What the handlers of several workers saw, in order.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Delivery>>>);

impl Journal {
    pub(crate) fn add(&self, worker: &'static str, record: &Record) {
        self.0.lock().unwrap().push(Delivery {
            worker,
            shard: record.source().shard().as_str().to_owned(),
            key: record.partition_key().unwrap().as_str().to_owned(),
            number: text(record).parse().unwrap(),
        });
    }

    /// A handler of the record door that writes down what it sees.
    pub(crate) fn handler(
        &self,
        worker: &'static str,
    ) -> impl Fn(Record) -> Ready<Result<(), Infallible>> + Clone + Send + Sync + 'static {
        let journal = self.clone();
        move |record: Record| {
            journal.add(worker, &record);
            ready(Ok(()))
        }
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// How many different records were seen.
    pub(crate) fn distinct(&self) -> usize {
        self.all().iter().map(|seen| seen.number).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn duplicates(&self) -> usize {
        self.len() - self.distinct()
    }

    /// Waits until all of `count` records were seen.
    pub(crate) async fn until_distinct(&self, count: usize) {
        eventually(|| self.distinct() == count).await;
    }

    /// For every key the first deliveries come in the order of writing (the numbers grow).
    pub(crate) fn assert_order_by_key(&self) {
        let mut last: BTreeMap<String, u32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for delivery in self.all() {
            if !seen.insert(delivery.number) {
                continue;
            }
            if let Some(before) = last.insert(delivery.key.clone(), delivery.number) {
                assert!(before < delivery.number, "{delivery:?} came after {before}");
            }
        }
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
