//! Records that arrive at a rate, in virtual time: how long they take to their reader, and what that costs.

use std::time::Duration;

use aws_sdk_kinesis::types::{
    ShardIteratorType, StartingPosition, SubscribeToShardEventStream as PlainEvent,
};
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_testkit::TestKinesis;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cases::{self, PATHS, Path, READ_INTERVAL, STREAM};
use crate::measure;

/// Records per second on one shard, on average; it takes 1,000.
pub(crate) const RATES: [u64; 4] = [1, 10, 100, 900];

const PAYLOAD: usize = 1_000;

/// How long records are written, and how many at most.
const TIME: Duration = Duration::from_secs(600);
const MOST: u64 = 30_000;

/// What was read, and how long each record took.
struct Delays {
    began: Instant,
    millis: Vec<u64>,
    wanted: u64,
}

impl Delays {
    fn note(&mut self, data: &[u8]) {
        let word = data.split(|byte| *byte == b' ').next().unwrap_or_default();
        let put: u64 = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).expect("its time");
        self.millis.push(millis_since(self.began) - put);
    }

    fn is_complete(&self) -> bool {
        self.millis.len() as u64 >= self.wanted
    }

    fn part(&self, hundredths: usize) -> Option<u64> {
        self.millis.get(self.millis.len().checked_sub(1)? * hundredths / 100).copied()
    }
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The ways to read, and none: what the writer and the service cost without a reader.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|path| path.0).chain(["none"])
}

/// Writes for ten minutes, or a `share`-th part of that, and reads it; no path: nobody reads.
pub(crate) async fn case(path: Option<Path>, rate: u64, share: u64) -> Value {
    let kinesis = TestKinesis::new();
    kinesis.create_stream(STREAM, 1).expect("a new stream");
    let consumer = kinesis.register_consumer(STREAM, "bench").expect("a new consumer");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let records = (rate * TIME.as_secs()).min(MOST) / share;
    let (began, cpu) = (Instant::now(), measure::cpu_seconds());
    let mut writing = JoinSet::new();
    let writer = kinesis.clone();
    writing.spawn(async move {
        // In no step with the reads, which come at full seconds or fifths.
        let mut random = fastrand::Rng::with_seed(rate);
        let mut due = began;
        for _ in 0..records {
            due += Duration::from_secs_f64(2.0 * random.f64() / rate as f64);
            tokio::time::sleep_until(due).await;
            let mut payload = format!("{} ", millis_since(began)).into_bytes();
            payload.resize(PAYLOAD, b'.');
            writer.put(STREAM, "key", payload).expect("it is taken");
        }
    });
    let mut delays = Delays { began, millis: Vec::new(), wanted: records };
    match path {
        None => {}
        Some(Path::Sdk) => poll_plainly(&kinesis, &mut delays).await,
        Some(Path::SdkEfo) => subscribe_plainly(&kinesis, &consumer, &mut delays).await,
        Some(path) => {
            let request = OpenShard::new(cases::shard(0), StartPosition::TrimHorizon);
            let client = kinesis.client();
            if path == Path::Efo {
                read(cases::fan_out(client, &consumer).reader(request), &mut delays).await;
            } else {
                read(cases::polling(client, path).reader(request), &mut delays).await;
            }
        }
    }
    writing.join_all().await;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), measure::cpu_seconds() - cpu);
    delays.millis.sort_unstable();
    json!({
        "records": records, "bytes": records * PAYLOAD as u64, "seconds": seconds, "cpu_seconds": cpu,
        "peak_mib": measure::peak_mib(), "p50_ms": delays.part(50), "p99_ms": delays.part(99),
    })
}

async fn read(mut reader: impl ShardReader, delays: &mut Delays) {
    while !delays.is_complete() {
        if let SourceEvent::Records(batch) = reader.next().await.expect("it answers") {
            batch.records.iter().for_each(|record| delays.note(&record.data));
        }
    }
}

async fn poll_plainly(kinesis: &TestKinesis, delays: &mut Delays) {
    let client = kinesis.client();
    let mut iterator = cases::iterator(&client, 0).await;
    while !delays.is_complete() {
        let page = client.get_records().set_shard_iterator(iterator.clone()).send().await;
        if let Ok(page) = page {
            iterator = page.next_shard_iterator;
            page.records.iter().for_each(|record| delays.note(record.data.as_ref()));
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

async fn subscribe_plainly(kinesis: &TestKinesis, consumer: &str, delays: &mut Delays) {
    let client = kinesis.client();
    let mut start = StartingPosition::builder().r#type(ShardIteratorType::TrimHorizon);
    while !delays.is_complete() {
        let request = client.subscribe_to_shard().consumer_arn(consumer);
        let request = request.shard_id(cases::shard(0).shard().as_str());
        let answer = request.starting_position(start.clone().build().expect("it has a type")).send().await;
        let mut events = answer.expect("it answers").event_stream;
        while !delays.is_complete()
            && let Some(event) = events.recv().await.expect("nothing is broken")
        {
            let PlainEvent::SubscribeToShardEvent(event) = event else { continue };
            event.records.iter().for_each(|record| delays.note(record.data.as_ref()));
            start = StartingPosition::builder()
                .r#type(ShardIteratorType::AfterSequenceNumber)
                .sequence_number(event.continuation_sequence_number);
        }
    }
}
