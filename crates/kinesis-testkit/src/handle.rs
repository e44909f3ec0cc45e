//! The handle that tests hold.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::config::{
    BehaviorVersion, Credentials, SharedCredentialsProvider, StalledStreamProtectionConfig,
};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_types::SdkConfig;
use aws_types::region::Region;
use bytes::Bytes;

use crate::builder::Builder;
use crate::calls::Call;
use crate::clock::TestClock;
use crate::connector::InProcess;
use crate::error::ServiceError;
use crate::faults::Faults;
use crate::model::{Blob, Operation, PutEntry};
use crate::server::{ServeOptions, Server};
use crate::service::Service;
use crate::state::{KeyState, Settings};
use crate::view::{Placement, ShardView, StoredRecord, SubscriptionView};

/// An Amazon Kinesis in this process. Cheap to clone; clones are the same service.
///
/// Everything that is written is kept in memory until its retention period is over, up to
/// [`Builder::memory_limit`].
#[derive(Debug, Clone)]
pub struct TestKinesis(Arc<Service>);

impl Default for TestKinesis {
    fn default() -> Self {
        Self::new()
    }
}

impl TestKinesis {
    /// A service with the default settings, on tokio's clock. Call it inside the runtime whose time it is to follow.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a service.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn from_parts(settings: Settings, clock: TestClock) -> Self {
        Self(Arc::new(Service::new(settings, clock)))
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.0
    }

    /// An SDK client that calls this service in process: no sockets, retries off, tokio's clock paused or not.
    pub fn client(&self) -> Client {
        Client::new(&self.sdk_config())
    }

    /// An SDK configuration whose clients call this service in process, with retries and stalled-stream protection
    /// off and credentials that mean nothing.
    pub fn sdk_config(&self) -> SdkConfig {
        let credentials = Credentials::new("TESTKIT", "no-secret", None, None, "kinesis-testkit");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new(self.0.region.clone()))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(RetryConfig::disabled())
            // It measures real time, which stands still in a virtual-time test.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(self.http_client())
            .build()
    }

    /// The HTTP client behind [`client`](Self::client), for an SDK configuration of your own.
    pub fn http_client(&self) -> SharedHttpClient {
        SharedHttpClient::new(InProcess(Arc::clone(&self.0)))
    }

    /// Serves HTTP/1.1 and HTTP/2 (with prior knowledge) on `addr`; port 0 takes a free one.
    ///
    /// Use a clock that runs: [`TestClock::system`] if clients compare times. Under a paused clock real sockets do
    /// not work well, because time jumps whenever the runtime waits for one.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn serve(&self, addr: impl Into<SocketAddr> + Send) -> io::Result<Server> {
        self.serve_with(addr, ServeOptions::new()).await
    }

    /// Serves HTTP/1.1 and HTTP/2 on `addr` as the options say; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be listened on, or no certificate can be made.
    pub async fn serve_with(
        &self,
        addr: impl Into<SocketAddr> + Send,
        options: ServeOptions,
    ) -> io::Result<Server> {
        Server::start(Arc::clone(&self.0), addr.into(), options).await
    }

    /// The service's clock.
    pub fn clock(&self) -> &TestClock {
        &self.0.clock
    }

    /// The script of faults.
    pub fn faults(&self) -> Faults {
        Faults(Arc::clone(&self.0))
    }

    /// How many calls of `operation` came in, refused ones included. Helpers of this type do not count.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.0.lock().log.count(operation)
    }

    /// The latest calls in the order in which they came in, at most [`CALL_LOG_LENGTH`](crate::CALL_LOG_LENGTH).
    pub fn calls_log(&self) -> Vec<Call> {
        self.0.lock().log.calls()
    }

    /// The latest calls of `operation`.
    pub fn calls_of(&self, operation: Operation) -> Vec<Call> {
        let mut calls = self.calls_log();
        calls.retain(|call| call.operation == operation);
        calls
    }

    /// Waits until `operation` was called `count` times since the start or the last
    /// [`clear_calls`](Self::clear_calls). Without a limit of its own: put a timeout around it. Cancel-safe.
    pub async fn wait_for_calls(&self, operation: Operation, count: u64) {
        self.0.wait_for_calls(operation, count).await;
    }

    /// Forgets all calls and sets the counters to zero.
    pub fn clear_calls(&self) {
        self.0.lock().log.clear();
    }

    /// The ARN of the stream with this name, whether it exists or not.
    pub fn stream_arn(&self, stream: &str) -> String {
        self.0.with(|kinesis, _| kinesis.arn(stream))
    }

    /// Makes a stream that is active at once.
    ///
    /// # Errors
    /// `ResourceInUseException` if it exists, `ValidationException` for a bad name or zero shards.
    pub fn create_stream(&self, name: &str, shards: usize) -> Result<(), ServiceError> {
        self.0.with(|kinesis, now| kinesis.create_now(now, name, shards))
    }

    /// Removes a stream and its records at once.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn delete_stream(&self, name: &str) -> Result<(), ServiceError> {
        self.0.with(|kinesis, now| kinesis.delete_now(now, name))
    }

    /// Registers a consumer that is active at once, and returns its ARN. Past the quotas of calls per second.
    ///
    /// # Errors
    /// As RegisterStreamConsumer.
    pub fn register_consumer(&self, stream: &str, name: &str) -> Result<String, ServiceError> {
        self.0.with(|kinesis, now| kinesis.register_now(now, stream, name))
    }

    /// The subscriptions to the stream's shards that live, in the order in which they were made. One whose client
    /// has gone away is not among them.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn subscriptions(&self, stream: &str) -> Result<Vec<SubscriptionView>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.subscription_views(now, stream))
    }

    /// Encrypts the stream, as far as clients can tell, with a key in this state: reads, writes and subscriptions
    /// fail while it cannot be used.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn set_key_state(&self, stream: &str, state: KeyState) -> Result<(), ServiceError> {
        self.0.with(|kinesis, now| kinesis.set_key_state(now, stream, state))
    }

    /// Stores a record, past the write quotas.
    ///
    /// # Errors
    /// As PutRecord, except for throttling.
    pub fn put(
        &self,
        stream: &str,
        partition_key: &str,
        data: impl Into<Bytes>,
    ) -> Result<Placement, ServiceError> {
        let entry = PutEntry {
            data: Some(Blob(data.into())),
            partition_key: Some(partition_key.to_owned()),
            explicit_hash_key: None,
        };
        self.0.with(|kinesis, now| kinesis.put_now(now, stream, entry))
    }

    /// Stores a record in the shard whose range holds `hash_key`, past the write quotas.
    ///
    /// # Errors
    /// As PutRecord, except for throttling.
    pub fn put_at(
        &self,
        stream: &str,
        hash_key: u128,
        partition_key: &str,
        data: impl Into<Bytes>,
    ) -> Result<Placement, ServiceError> {
        let entry = PutEntry {
            data: Some(Blob(data.into())),
            partition_key: Some(partition_key.to_owned()),
            explicit_hash_key: Some(hash_key.to_string()),
        };
        self.0.with(|kinesis, now| kinesis.put_now(now, stream, entry))
    }

    /// Splits a shard in the middle, at once; returns the children's ids, the lower range first.
    ///
    /// # Errors
    /// As SplitShard.
    pub fn split(&self, stream: &str, shard: &str) -> Result<Vec<String>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.split_now(now, stream, shard, None))
    }

    /// Splits a shard so that the second child starts at `hash_key`, at once; returns the children's ids.
    ///
    /// # Errors
    /// As SplitShard.
    pub fn split_at(&self, stream: &str, shard: &str, hash_key: u128) -> Result<Vec<String>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.split_now(now, stream, shard, Some(hash_key)))
    }

    /// Merges two adjacent shards, at once; returns the child's id.
    ///
    /// # Errors
    /// As MergeShards.
    pub fn merge(&self, stream: &str, shard: &str, adjacent: &str) -> Result<String, ServiceError> {
        let children = self.0.with(|kinesis, now| kinesis.merge_now(now, stream, shard, adjacent))?;
        Ok(children.into_iter().next().expect("a merge has one child"))
    }

    /// Splits a shard in the middle at an exact position in its sequence: once it has taken `records` more records,
    /// whoever writes them, be it in the middle of a PutRecords call. The next record goes to a child.
    ///
    /// # Errors
    /// `ResourceNotFoundException`, or `InvalidArgumentException` for a shard that is closed or too narrow.
    pub fn split_after(&self, stream: &str, shard: &str, records: u64) -> Result<(), ServiceError> {
        self.0.with(|kinesis, now| kinesis.split_after(now, stream, shard, records))
    }

    /// Merges two adjacent shards once the first has taken `records` more records, as
    /// [`split_after`](Self::split_after). Nothing happens if one of them is closed by then.
    ///
    /// # Errors
    /// `ResourceNotFoundException`, or `InvalidArgumentException` for shards that are closed or not adjacent.
    pub fn merge_after(
        &self,
        stream: &str,
        shard: &str,
        adjacent: &str,
        records: u64,
    ) -> Result<(), ServiceError> {
        self.0.with(|kinesis, now| kinesis.merge_after(now, stream, shard, adjacent, records))
    }

    /// The bytes that all records hold, as [`Builder::memory_limit`] counts them.
    pub fn stored_bytes(&self) -> u64 {
        self.0.with(|kinesis, _| kinesis.stored_bytes())
    }

    /// How many records were forgotten before their time because of [`Builder::memory_limit`].
    pub fn evicted_records(&self) -> u64 {
        self.0.with(|kinesis, _| kinesis.evicted())
    }

    /// Changes the number of open shards, at once; returns the ids of the shards that this made, short-lived ones
    /// included.
    ///
    /// # Errors
    /// As UpdateShardCount: at most doubled, at least halved.
    pub fn scale(&self, stream: &str, target: usize) -> Result<Vec<String>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.scale_now(now, stream, target))
    }

    /// Forgets the records of a shard up to and including `sequence_number`, as if they had aged out; returns how
    /// many.
    ///
    /// # Errors
    /// `ResourceNotFoundException`, or `InvalidArgumentException` for a number that is not the stream's.
    pub fn trim(&self, stream: &str, shard: &str, sequence_number: &str) -> Result<usize, ServiceError> {
        self.0.with(|kinesis, now| kinesis.trim_now(now, stream, shard, sequence_number))
    }

    /// Forgets every record of the stream, as if they had aged out; returns how many.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn clear_records(&self, stream: &str) -> Result<usize, ServiceError> {
        self.0.with(|kinesis, now| kinesis.clear_now(now, stream))
    }

    /// Every record that the stream holds, in the order of shard and sequence number.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn records(&self, stream: &str) -> Result<Vec<StoredRecord>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.stored(now, stream))
    }

    /// How many records the stream holds, without a copy of them.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn record_count(&self, stream: &str) -> Result<usize, ServiceError> {
        self.0.with(|kinesis, now| kinesis.stored_count(now, stream))
    }

    /// Whether the stream is `ACTIVE`; none if there is none.
    pub(crate) fn is_active(&self, stream: &str) -> Option<bool> {
        self.0.with(|kinesis, now| kinesis.is_active(now, stream))
    }

    /// Whether the stream has this consumer and it is `ACTIVE`.
    pub(crate) fn consumer_is_active(&self, stream: &str, consumer: &str) -> bool {
        self.0.with(|kinesis, now| kinesis.consumer_is_active(now, stream, consumer))
    }

    /// Every shard that the stream lists, in the order of their ids.
    ///
    /// # Errors
    /// `ResourceNotFoundException`.
    pub fn shards(&self, stream: &str) -> Result<Vec<ShardView>, ServiceError> {
        self.0.with(|kinesis, now| kinesis.shard_views(now, stream))
    }
}
