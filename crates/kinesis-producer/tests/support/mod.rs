//! What the tests share.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_producer::{OutboundRecord, Producer, ProducerBuilder, RecordError, Sent, StreamRef};
use kinesis_testkit::{Operation, Rule, TestKinesis};

pub mod aggregates;

pub const STREAM: &str = "orders";
pub const MIB: usize = 1024 * 1024;
pub const LIMIT: Duration = Duration::from_secs(600);
pub const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// A service with a stream, whose write quotas are out of the way.
pub fn service(shards: usize) -> TestKinesis {
    let kinesis = TestKinesis::builder().without_throughput_limits().build();
    kinesis.create_stream(STREAM, shards).unwrap();
    kinesis
}

/// A service that stores the records of one call in their order, which the real one does not promise: what is left is
/// the order of the calls.
pub fn service_in_order(shards: usize) -> TestKinesis {
    let kinesis = TestKinesis::builder().without_throughput_limits().without(Rule::RecordOrder).build();
    kinesis.create_stream(STREAM, shards).unwrap();
    kinesis
}

pub fn builder(kinesis: &TestKinesis) -> ProducerBuilder {
    Producer::builder(kinesis.client(), StreamRef::new(STREAM).unwrap()).jitter_seed(1)
}

/// A producer with default settings.
pub fn producer(kinesis: &TestKinesis) -> Producer {
    builder(kinesis).build().unwrap()
}

/// Record number `number` with a key of its own.
pub fn record(number: usize) -> OutboundRecord {
    OutboundRecord::new(format!("key-{number}"), format!("value-{number}"))
}

pub fn records(count: usize) -> Vec<OutboundRecord> {
    (0..count).map(record).collect()
}

/// A record of so many bytes with its key.
pub fn sized(number: usize, wire_len: usize) -> OutboundRecord {
    let key = format!("{number:06}");
    OutboundRecord::new(key.as_str(), vec![b'x'; wire_len - key.len()])
}

/// The entries of each PutRecords call so far.
pub fn call_sizes(kinesis: &TestKinesis) -> Vec<usize> {
    kinesis.calls_of(Operation::PutRecords).iter().map(|call| call.entries).collect()
}

/// When the calls came, in milliseconds of the service's clock.
pub fn call_times(kinesis: &TestKinesis) -> Vec<u128> {
    kinesis.calls_of(Operation::PutRecords).iter().map(|call| call.elapsed.as_millis()).collect()
}

/// What is stored: by sequence number, shard and payload.
pub fn stored(kinesis: &TestKinesis) -> BTreeMap<String, (String, String)> {
    let place = |record: kinesis_testkit::StoredRecord| {
        let data = String::from_utf8(record.data.to_vec()).unwrap();
        (record.sequence_number, (record.shard_id, data))
    };
    kinesis.records(STREAM).unwrap().into_iter().map(place).collect()
}

/// How often each payload is stored.
pub fn copies(kinesis: &TestKinesis) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for (_, data) in stored(kinesis).into_values() {
        *copies.entry(data).or_default() += 1;
    }
    copies
}

/// Whether the service has the record where the producer says.
pub fn is_stored(kinesis: &TestKinesis, sent: &Sent, data: &str) -> bool {
    stored(kinesis).get(&sent.sequence.to_string())
        == Some(&(sent.shard.as_str().to_owned(), data.to_owned()))
}

pub fn attempts(results: &[Result<Sent, RecordError>]) -> Vec<u32> {
    results
        .iter()
        .map(|result| result.as_ref().map_or_else(RecordError::attempts, |sent| sent.attempts))
        .collect()
}

pub async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Collects what is logged on this thread, at the most detailed level.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        // Without a lasting subscriber, threads of other tests may switch a log line off for all.
        static LASTING: std::sync::Once = std::sync::Once::new();
        LASTING.call_once(|| {
            let everything = tracing_subscriber::fmt().with_env_filter("kinesis_producer=trace");
            let _ = tracing::subscriber::set_global_default(everything.with_writer(std::io::sink).finish());
        });
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("kinesis_producer=trace")
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines of a level.
    pub fn lines(&self, level: &str) -> Vec<String> {
        let marker = format!(" {level} ");
        self.text().lines().filter(|line| line.contains(&marker)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
