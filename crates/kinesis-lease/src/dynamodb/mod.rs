//! Leases in a DynamoDB table, laid out as the Kinesis Client Library (KCL) lays it out.

mod config;
mod cursor;
mod error;
mod expression;
mod hint;
mod item;
mod layout;
mod reading;
mod regime;
mod table;
mod writing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use kinesis_core::ApplicationName;
use kinesis_core::lease::{
    HintRequest, Lease, LeaseHints, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanCost, ScanPage,
    ScanRequest, StoreError, StoreProfile,
};

pub use config::{DynamoDbClientSource, DynamoDbStoreBuilder, NewTable, TableBilling};
pub use layout::{StreamIdentifier, TableLayout};

use layout::Keys;

/// Leases in a DynamoDB table.
///
/// The attributes are those of the KCL's lease table; what the KCL does not know lies in attributes of its own whose
/// names start with [`ATTRIBUTE_PREFIX`](Self::ATTRIBUTE_PREFIX). Every write names the attributes it changes, so those of others (of the KCL, of a
/// newer version) are kept. Which rows a table can have is said by its [`TableLayout`].
///
/// A write whose answer was lost is recognised by a mark that it left in the row: it is then reported as applied, and
/// never applied twice. Rows that cannot be read are errors of their own, and other rows go on.
///
/// Calls are cheap on the caller's side and cost a request each: `apply` sends one per write, at most
/// [`max_concurrency`](DynamoDbStoreBuilder::max_concurrency) at the same time, `get` one per 100 rows, `scan` one
/// per page and segment. So a coordinator reads all rows each 20 s only, and in between by key those that something hangs
/// on. In tables of our own, each worker reads one small item each second, whose counter moves when leases become free
/// ([`hints`](DynamoDbStoreBuilder::hints)); in tables that the KCL shares there is no such item. The connections belong to the runtime that the client is used on first: give a
/// [`Coordinator`](crate::Coordinator) a [factory](crate::LeaseStoreSource::factory) whose client has an HTTP client
/// of its own, so that nothing that blocks the application's runtime can hold up a heartbeat.
///
/// Needs the permissions `dynamodb:DescribeTable`, `Scan`, `GetItem`, `BatchGetItem`, `PutItem`, `UpdateItem` and
/// `DeleteItem`; to make the table also `CreateTable`, and `TagResource` and `UpdateContinuousBackups` where those
/// options are used. In a layout of the KCL also `GetItem` on the table `<application>-CoordinatorState` and `Scan` on
/// `<application>-WorkerMetricStats` (with `publish_worker_metrics` also `UpdateItem` and `DeleteItem`), where the KCL has made these.
#[derive(Clone)]
pub struct DynamoDbStore {
    client: Client,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Settings {
    table: String,
    keys: Keys,
    new_table: Option<NewTable>,
    consistent_reads: bool,
    max_concurrency: usize,
    scan_segments: u32,
    table_timeout: Duration,
    hints: bool,
}

impl DynamoDbStore {
    /// What starts the name of every attribute that the KCL does not know. Programs that share the table must not
    /// write attributes with this prefix.
    pub const ATTRIBUTE_PREFIX: &'static str = item::PREFIX;

    /// Settings before the store is made, from an `SdkConfig` or a ready client.
    pub fn builder(
        client: impl Into<DynamoDbClientSource>,
        application: ApplicationName,
    ) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client.into(), application)
    }

    /// The table's name or ARN.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.settings.table
    }

    fn with(client: Client, settings: Settings) -> Self {
        Self { client, settings: Arc::new(settings) }
    }
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseStore for DynamoDbStore {
    async fn setup(&self) -> Result<(), StoreError> {
        self.set_up().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.read_rows(keys).await
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.read_page(request).await
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let results = self.write_all(writes).await;
        self.give_hints(writes, &results).await;
        results
    }

    fn profile(&self) -> StoreProfile {
        // The store gives up by itself, and says why.
        let setup_timeout = self.settings.table_timeout.saturating_add(StoreProfile::DEFAULT_SETUP_TIMEOUT);
        StoreProfile::default().scan_cost(ScanCost::PerRow).setup_timeout(setup_timeout)
    }

    fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
        self.has_hints().then(|| Box::new(hint::Hints::new(self.clone(), request.clone())) as _)
    }
}
