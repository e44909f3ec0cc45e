//! A stream, a lease table, and workers of both kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use kinesis_consumer::{BoxError, Consumer, ConsumerConfig, ConsumerError, ConsumerHandle, RecordBatch};
use kinesis_core::lease::{Lease, LeaseStore as _, ScanRequest};
use kinesis_core::{ApplicationName, StreamRef, WorkerId};
use kinesis_kpl::{Aggregator, AggregatorConfig, RecordRef};
use kinesis_lease::{
    DynamoDbStore, LeaseConfig, LeaseStoreSource, NewTable, RegimeProbe as _, RegimeSighting, TableLayout,
};
use kinesis_testkit::{Server, TestClock, TestKinesis};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// The longest that anything may take on a busy machine. A new application of the KCL waits up to 30 s by itself.
const LIMIT: Duration = Duration::from_secs(180);

/// How long a counter stands still until both kinds of workers take the lease.
const EXPIRY: Duration = Duration::from_secs(4);

pub(crate) const SHARDS: usize = 4;
/// How often Rust looks for version 3 of the KCL.
const REGIME_INTERVAL: Duration = Duration::from_secs(1);
const APPLICATION: &str = "orders-app";
const STREAM: &str = "orders";

/// The place of the last order in an aggregate.
pub(crate) const LAST_PLACE: u64 = 2;

/// The last sequence number of each shard.
pub(crate) type Ends = BTreeMap<String, String>;

/// How Java names the place where it starts.
pub(crate) fn start_of(shard: &str, sequence: &str, sub: u64) -> String {
    format!("{shard} {sequence} {sub}")
}

fn config(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::new("key", "secret", None, None, "tests");
    SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::v2026_01_12())
        .region(aws_config::Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint)
        .http_client(examples::direct_http_client())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

fn number(text: &str) -> Option<usize> {
    text.strip_prefix("order ")?.parse().ok()
}

/// What all workers share.
pub(crate) struct Fleet {
    kinesis: String,
    dynamodb: String,
    client: Client,
    store: DynamoDbStore,
    put: Arc<AtomicUsize>,
    _server: Server,
    _state: TestKinesis,
}

impl Fleet {
    /// What the tables are named after.
    pub(crate) const APPLICATION: &'static str = APPLICATION;

    pub(crate) async fn new() -> Self {
        let state = TestKinesis::builder().clock(TestClock::system()).build();
        let server = state.serve(([127, 0, 0, 1], 0)).await.unwrap();
        let kinesis = server.url();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let dynamodb = format!("http://{}", listener.local_addr().unwrap());
        let database = dynoxide::Database::memory().unwrap();
        tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()));
        examples::create_stream(&config(&kinesis), STREAM, SHARDS as i32).await.unwrap();
        Self {
            client: Client::new(&config(&kinesis)),
            store: store(&dynamodb),
            kinesis,
            dynamodb,
            put: Arc::default(),
            _server: server,
            _state: state,
        }
    }

    /// How many orders there are.
    pub(crate) fn put_count(&self) -> usize {
        self.put.load(Ordering::SeqCst)
    }

    /// Puts orders one by one.
    pub(crate) async fn put(&self, count: usize) {
        for _ in 0..count {
            put_one(&self.client, &self.put).await;
        }
    }

    /// Puts orders until it is stopped.
    pub(crate) fn keep_putting(&self) -> Producing {
        let (client, put, stop) =
            (self.client.clone(), Arc::clone(&self.put), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                put_one(&client, &put).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Producing { stop, task }
    }

    /// Puts an aggregate of three orders into each shard; gives their sequence numbers.
    pub(crate) async fn put_aggregates(&self) -> Ends {
        let mut ends = Ends::new();
        for attempt in 0.. {
            if ends.len() == SHARDS {
                break;
            }
            let key = format!("key-{attempt}");
            let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
            for _ in 0..=LAST_PLACE {
                let order = format!("order {}", self.put.fetch_add(1, Ordering::SeqCst) + 1);
                aggregator.try_push(RecordRef::new(&key, order.as_bytes())).map_err(|_| "full").unwrap();
            }
            let data = Blob::new(aggregator.finish().unwrap().into_data());
            let call = self.client.put_record().stream_name(STREAM).partition_key(&key).data(data);
            let answer = call.send().await.unwrap();
            ends.insert(answer.shard_id, answer.sequence_number);
        }
        ends
    }

    /// The rows of the table.
    async fn rows(&self) -> Vec<Lease> {
        let request = ScanRequest::new(ApplicationName::new(APPLICATION).unwrap());
        // Before Java has made the table there is nothing to read.
        self.store.scan(&request).await.map(|page| page.leases).unwrap_or_default()
    }

    /// The sequence numbers of the positions in the table, where they are those of a last order of an aggregate.
    pub(crate) async fn stored(&self) -> Ends {
        let rows = self.rows().await;
        let at = |row: &Lease| {
            let position = row.checkpoint.position().filter(|at| at.sub_sequence() == LAST_PLACE)?;
            Some((row.key.shard().to_string(), position.sequence().to_string()))
        };
        rows.iter().filter_map(at).collect()
    }

    pub(crate) async fn owned_by(&self, worker: &str) -> usize {
        let rows = self.rows().await;
        rows.iter().filter(|row| row.holder().is_some_and(|owner| owner.as_str() == worker)).count()
    }

    /// Who shares out the leases.
    pub(crate) async fn regime(&self) -> RegimeSighting {
        self.store.regime().await.unwrap()
    }

    /// The table as text.
    async fn shown(&self) -> String {
        let name = |worker: &Option<WorkerId>| worker.as_ref().map_or("-".to_owned(), ToString::to_string);
        let line = |row: &Lease| {
            let (owner, old) = (name(&row.owner), name(&row.checkpoint_owner));
            format!("{}: {owner} {old} {} {}", row.key.shard(), row.counter, row.checkpoint)
        };
        self.rows().await.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) {
        let waiting = tokio::time::timeout(LIMIT, async {
            while !done().await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        if waiting.await.is_err() {
            panic!("not within {LIMIT:?}: {what}; the table:\n{}", self.shown().await);
        }
    }
}

async fn put_one(client: &Client, put: &AtomicUsize) {
    let order = put.fetch_add(1, Ordering::SeqCst) + 1;
    let call = client.put_record().stream_name(STREAM).partition_key(order.to_string());
    call.data(Blob::new(format!("order {order}"))).send().await.unwrap();
}

pub(crate) struct Producing {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Producing {
    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
    }
}

fn store(dynamodb: &str) -> DynamoDbStore {
    let layout = TableLayout::kcl_single_stream(StreamRef::new(STREAM).unwrap());
    let application = ApplicationName::new(APPLICATION).unwrap();
    let table = NewTable::on_demand();
    DynamoDbStore::builder(config(dynamodb), application).layout(layout).create_table(table).build().unwrap()
}

/// A worker of the KCL in a process of its own.
pub(crate) struct Java {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reading: JoinHandle<()>,
}

impl Java {
    /// Version 2.
    pub(crate) fn start(fleet: &Fleet, worker: &str) -> Self {
        Self::launch(fleet, worker, "PEERS_KCL_LIBRARIES", &[])
    }

    /// Version 3, with its `clientVersionConfig`.
    pub(crate) fn start_version_3(fleet: &Fleet, worker: &str, version: &str) -> Self {
        Self::launch(fleet, worker, "PEERS_KCL_3_LIBRARIES", &[version])
    }

    fn launch(fleet: &Fleet, worker: &str, libraries: &str, more: &[&str]) -> Self {
        let libraries = std::env::var(libraries).expect("set by `cargo xtask peers`");
        let mut child = Command::new("java")
            // It runs for a minute or two, so the time to start counts.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["-cp", &format!("{libraries}/*")])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/Kcl.java"))
            .args([&fleet.kinesis, &fleet.dynamodb, APPLICATION, STREAM, worker])
            .arg(EXPIRY.as_millis().to_string())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reading = tokio::spawn(async move {
            while let Some(line) = output.next_line().await.unwrap() {
                kept.lock().unwrap().push(line);
            }
        });
        Self { child, lines, reading }
    }

    /// The rest of each line that starts with a word.
    pub(crate) fn lines_of(&self, word: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ').map(str::to_owned))
            .collect()
    }

    /// The orders that it has processed.
    pub(crate) fn orders(&self) -> BTreeSet<usize> {
        self.lines_of("record").iter().filter_map(|line| number(line.split_once(' ')?.1)).collect()
    }

    /// Lets it shut down gracefully; gives the orders that it has processed.
    pub(crate) async fn stop(mut self) -> BTreeSet<usize> {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("it ends").unwrap();
        (&mut self.reading).await.unwrap();
        assert!(status.success(), "{:#?}", self.lines.lock().unwrap());
        self.orders()
    }
}

/// A worker of this library in this process.
pub(crate) struct Rust {
    handle: ConsumerHandle,
    orders: Arc<Mutex<BTreeSet<usize>>>,
}

impl Rust {
    /// Shares leases as the table needs it.
    pub(crate) fn start(fleet: &Fleet, worker: &str) -> Self {
        Self::start_with(fleet, worker, |lease| lease)
    }

    /// With settings of its own.
    pub(crate) fn start_with(
        fleet: &Fleet,
        worker: &str,
        set: impl FnOnce(LeaseConfig) -> LeaseConfig,
    ) -> Self {
        let orders = Arc::new(Mutex::new(BTreeSet::new()));
        let (seen, dynamodb) = (Arc::clone(&orders), fleet.dynamodb.clone());
        let mut settings = ConsumerConfig::default();
        let lease = LeaseConfig::default()
            .expiry(EXPIRY)
            .heartbeat_interval(EXPIRY / 4)
            .look_interval(Duration::from_millis(500))
            .regime_interval(REGIME_INTERVAL);
        settings.lease = set(lease);
        let consumer = Consumer::builder(config(&fleet.kinesis), APPLICATION, STREAM)
            .config(settings)
            .worker_id(worker)
            .lease_store(LeaseStoreSource::factory(move || {
                let store = store(&dynamodb);
                async move { Ok(store) }
            }))
            .for_each_batch(move |batch: RecordBatch| {
                let seen = Arc::clone(&seen);
                async move {
                    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
                    let orders = batch.records().iter().filter_map(|record| number(&text(record.data())));
                    seen.lock().unwrap().extend(orders);
                    Ok::<(), BoxError>(())
                }
            })
            .build()
            .unwrap();
        Self { handle: consumer.spawn(), orders }
    }

    /// The orders that it has processed.
    pub(crate) fn orders(&self) -> BTreeSet<usize> {
        self.orders.lock().unwrap().clone()
    }

    /// Fails when it has ended by itself.
    pub(crate) async fn lives(&self) -> bool {
        if self.handle.is_finished() {
            let ended = self.handle.finished().await;
            panic!("the worker has ended: {:?}", ended.map_err(|error| kinesis_core::error_chain(&error)));
        }
        true
    }

    /// Waits until it ends by itself, and says why.
    pub(crate) async fn ended(&self) -> Arc<ConsumerError> {
        let ended = tokio::time::timeout(LIMIT, self.handle.finished()).await.expect("it ends by itself");
        ended.expect_err("nobody has stopped it")
    }

    /// Stops it and lets it give its leases back; gives the orders that it has processed.
    pub(crate) async fn stop(self) -> BTreeSet<usize> {
        let report = self.handle.shutdown(Duration::from_secs(30)).await.unwrap();
        assert!(report.is_clean(), "{report}");
        self.orders()
    }
}
