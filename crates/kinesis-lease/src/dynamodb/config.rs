//! How a store reaches its table, and how a table is made.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder as ClientConfig;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_types::SdkConfig;
use kinesis_core::lease::StoreError;
use kinesis_core::{ApplicationName, ConfigError};

use super::layout::{Keys, TableLayout};
use super::{DynamoDbStore, Settings};

/// How long one attempt of a call may take unless the caller's client has a limit of its own: a heartbeat that waits
/// longer than this is worth more as another attempt.
pub(super) const DEFAULT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the SDK sends a call. The coordinator repeats what failed anyway, at its own growing pace, so that the
/// traffic to a table that throttles does not multiply.
const MAX_ATTEMPTS: u32 = 2;

/// How long the SDK waits at most before the second attempt.
const ATTEMPT_BACKOFF: Duration = Duration::from_millis(100);

/// The quota of retries that lease calls draw from: their own, so that other throttled calls of this process to
/// DynamoDB do not take it away.
const RETRY_PARTITION: &str = "kinesis-leases";

/// How long a table may take to become usable. (The KCL waits as long.)
const DEFAULT_TABLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Calls at the same time. A DynamoDB client over HTTP/1.1 needs a connection for each.
const DEFAULT_MAX_CONCURRENCY: usize = 32;

/// The most segments of a parallel scan
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html>).
const MAX_SEGMENTS: u32 = 1_000_000;

/// Where the store's DynamoDB client comes from: an [`SdkConfig`] or a ready [`Client`].
///
/// What the caller set is kept (endpoint, region, credentials, FIPS, dual stack, proxy, HTTP client, interceptors,
/// timeouts); only retries are the store's own, because the layers above repeat with a pace of their own.
#[derive(Clone)]
pub struct DynamoDbClientSource {
    config: ClientConfig,
    timeouts: Option<TimeoutConfig>,
}

impl DynamoDbClientSource {
    fn client(self, attempt_timeout: Duration) -> Client {
        let ours = TimeoutConfig::builder().operation_attempt_timeout(attempt_timeout);
        let callers = self.timeouts.as_ref().map_or_else(TimeoutConfig::builder, TimeoutConfig::to_builder);
        let retries = RetryConfig::standard()
            .with_max_attempts(MAX_ATTEMPTS)
            .with_initial_backoff(ATTEMPT_BACKOFF)
            .with_max_backoff(ATTEMPT_BACKOFF);
        let config = self
            .config
            .retry_config(retries)
            .retry_partition(RetryPartition::new(RETRY_PARTITION))
            .timeout_config(callers.take_unset_from(ours).build());
        Client::from_conf(config.build())
    }
}

impl From<&SdkConfig> for DynamoDbClientSource {
    fn from(config: &SdkConfig) -> Self {
        Self { config: config.into(), timeouts: config.timeout_config().cloned() }
    }
}

impl From<SdkConfig> for DynamoDbClientSource {
    fn from(config: SdkConfig) -> Self {
        Self::from(&config)
    }
}

impl From<&Client> for DynamoDbClientSource {
    fn from(client: &Client) -> Self {
        Self { config: client.config().to_builder(), timeouts: client.config().timeout_config().cloned() }
    }
}

impl From<Client> for DynamoDbClientSource {
    fn from(client: Client) -> Self {
        Self::from(&client)
    }
}

impl fmt::Debug for DynamoDbClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynamoDbClientSource")
    }
}

/// How a table's traffic is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TableBilling {
    /// By request.
    #[default]
    OnDemand,
    /// By capacity kept ready, in units per second.
    Provisioned {
        /// Read capacity units, at least 1.
        read_units: u32,
        /// Write capacity units, at least 1. Every held lease needs one per heartbeat and per checkpoint.
        write_units: u32,
    },
}

/// A table that the store makes when there is none. Used for a new table only: one that exists is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NewTable {
    /// How the table's traffic is paid for. Default: by request.
    pub billing: TableBilling,
    /// Tags of the table, by name.
    pub tags: BTreeMap<String, String>,
    /// Whether the table can be restored to any second of the last weeks. Default: no.
    pub point_in_time_recovery: bool,
    /// Whether the table refuses to be deleted. Default: no.
    pub deletion_protection: bool,
}

impl NewTable {
    /// A table paid for by request.
    #[must_use]
    pub fn on_demand() -> Self {
        Self::default()
    }

    /// A table with capacity kept ready, in units per second, each at least 1.
    #[must_use]
    pub fn provisioned(read_units: u32, write_units: u32) -> Self {
        Self { billing: TableBilling::Provisioned { read_units, write_units }, ..Self::default() }
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Sets [`point_in_time_recovery`](Self::point_in_time_recovery).
    #[must_use]
    pub fn point_in_time_recovery(mut self, on: bool) -> Self {
        self.point_in_time_recovery = on;
        self
    }

    /// Sets [`deletion_protection`](Self::deletion_protection).
    #[must_use]
    pub fn deletion_protection(mut self, on: bool) -> Self {
        self.deletion_protection = on;
        self
    }
}

/// How a DynamoDB store is made.
#[derive(Debug, Clone)]
pub struct DynamoDbStoreBuilder {
    client: DynamoDbClientSource,
    keys: Keys,
    table: String,
    new_table: Option<NewTable>,
    consistent_reads: bool,
    max_concurrency: usize,
    scan_segments: u32,
    attempt_timeout: Duration,
    table_timeout: Duration,
    hints: bool,
}

impl DynamoDbStoreBuilder {
    pub(super) fn new(client: DynamoDbClientSource, application: ApplicationName) -> Self {
        Self {
            client,
            table: application.to_string(),
            keys: Keys { application, layout: TableLayout::default() },
            new_table: None,
            consistent_reads: false,
            max_concurrency: DEFAULT_MAX_CONCURRENCY,
            scan_segments: 1,
            attempt_timeout: DEFAULT_ATTEMPT_TIMEOUT,
            table_timeout: DEFAULT_TABLE_TIMEOUT,
            hints: true,
        }
    }

    /// The table's name or ARN. Default: the application's name, as the KCL has it.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// What the keys of the rows look like. Default: [`TableLayout::Native`].
    #[must_use]
    pub fn layout(mut self, layout: TableLayout) -> Self {
        self.keys.layout = layout;
        self
    }

    /// Makes the table at [`setup`](kinesis_core::lease::LeaseStore::setup) when there is none. Without this a missing
    /// table is an error.
    #[must_use]
    pub fn create_table(mut self, table: NewTable) -> Self {
        self.new_table = Some(table);
        self
    }

    /// Whether reads wait for the latest write, at twice the price. Safety needs no such reads. Default: no.
    #[must_use]
    pub fn consistent_reads(mut self, on: bool) -> Self {
        self.consistent_reads = on;
        self
    }

    /// How many calls of one `apply`, `get` or `scan` run at the same time. At least 1, default 32.
    #[must_use]
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.max_concurrency = calls;
        self
    }

    /// Into how many parts a scan of the whole table is divided, which are then read at the same time. 1 to 1,000,000,
    /// default 1; more is of use from some thousands of rows.
    #[must_use]
    pub fn scan_segments(mut self, segments: u32) -> Self {
        self.scan_segments = segments;
        self
    }

    /// How long one attempt of a call may take, unless the client has a limit of its own. Default 2 s.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// How long a table may take to become usable after it was made. Default 10 min.
    #[must_use]
    pub fn table_timeout(mut self, timeout: Duration) -> Self {
        self.table_timeout = timeout;
        self
    }

    /// Whether workers tell each other through a small item of the table when leases become free, so that these are taken
    /// in the next second: each worker reads the item each `look_interval`, and it is written once for each batch of
    /// leases that are released, ended or made. Only in [`TableLayout::Native`]. Default: yes.
    #[must_use]
    pub fn hints(mut self, on: bool) -> Self {
        self.hints = on;
        self
    }

    /// Makes the store. No call is sent before [`setup`](kinesis_core::lease::LeaseStore::setup).
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] naming the setting that cannot be used.
    pub fn build(self) -> Result<DynamoDbStore, StoreError> {
        self.check().map_err(|error| StoreError::misconfigured(error.to_string(), None))?;
        Ok(DynamoDbStore::with(
            self.client.client(self.attempt_timeout),
            Settings {
                table: self.table,
                keys: self.keys,
                new_table: self.new_table,
                consistent_reads: self.consistent_reads,
                max_concurrency: self.max_concurrency,
                scan_segments: self.scan_segments,
                table_timeout: self.table_timeout,
                hints: self.hints,
            },
        ))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_table(&self.table)?;
        if self.max_concurrency == 0 {
            return Err(ConfigError::new("max_concurrency", "must be at least 1"));
        }
        if !(1..=MAX_SEGMENTS).contains(&self.scan_segments) {
            return Err(ConfigError::new("scan_segments", "must be between 1 and 1000000"));
        }
        for (field, value) in
            [("attempt_timeout", self.attempt_timeout), ("table_timeout", self.table_timeout)]
        {
            if value.is_zero() {
                return Err(ConfigError::new(field, "must not be zero"));
            }
        }
        if let Some(
            TableBilling::Provisioned { read_units: 0, .. }
            | TableBilling::Provisioned { write_units: 0, .. },
        ) = self.new_table.as_ref().map(|table| table.billing)
        {
            return Err(ConfigError::new("billing", "capacity units must be at least 1"));
        }
        match &self.keys.layout {
            TableLayout::KclMultiStream { streams } if streams.is_empty() => {
                Err(ConfigError::new("layout", "must list at least one stream"))
            }
            _ => Ok(()),
        }
    }
}

/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html>
fn check_table(name: &str) -> Result<(), ConfigError> {
    let bare = match name.strip_prefix("arn:") {
        None => name,
        Some(rest) => {
            let (place, bare) = rest.split_once(":table/").unwrap_or(("", ""));
            if !place.contains(":dynamodb:") {
                return Err(ConfigError::new("table", "the ARN is not that of a DynamoDB table"));
            }
            bare
        }
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if (3..=255).contains(&bare.len()) && bare.bytes().all(allowed) {
        return Ok(());
    }
    let problem = format!(
        "`{name}` cannot name a table: 3 to 255 letters, digits, '_', '.' and '-' can; set a name of its own where the \
         application's name has others"
    );
    Err(ConfigError::new("table", problem))
}
