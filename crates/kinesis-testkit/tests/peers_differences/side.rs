//! One server of a comparison, what it answers, and how answers are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::types::StreamStatus;
use kinesis_testkit::{Rule, Server, TestClock, TestKinesis};

/// How long a stream or a consumer may take to become active, or an event to come.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A reply, member by member; a refused call has the code under `error` alone.
pub type Answer = BTreeMap<&'static str, String>;

/// The fields of a reply, or the code of a refused call.
pub fn answer<T, E: ProvideErrorMetadata, const N: usize>(
    result: Result<T, SdkError<E>>,
    fields: impl FnOnce(T) -> [(&'static str, String); N],
) -> Answer {
    match result {
        Ok(reply) => fields(reply).into_iter().collect(),
        Err(error) => {
            let code = error.as_service_error().and_then(|error| error.code()).unwrap_or("no reply");
            [("error", code.to_owned())].into()
        }
    }
}

/// A known deviation of a peer: the step, the field, their value and ours (`*` is any), and who is right.
pub struct Deviation {
    pub step: &'static str,
    pub field: &'static str,
    pub theirs: &'static str,
    pub ours: &'static str,
    pub right: &'static str,
}

/// What a field says that is not in an answer.
const ABSENT: &str = "-";

/// The fields that differ and are not listed, as lines of a report.
pub fn differences(step: &str, ours: &Answer, theirs: &Answer, known: &[Deviation]) -> Vec<String> {
    // Where one of them refuses, the code is all that there is to compare.
    let refused = ours.contains_key("error") || theirs.contains_key("error");
    let fields: BTreeSet<_> =
        if refused { ["error"].into() } else { ours.keys().chain(theirs.keys()).copied().collect() };
    let value = |answer: &Answer, field: &str| answer.get(field).map_or(ABSENT, String::as_str).to_owned();
    let is_known = |field: &str, mine: &str, other: &str| {
        known.iter().any(|listed| {
            assert!(!listed.right.is_empty());
            listed.step == step
                && listed.field == field
                && [listed.theirs, "*"].contains(&if listed.theirs == "*" { "*" } else { other })
                && [listed.ours, "*"].contains(&if listed.ours == "*" { "*" } else { mine })
        })
    };
    fields
        .into_iter()
        .filter_map(|field| {
            let (mine, other) = (value(ours, field), value(theirs, field));
            let differs = mine != other && !is_known(field, &mine, &other);
            differs.then(|| format!("{step}.{field}\n  ours   {mine}\n  theirs {other}"))
        })
        .collect()
}

/// One server and a stream on it.
pub struct Side {
    pub client: Client,
    pub stream: String,
}

impl Side {
    pub fn new(endpoint: &str, stream: &str) -> Self {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = TestKinesis::builder().clock(TestClock::system()).build().sdk_config();
        let config = aws_sdk_kinesis::config::Builder::from(&config);
        let config = config.http_client(http).endpoint_url(endpoint).retry_config(RetryConfig::disabled());
        Self { client: Client::from_conf(config.build()), stream: stream.to_owned() }
    }

    pub async fn create(&self, shards: i32) {
        self.client.create_stream().stream_name(&self.stream).shard_count(shards).send().await.unwrap();
        self.wait_active().await;
    }

    pub async fn wait_active(&self) {
        let waiting = async {
            loop {
                let summary = self.client.describe_stream_summary().stream_name(&self.stream).send().await;
                let summary = summary.ok().and_then(|reply| reply.stream_description_summary);
                if summary.is_some_and(|summary| summary.stream_status == StreamStatus::Active) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.expect("the stream becomes active");
    }

    pub async fn arn(&self) -> String {
        let summary = self.client.describe_stream_summary().stream_name(&self.stream).send().await.unwrap();
        summary.stream_description_summary.unwrap().stream_arn
    }
}

pub fn endpoint(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run this through `cargo xtask peers`"))
}

pub fn shard_id(number: usize) -> String {
    format!("shardId-{number:012}")
}

/// A service of ours for comparison: without quotas per second, which the others do not have, and with the entries of
/// one call in their order, which the service leaves open and the others keep.
pub async fn ours() -> (TestKinesis, Server) {
    let kinesis = TestKinesis::builder()
        .clock(TestClock::system())
        .without_throughput_limits()
        .without(Rule::RecordOrder)
        .create_stream_delay(Duration::from_millis(5))
        .delete_stream_delay(Duration::from_millis(5))
        .register_consumer_delay(Duration::from_millis(5))
        .reshard_delay(Duration::from_millis(5))
        .build();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    (kinesis, server)
}
