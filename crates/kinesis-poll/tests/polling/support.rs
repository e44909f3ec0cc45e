//! A service with one stream, and ways to read it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_types::body::SdkBody;
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{BoxError, ShardRef, StartPosition};
use kinesis_poll::{PollConfig, PollReader, PollSource};
use kinesis_testkit::{Call, Operation, Outcome, TestKinesis};

pub(crate) const STREAM: &str = "orders";
pub(crate) const SHARD: &str = "shardId-000000000000";
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A service with the stream `orders`.
pub(crate) fn service(shards: usize) -> TestKinesis {
    let kinesis = TestKinesis::new();
    kinesis.create_stream(STREAM, shards).unwrap();
    kinesis
}

pub(crate) fn shard(number: usize) -> ShardRef {
    ShardRef::new(STREAM.parse().unwrap(), format!("shardId-{number:012}").parse().unwrap())
}

pub(crate) fn source(kinesis: &TestKinesis, config: PollConfig) -> PollSource {
    PollSource::new(kinesis.client(), config).unwrap().seed(1)
}

/// A source for each decoder that there is.
pub(crate) fn decoders(client: &Client, config: PollConfig) -> Vec<PollSource> {
    let source = PollSource::new(client, config).unwrap().seed(1);
    vec![
        #[cfg(feature = "fast-decode")]
        source.clone().fast_decode(),
        source,
    ]
}

/// A reader of the first shard.
pub(crate) fn reader(kinesis: &TestKinesis, start: StartPosition, config: PollConfig) -> PollReader {
    source(kinesis, config).reader(OpenShard::new(shard(0), start))
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
    /// The other events except `Progress`.
    pub(crate) others: Vec<SourceEvent>,
}

impl Heard {
    pub(crate) fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Records(batch) => {
                for record in batch.records {
                    self.payloads.push(String::from_utf8(record.data.to_vec()).unwrap());
                    self.numbers.push(record.sequence.to_string());
                }
            }
            SourceEvent::Progress { .. } => {}
            other => self.others.push(other),
        }
    }
}

/// Reads until there are `count` records.
pub(crate) async fn read(reader: &mut PollReader, count: usize) -> Heard {
    let mut heard = Heard::default();
    while heard.payloads.len() < count {
        heard.take(reader.next().await.unwrap());
    }
    heard
}

/// Reads for this long.
pub(crate) async fn read_for(reader: &mut PollReader, time: Duration) -> Heard {
    let mut heard = Heard::default();
    let reading = async {
        loop {
            heard.take(reader.next().await.unwrap());
        }
    };
    let _: Result<(), _> = tokio::time::timeout(time, reading).await;
    heard
}

/// Reads until the reader ends with an error.
pub(crate) async fn read_to_error(reader: &mut PollReader) -> SourceError {
    loop {
        if let Err(error) = reader.next().await {
            return error;
        }
    }
}

/// When the calls of an operation came in.
pub(crate) fn times(kinesis: &TestKinesis, operation: Operation) -> Vec<Duration> {
    kinesis.calls_of(operation).iter().map(|call| call.elapsed).collect()
}

/// The times between the GetRecords of the log.
pub(crate) fn spacing(kinesis: &TestKinesis) -> Vec<Duration> {
    times(kinesis, Operation::GetRecords).windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Whether two reads are as close as a reader makes them that is behind and alone.
pub(crate) fn is_full_rate(time: &Duration) -> bool {
    (200 * MS..=211 * MS).contains(time)
}

pub(crate) fn is_refused(call: &Call) -> bool {
    matches!(call.outcome, Outcome::Refused { .. })
}

/// A client that gets other bodies in the place of those of GetRecords' answers, where `instead` has one.
pub(crate) fn with_bodies(
    client: &Client,
    instead: impl Fn(&[u8]) -> Option<SdkBody> + Send + Sync + 'static,
) -> Client {
    Client::from_conf(client.config().to_builder().interceptor(Bodies(instead)).build())
}

struct Bodies<F>(F);

impl<F> std::fmt::Debug for Bodies<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bodies")
    }
}

impl<F: Fn(&[u8]) -> Option<SdkBody> + Send + Sync> Intercept for Bodies<F> {
    fn name(&self) -> &'static str {
        "Bodies"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response().body().bytes().unwrap_or_default();
        if body.windows(18).any(|part| part == b"MillisBehindLatest")
            && let Some(body) = (self.0)(body)
        {
            *context.response_mut().body_mut() = body;
        }
        Ok(())
    }
}

/// What this crate logs on this thread, at every level.
pub(crate) struct Captured {
    text: Lines,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

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
        const OURS: &str = "kinesis_poll=trace";
        // Without a lasting subscriber, threads of other tests may switch a log line off for all.
        static LASTING: std::sync::Once = std::sync::Once::new();
        LASTING.call_once(|| {
            let everything = tracing_subscriber::fmt().with_env_filter(OURS).with_writer(std::io::sink);
            let _ = tracing::subscriber::set_global_default(everything.finish());
        });
        let text = Lines::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(OURS)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.text.0.lock().unwrap())).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}
