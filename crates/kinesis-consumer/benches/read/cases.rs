//! What reading costs: canned answers are read as fast as one thread can.

use std::time::{Duration, Instant};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::event_stream::EventReceiver;
use aws_sdk_kinesis::types::builders::StartingPositionBuilder;
use aws_sdk_kinesis::types::error::SubscribeToShardEventStreamError;
use aws_sdk_kinesis::types::{
    Record, ShardIteratorType, StartingPosition, SubscribeToShardEventStream as PlainEvent,
};
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_efo::{EfoConfig, EfoSource};
use kinesis_poll::{PollConfig, PollSource};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::canned::Canned;
use crate::measure;

const MIB: usize = 1024 * 1024;

pub(crate) const STREAM: &str = "bench";

/// How long the plain loop waits between reads: five a second are allowed.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(200);

/// Subscriptions bring so much before the shard ends and the next one is read.
const SHARD_BYTES: usize = 4 * MIB;

/// Of so many records and bytes an event has as many as fit, as with the embedded Kinesis.
const EVENT_RECORDS: usize = 1_000;
const EVENT_BYTES: usize = 1_000_000;

const CONSUMER: &str = "arn:aws:kinesis:us-east-1:000000000000:stream/bench/consumer/bench:1700000000";

/// A way to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Sdk,
    Poll,
    PollPeriod,
    PollFast,
    SdkEfo,
    Efo,
}

/// Each way with its name, and with that of the plain loop that it is compared with.
pub(crate) const PATHS: [(&str, Path, Option<&str>); 6] = [
    ("sdk", Path::Sdk, None),
    ("poll", Path::Poll, Some("sdk")),
    ("poll_period", Path::PollPeriod, Some("sdk")),
    ("poll_fast", Path::PollFast, Some("sdk")),
    ("sdk_efo", Path::SdkEfo, None),
    ("efo", Path::Efo, Some("sdk_efo")),
];

/// Record sizes: name, bytes of a payload, records of a page.
pub(crate) const SIZES: [(&str, usize, usize); 3] =
    [("100b", 100, 10_000), ("1kb", 1_000, 2_000), ("100kb", 100_000, 20)];

pub(crate) fn polling(client: Client, path: Path) -> PollSource {
    let period = if path == Path::PollPeriod { Duration::from_secs(1) } else { Duration::ZERO };
    let source = PollSource::new(client, PollConfig::default().poll_period(period)).expect("valid settings");
    if path == Path::PollFast { source.fast_decode() } else { source }
}

pub(crate) fn fan_out(client: Client, consumer: &str) -> EfoSource {
    EfoSource::new(client, EfoConfig::new(consumer)).expect("valid settings")
}

pub(crate) fn shard(number: usize) -> ShardRef {
    let id = format!("shardId-{number:012}");
    ShardRef::new(STREAM.parse().expect("a valid name"), id.parse().expect("a valid id"))
}

/// The first iterator of a shard.
pub(crate) async fn iterator(client: &Client, number: usize) -> Option<String> {
    let request = client.get_shard_iterator().stream_name(STREAM).shard_id(shard(number).shard().as_str());
    let answer = request.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
    answer.expect("it answers").shard_iterator
}

/// Records and payload bytes.
type Sum = (usize, usize);

fn plain_sum(records: &[Record]) -> Sum {
    (records.len(), records.iter().map(|record| record.data.as_ref().len()).sum())
}

fn add(sum: &mut Sum, more: Sum) {
    *sum = (sum.0 + more.0, sum.1 + more.1);
}

/// Reads `pages` pages of a shard in a plain loop.
async fn read_sdk(client: Client, number: usize, pages: usize) -> Sum {
    let mut iterator = iterator(&client, number).await;
    let mut sum = (0, 0);
    for _ in 0..pages {
        let page = client.get_records().set_shard_iterator(iterator).limit(10_000).send().await;
        let page = page.expect("it answers");
        iterator = page.next_shard_iterator;
        add(&mut sum, plain_sum(&page.records));
        tokio::time::sleep(READ_INTERVAL).await;
    }
    sum
}

async fn read_poll(source: PollSource, number: usize, pages: usize) -> Sum {
    // Nothing is read ahead: a page that is read and not taken would count for one way and not for the other.
    let request = OpenShard::new(shard(number), StartPosition::TrimHorizon).buffer_bytes(0);
    let mut reader = source.reader(request);
    let mut sum = (0, 0);
    for _ in 0..pages {
        add(&mut sum, next_records(&mut reader).await.expect("the shard has no end"));
    }
    sum
}

/// The next batch; none at the end of the shard.
async fn next_records(reader: &mut impl ShardReader) -> Option<Sum> {
    loop {
        match reader.next().await.expect("it answers") {
            SourceEvent::Records(batch) => {
                let bytes = batch.records.iter().map(|record| record.data.len()).sum();
                return Some((batch.records.len(), bytes));
            }
            SourceEvent::Ended { .. } => return None,
            _ => {}
        }
    }
}

/// Subscribes to a shard as whoever has only the SDK does.
pub(crate) async fn subscribe(
    client: &Client,
    consumer: &str,
    number: usize,
    start: StartingPositionBuilder,
) -> EventReceiver<PlainEvent, SubscribeToShardEventStreamError> {
    let request = client.subscribe_to_shard().consumer_arn(consumer).shard_id(shard(number).shard().as_str());
    let answer = request.starting_position(start.build().expect("it has a type")).send().await;
    answer.expect("it answers").event_stream
}

/// Reads these shards to their ends in a plain loop, one after the other.
async fn read_sdk_efo(client: Client, shards: Vec<usize>) -> Sum {
    let mut sum = (0, 0);
    for number in shards {
        let start = StartingPosition::builder().r#type(ShardIteratorType::TrimHorizon);
        let mut events = subscribe(&client, CONSUMER, number, start).await;
        while let Some(event) = events.recv().await.expect("nothing is broken") {
            let PlainEvent::SubscribeToShardEvent(event) = event else { continue };
            add(&mut sum, plain_sum(&event.records));
            if event.child_shards.is_some_and(|children| !children.is_empty()) {
                break;
            }
        }
    }
    sum
}

async fn read_efo(source: EfoSource, shards: Vec<usize>) -> Sum {
    let mut sum = (0, 0);
    for number in shards {
        let mut reader = source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
        while let Some(more) = next_records(&mut reader).await {
            add(&mut sum, more);
        }
    }
    sum
}

/// Reads about `mib` MiB from so many shards at once.
pub(crate) async fn case(path: Path, size: (&str, usize, usize), shards: usize, mib: usize) -> Value {
    let (_, bytes, page) = size;
    let each = mib * MIB / shards;
    let pages = (each / (bytes * page)).max(2);
    let event = EVENT_RECORDS.min(EVENT_BYTES / bytes);
    let lives = each.div_ceil(SHARD_BYTES).max(1);
    let events = (each / lives / (bytes * event)).max(2);
    let canned = match path {
        Path::SdkEfo | Path::Efo => Canned::events(events, event, bytes),
        _ => Canned::pages(page, bytes),
    };
    let client = canned.client();
    let (source, pushing) = (polling(client.clone(), path), fan_out(client.clone(), CONSUMER));
    let (began, cpu) = (Instant::now(), measure::cpu_seconds());
    let mut tasks = JoinSet::new();
    for number in 0..shards {
        let after_another = (0..lives).map(|life| number + life * shards).collect();
        match path {
            Path::Sdk => tasks.spawn(read_sdk(client.clone(), number, pages)),
            Path::SdkEfo => tasks.spawn(read_sdk_efo(client.clone(), after_another)),
            Path::Efo => tasks.spawn(read_efo(pushing.clone(), after_another)),
            _ => tasks.spawn(read_poll(source.clone(), number, pages)),
        };
    }
    let mut sum = (0, 0);
    tasks.join_all().await.into_iter().for_each(|one| add(&mut sum, one));
    let (took, cpu) = (began.elapsed().as_secs_f64(), measure::cpu_seconds() - cpu);
    json!({
        "records": sum.0, "bytes": sum.1, "seconds": took, "cpu_seconds": cpu, "peak_mib": measure::peak_mib(),
    })
}
