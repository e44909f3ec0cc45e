//! Helpers that several test files share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod efo;

use std::fmt::Debug;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::{Blob, DateTime};
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, ShardIteratorType};
use kinesis_testkit::{Rule, TestClock, TestKinesis};

/// The ARN of the stream `s`.
pub const ARN: &str = "arn:aws:kinesis:us-east-1:123456789012:stream/s";

pub const SHARD_0: &str = "shardId-000000000000";
pub const SHARD_1: &str = "shardId-000000000001";
pub const SHARD_2: &str = "shardId-000000000002";
pub const SHARD_3: &str = "shardId-000000000003";

/// The error code of a refused call.
#[track_caller]
pub fn code<T, E>(result: Result<T, SdkError<E>>) -> String
where
    E: ProvideErrorMetadata + Debug,
{
    let error = result.map(drop).expect_err("the call should have been refused");
    error.as_service_error().and_then(|error| error.code()).expect("an error of the service").to_owned()
}

/// The message of a refused call.
#[track_caller]
pub fn message<T, E>(result: Result<T, SdkError<E>>) -> String
where
    E: ProvideErrorMetadata + Debug,
{
    let error = result.map(drop).expect_err("the call should have been refused");
    error.as_service_error().and_then(|error| error.message()).expect("an error of the service").to_owned()
}

pub fn entry(key: &str, data: impl Into<Vec<u8>>) -> PutRecordsRequestEntry {
    PutRecordsRequestEntry::builder().partition_key(key).data(Blob::new(data.into())).build().unwrap()
}

pub fn entry_at(hash_key: u128, data: impl Into<Vec<u8>>) -> PutRecordsRequestEntry {
    PutRecordsRequestEntry::builder()
        .partition_key("k")
        .explicit_hash_key(hash_key.to_string())
        .data(Blob::new(data.into()))
        .build()
        .unwrap()
}

/// An iterator at the oldest record.
pub async fn oldest(client: &Client, stream: &str, shard: &str) -> String {
    client
        .get_shard_iterator()
        .stream_name(stream)
        .shard_id(shard)
        .shard_iterator_type(ShardIteratorType::TrimHorizon)
        .send()
        .await
        .unwrap()
        .shard_iterator
        .unwrap()
}

pub async fn read(client: &Client, iterator: &str) -> GetRecordsOutput {
    client.get_records().shard_iterator(iterator).send().await.unwrap()
}

/// The payloads of a page as text.
pub fn texts(page: &GetRecordsOutput) -> Vec<String> {
    page.records().iter().map(|record| String::from_utf8(record.data().as_ref().to_vec()).unwrap()).collect()
}

/// The service's time as the SDK writes it, moved by some milliseconds.
pub fn time(clock: &TestClock, millis: i64) -> DateTime {
    let now = DateTime::from(clock.now());
    DateTime::from_millis(now.to_millis().unwrap() + millis)
}

/// A service with one active stream `s`.
pub fn with_stream(shards: usize) -> (TestKinesis, Client) {
    let kinesis = TestKinesis::new();
    kinesis.create_stream("s", shards).unwrap();
    let client = kinesis.client();
    (kinesis, client)
}

/// A service without one of its rules, with one active stream `s` of one shard.
pub fn without(rule: Rule) -> (TestKinesis, Client) {
    let kinesis = TestKinesis::builder().without(rule).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    (kinesis, client)
}

pub async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
