//! A service with one stream, and ways to read it.

use std::time::Duration;

use kinesis_core::aws::ClientSource;
use kinesis_core::metrics::Recorder;
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_efo::{EfoConfig, EfoReader, EfoSource};
use kinesis_testkit::{Call, Operation, Outcome, TestKinesis};
use tokio::time::Instant;

pub(crate) const STREAM: &str = "orders";
pub(crate) const CONSUMER: &str = "billing";
pub(crate) const SHARD: &str = "shardId-000000000000";
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const FOREVER: Duration = Duration::MAX;

/// A service with the stream `orders` and its consumer `billing`.
pub(crate) fn service(shards: usize) -> TestKinesis {
    with_stream(TestKinesis::new(), shards)
}

/// The same on a service with settings of its own.
pub(crate) fn with_stream(kinesis: TestKinesis, shards: usize) -> TestKinesis {
    kinesis.create_stream(STREAM, shards).unwrap();
    kinesis.register_consumer(STREAM, CONSUMER).unwrap();
    kinesis
}

pub(crate) fn config() -> EfoConfig {
    EfoConfig::new(CONSUMER)
}

pub(crate) fn shard(number: usize) -> ShardRef {
    ShardRef::new(STREAM.parse().unwrap(), format!("shardId-{number:012}").parse().unwrap())
}

pub(crate) fn source(clients: impl Into<ClientSource>, config: EfoConfig) -> EfoSource {
    EfoSource::new(clients, config).unwrap().seed(1)
}

/// A reader of the first shard.
pub(crate) fn reader(kinesis: &TestKinesis, start: StartPosition) -> EfoReader {
    reader_with(kinesis, start, config())
}

pub(crate) fn reader_with(kinesis: &TestKinesis, start: StartPosition, config: EfoConfig) -> EfoReader {
    source(kinesis.client(), config).reader(OpenShard::new(shard(0), start))
}

/// A reader of the first shard, with its metrics.
pub(crate) fn measured(kinesis: &TestKinesis, start: StartPosition) -> (EfoReader, Recorder) {
    let recorder = Recorder::new();
    let source = source(kinesis.client(), config()).metrics(std::sync::Arc::new(recorder.clone()));
    (source.reader(OpenShard::new(shard(0), start)), recorder)
}

/// What the two metrics say: reconnects and stream errors.
pub(crate) fn counted(recorder: &Recorder) -> (u64, u64) {
    (recorder.total("efo_reconnects_total"), recorder.total("efo_stream_errors_total"))
}

/// Puts records whose payloads are the numbers of the range; returns their sequence numbers.
pub(crate) fn put(kinesis: &TestKinesis, numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|n| kinesis.put(STREAM, "key", n.to_string()).unwrap().sequence_number).collect()
}

pub(crate) fn expected(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|n| n.to_string()).collect()
}

/// What a reader said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The payloads of all records.
    pub(crate) payloads: Vec<String>,
    /// The sequence numbers of all records.
    pub(crate) numbers: Vec<String>,
    /// How often it said `Progress`.
    pub(crate) progress: usize,
    /// The other events.
    pub(crate) others: Vec<SourceEvent>,
}

impl Heard {
    pub(crate) fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Records(batch) => {
                for record in batch.records {
                    self.payloads.push(String::from_utf8_lossy(&record.data).into_owned());
                    self.numbers.push(record.sequence.to_string());
                }
            }
            SourceEvent::Progress { .. } => self.progress += 1,
            other => self.others.push(other),
        }
    }

    /// The other events by name.
    pub(crate) fn story(&self) -> Vec<&'static str> {
        let name = |event: &SourceEvent| match event {
            SourceEvent::Ended { .. } => "ended",
            SourceEvent::Gap(_) => "gap",
            SourceEvent::Degraded { .. } => "degraded",
            SourceEvent::Recovered => "recovered",
            _ => "something else",
        };
        self.others.iter().map(name).collect()
    }
}

/// Reads until there are `count` records.
pub(crate) async fn read(reader: &mut EfoReader, count: usize) -> Heard {
    let mut heard = Heard::default();
    while heard.payloads.len() < count {
        heard.take(reader.next().await.unwrap());
    }
    heard
}

/// Reads for this long.
pub(crate) async fn read_for(reader: &mut EfoReader, time: Duration) -> Heard {
    let mut heard = Heard::default();
    let until = Instant::now() + time;
    while let Ok(event) = tokio::time::timeout_at(until, reader.next()).await {
        heard.take(event.unwrap());
    }
    heard
}

/// Reads to the end of the shard.
pub(crate) async fn read_to_end(reader: &mut EfoReader) -> Heard {
    let mut heard = Heard::default();
    while !matches!(heard.others.last(), Some(SourceEvent::Ended { .. })) {
        heard.take(reader.next().await.unwrap());
    }
    heard
}

/// Reads until the reader ends with an error.
pub(crate) async fn read_to_error(reader: &mut EfoReader) -> SourceError {
    loop {
        if let Err(error) = reader.next().await {
            return error;
        }
    }
}

/// The SubscribeToShard calls of the log.
pub(crate) fn subscribes(kinesis: &TestKinesis) -> Vec<Call> {
    kinesis.calls_of(Operation::SubscribeToShard)
}

/// When they came in.
pub(crate) fn times(kinesis: &TestKinesis) -> Vec<Duration> {
    subscribes(kinesis).iter().map(|call| call.elapsed).collect()
}

/// The times between them.
pub(crate) fn spacing(kinesis: &TestKinesis) -> Vec<Duration> {
    times(kinesis).windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Where they started: the type and the number.
pub(crate) fn starts(kinesis: &TestKinesis) -> Vec<(String, Option<String>)> {
    let start = |call: &Call| (call.iterator_type.clone().unwrap_or_default(), call.sequence_number.clone());
    subscribes(kinesis).iter().map(start).collect()
}

/// How many were refused.
pub(crate) fn refused(kinesis: &TestKinesis) -> usize {
    subscribes(kinesis).iter().filter(|call| matches!(call.outcome, Outcome::Refused { .. })).count()
}

/// How many subscriptions live.
pub(crate) fn live(kinesis: &TestKinesis) -> usize {
    kinesis.subscriptions(STREAM).unwrap().len()
}

/// Whether a delay is the given number of seconds, plus at most a quarter.
pub(crate) fn is_about(delay: Duration, seconds: u64) -> bool {
    let least = Duration::from_secs(seconds);
    (least..=least.mul_f64(1.251)).contains(&delay)
}

/// Collects what this thread logs at info and above, for as long as it lives.
pub(crate) struct Captured {
    text: Lines,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    pub(crate) fn start() -> Self {
        // Without a lasting subscriber, threads of other tests may switch a log line off for all.
        static LASTING: std::sync::Once = std::sync::Once::new();
        LASTING.call_once(|| {
            let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
            let _ = tracing::subscriber::set_global_default(everything.with_writer(std::io::sink).finish());
        });
        let text = Lines::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}
