//! Records that arrive at a rate, in virtual time: how long they take to their reader, and what that costs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::{
    ShardIteratorType, StartingPosition, SubscribeToShardEventStream as PlainEvent,
};
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_testkit::TestKinesis;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cases::{self, PATHS, Path, READ_INTERVAL, STREAM};
use crate::measure;

/// What arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    /// Records per second in all, on average; a shard takes 1,000 and 1 MB.
    pub(crate) rate: u64,
    /// The length of a payload.
    pub(crate) bytes: usize,
    pub(crate) shards: usize,
}

const fn arriving(rate: u64, bytes: usize, shards: usize) -> Arriving {
    Arriving { rate, bytes, shards }
}

/// Several rates, then the other sizes of records, then many shards.
pub(crate) const RATES: [Arriving; 7] = [
    arriving(1, 1_000, 1),
    arriving(10, 1_000, 1),
    arriving(100, 1_000, 1),
    arriving(900, 1_000, 1),
    arriving(900, 100, 1),
    arriving(8, 100_000, 1),
    arriving(640, 1_000, 64),
];

/// How long records are written, how many at most, and how many bytes of them.
const TIME: Duration = Duration::from_secs(600);
const MOST: u64 = 30_000;
const MOST_BYTES: u64 = 100_000_000;

/// How long the records took.
struct Delays {
    began: Instant,
    millis: Mutex<Vec<u64>>,
    wanted: u64,
    done: Notify,
}

impl Delays {
    fn note(&self, data: &[u8]) {
        let word = data.split(|byte| *byte == b' ').next().unwrap_or_default();
        let put: u64 = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).expect("its time");
        let mut millis = self.millis.lock().expect("nobody panicked");
        millis.push(millis_since(self.began) - put);
        if millis.len() as u64 == self.wanted {
            self.done.notify_one();
        }
    }
}

/// Of these, in order, the one below which so many hundredths are.
fn part(millis: &[u64], hundredths: usize) -> Option<u64> {
    millis.get(millis.len().checked_sub(1)? * hundredths / 100).copied()
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The ways to read, and none: what the writer and the service cost without a reader.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|path| path.0).chain(["none"])
}

/// Writes for ten minutes, or a `share`-th part of that, and reads it; no path: nobody reads.
pub(crate) async fn case(path: Option<Path>, arriving: Arriving, share: u64) -> Value {
    let Arriving { rate, bytes, shards } = arriving;
    let kinesis = TestKinesis::new();
    kinesis.create_stream(STREAM, shards).expect("a new stream");
    let consumer = kinesis.register_consumer(STREAM, "bench").expect("a new consumer");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let records = (rate * TIME.as_secs()).min(MOST).min(MOST_BYTES / bytes as u64) / share;
    let (began, cpu) = (Instant::now(), measure::cpu_seconds());
    let delays = Arc::new(Delays { began, millis: Mutex::default(), wanted: records, done: Notify::new() });
    let writing = tokio::spawn(write(kinesis.clone(), arriving, records, began));
    let mut reading = JoinSet::new();
    for number in 0..shards {
        let Some(path) = path else { break };
        let (client, delays) = (kinesis.client(), Arc::clone(&delays));
        let request = OpenShard::new(cases::shard(number), StartPosition::TrimHorizon);
        match path {
            Path::Sdk => reading.spawn(poll_plainly(client, number, delays)),
            Path::SdkEfo => reading.spawn(subscribe_plainly(client, consumer.clone(), number, delays)),
            Path::Efo => reading.spawn(read(cases::fan_out(client, &consumer).reader(request), delays)),
            _ => reading.spawn(read(cases::polling(client, path).reader(request), delays)),
        };
    }
    if path.is_some() {
        delays.done.notified().await;
    }
    reading.shutdown().await;
    writing.await.expect("it writes");
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), measure::cpu_seconds() - cpu);
    let mut millis = delays.millis.lock().expect("nobody panicked");
    millis.sort_unstable();
    json!({
        "records": records, "bytes": records * bytes as u64, "seconds": seconds, "cpu_seconds": cpu,
        "peak_mib": measure::peak_mib(), "p50_ms": part(&millis, 50), "p99_ms": part(&millis, 99),
    })
}

async fn write(kinesis: TestKinesis, Arriving { rate, bytes, .. }: Arriving, records: u64, began: Instant) {
    // In no step with the reads, which come at full seconds or fifths.
    let mut random = fastrand::Rng::with_seed(rate);
    let mut due = began;
    for number in 0..records {
        due += Duration::from_secs_f64(2.0 * random.f64() / rate as f64);
        tokio::time::sleep_until(due).await;
        let mut payload = format!("{} ", millis_since(began)).into_bytes();
        payload.resize(bytes, b'.');
        kinesis.put(STREAM, &format!("key-{number}"), payload).expect("it is taken");
    }
}

async fn read(mut reader: impl ShardReader, delays: Arc<Delays>) {
    loop {
        if let SourceEvent::Records(batch) = reader.next().await.expect("it answers") {
            batch.records.iter().for_each(|record| delays.note(&record.data));
        }
    }
}

async fn poll_plainly(client: Client, number: usize, delays: Arc<Delays>) {
    let mut iterator = cases::iterator(&client, number).await;
    loop {
        let page = client.get_records().set_shard_iterator(iterator.clone()).send().await;
        if let Ok(page) = page {
            iterator = page.next_shard_iterator;
            page.records.iter().for_each(|record| delays.note(record.data.as_ref()));
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

async fn subscribe_plainly(client: Client, consumer: String, number: usize, delays: Arc<Delays>) {
    let mut start = StartingPosition::builder().r#type(ShardIteratorType::TrimHorizon);
    loop {
        let mut events = cases::subscribe(&client, &consumer, number, start.clone()).await;
        while let Some(event) = events.recv().await.expect("nothing is broken") {
            let PlainEvent::SubscribeToShardEvent(event) = event else { continue };
            event.records.iter().for_each(|record| delays.note(record.data.as_ref()));
            start = StartingPosition::builder()
                .r#type(ShardIteratorType::AfterSequenceNumber)
                .sequence_number(event.continuation_sequence_number);
        }
    }
}
