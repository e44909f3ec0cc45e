//! Where Kinesis clients come from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_kinesis::config::timeout::TimeoutConfig;
use aws_types::SdkConfig;

/// What a client is used for. Calls of different purposes must not hold each other up: over TLS all calls of one
/// client share one HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Listing shards, describing streams, registering consumers.
    Control,
    /// GetShardIterator and GetRecords.
    Read,
    /// SubscribeToShard; subscriptions are spread over several groups.
    Subscribe {
        /// The group.
        group: u16,
    },
    /// PutRecords.
    Write,
}

/// The longest that one attempt of a data call may take, its body included, unless the caller's client has a limit
/// of its own: a full page of 10 MiB needs 20 s at 0.5 MiB/s.
pub const DEFAULT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for control calls, whose answers are small.
pub const DEFAULT_CONTROL_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The quota of retries that control calls draw from: their own, so that throttled data calls of this process
/// (which the SDK counts per process, service and region) do not take it away.
const CONTROL_RETRY_PARTITION: &str = "kinesis-control";

type MakeClient = dyn Fn(Purpose) -> Client + Send + Sync;

/// Makes a Kinesis client for each purpose and keeps it.
///
/// Made from an [`SdkConfig`] or from a ready [`Client`], it keeps what the caller set (endpoint, credentials, FIPS,
/// dual stack, proxy, HTTP client, interceptors) and changes retries and timeouts only: on the data path the SDK does
/// not retry, because the crates here retry with backoff of their own and two layers multiply; every call gets an
/// attempt timeout where the caller has set none. [`from_fn`](Self::from_fn) leaves everything to the caller.
#[derive(Clone)]
pub struct ClientSource {
    make: Arc<MakeClient>,
    made: Arc<Mutex<BTreeMap<Purpose, Client>>>,
}

impl ClientSource {
    /// Clients made by the caller, who then answers for retries and timeouts.
    pub fn from_fn(make: impl Fn(Purpose) -> Client + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), made: Arc::default() }
    }

    /// The client for a purpose, made on first use.
    #[must_use]
    pub fn client(&self, purpose: Purpose) -> Client {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(purpose).or_insert_with(|| (self.make)(purpose)).clone()
    }

    fn adapted(base: aws_sdk_kinesis::config::Builder, had: Option<TimeoutConfig>) -> Self {
        Self::from_fn(move |purpose| {
            let mut builder = base.clone();
            let attempt_timeout = match purpose {
                Purpose::Control => {
                    builder = builder
                        .retry_config(RetryConfig::standard())
                        .retry_partition(RetryPartition::new(CONTROL_RETRY_PARTITION));
                    DEFAULT_CONTROL_ATTEMPT_TIMEOUT
                }
                Purpose::Read | Purpose::Subscribe { .. } | Purpose::Write => {
                    builder = builder.retry_config(RetryConfig::disabled());
                    DEFAULT_ATTEMPT_TIMEOUT
                }
            };
            let ours = TimeoutConfig::builder().operation_attempt_timeout(attempt_timeout);
            let callers = had.as_ref().map_or_else(TimeoutConfig::builder, TimeoutConfig::to_builder);
            Client::from_conf(builder.timeout_config(callers.take_unset_from(ours).build()).build())
        })
    }
}

impl From<&SdkConfig> for ClientSource {
    fn from(config: &SdkConfig) -> Self {
        Self::adapted(config.into(), config.timeout_config().cloned())
    }
}

impl From<SdkConfig> for ClientSource {
    fn from(config: SdkConfig) -> Self {
        Self::from(&config)
    }
}

impl From<&Client> for ClientSource {
    fn from(client: &Client) -> Self {
        Self::adapted(client.config().to_builder(), client.config().timeout_config().cloned())
    }
}

impl From<Client> for ClientSource {
    fn from(client: Client) -> Self {
        Self::from(&client)
    }
}

impl From<&Self> for ClientSource {
    fn from(source: &Self) -> Self {
        source.clone()
    }
}

impl fmt::Debug for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSource")
    }
}
