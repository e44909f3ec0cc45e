//! A stream in this process, leases and results in a schema of the test's own.

use std::str::FromStr as _;
use std::time::Duration;

use kinesis_consumer::core::lease::{Lease, LeaseStore as _, ScanRequest};
use kinesis_consumer::core::{ApplicationName, BoxError};
use kinesis_consumer::lease::{LeaseConfig, PostgresStore};
use kinesis_consumer::poll::PollConfig;
use kinesis_consumer::{Checkpoints, Consumer, ConsumerBuilder, RecordBatch};
use kinesis_testkit::TestKinesis;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Postgres, Row as _, Transaction};

pub(crate) const STREAM: &str = "orders";
pub(crate) const APPLICATION: &str = "billing";

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(240);

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) kinesis: TestKinesis,
    pub(crate) store: PostgresStore,
    pub(crate) pool: PgPool,
    pub(crate) schema: String,
}

impl World {
    pub(crate) async fn new(shards: u32) -> Self {
        let kinesis = TestKinesis::new();
        kinesis.create_stream(STREAM, shards as _).unwrap();
        let url =
            std::env::var("DATABASE_URL").expect("DATABASE_URL names a server; cargo xtask test starts one");
        let options = PgConnectOptions::from_str(&url).unwrap();
        let pool = PgPoolOptions::new().max_connections(8).connect_lazy_with(options.clone());
        let schema = format!("test_{:016x}", fastrand::u64(..));
        let store = PostgresStore::builder().schema(&schema).options(options).unwrap();
        store.setup().await.unwrap();
        let world = Self { kinesis, store, pool, schema };
        // Nothing in the table keeps a record from being written twice.
        world.sql("CREATE TABLE {s}.results (n bigint NOT NULL, worker text NOT NULL)").await;
        world
    }

    /// A consumer with short times, so that leases change hands often.
    pub(crate) fn consumer(&self, worker: &str) -> ConsumerBuilder {
        let lease = LeaseConfig::default()
            .expiry(Duration::from_millis(1_500))
            .heartbeat_interval(Duration::from_millis(200))
            .look_interval(Duration::from_millis(100));
        let mut poll = PollConfig::default();
        poll.idle_interval = Duration::from_millis(250);
        Consumer::builder(self.kinesis.client(), APPLICATION, STREAM)
            .worker_id(worker)
            .lease_store(self.store.clone())
            .lease(lease)
            .poll(poll)
            .retry_initial(Duration::from_millis(10))
            .retry_max(Duration::from_millis(50))
            .checkpoints(Checkpoints::Transactional)
    }

    pub(crate) fn put(&self, from: u32, to: u32) {
        for number in from..to {
            self.kinesis.put(STREAM, &format!("k{}", number % 7), number.to_string()).unwrap();
        }
    }

    pub(crate) async fn sql(&self, statement: &str) {
        let statement = statement.replace("{s}", &self.schema);
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.pool).await.unwrap();
    }

    pub(crate) async fn value(&self, query: &str) -> i64 {
        let query = query.replace("{s}", &self.schema);
        sqlx::query(AssertSqlSafe(query)).fetch_one(&self.pool).await.unwrap().get(0)
    }

    /// How many results there are, and of how many different records.
    pub(crate) async fn results(&self) -> (i64, i64) {
        let different = self.value("SELECT count(DISTINCT n) FROM {s}.results").await;
        (self.value("SELECT count(*) FROM {s}.results").await, different)
    }

    /// A transaction with the results of a batch in it.
    pub(crate) async fn write(
        &self,
        worker: &str,
        batch: &RecordBatch,
    ) -> Result<Transaction<'static, Postgres>, BoxError> {
        let mut transaction = self.pool.begin().await?;
        let numbers: Vec<i64> = batch
            .records()
            .iter()
            .map(|record| std::str::from_utf8(record.data()).unwrap().parse().unwrap())
            .collect();
        let insert =
            format!("INSERT INTO {}.results SELECT n, $2 FROM unnest($1::bigint[]) AS n", self.schema);
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(numbers).bind(worker.to_owned());
        insert.execute(&mut *transaction).await?;
        Ok(transaction)
    }

    /// Writes the results of a batch and its position together.
    pub(crate) async fn process(&self, worker: &str, batch: &RecordBatch) -> Result<(), BoxError> {
        let mut transaction = self.write(worker, batch).await?;
        let last = batch.last_position().expect("a batch has a record");
        self.store.checkpoint_in(&mut transaction, batch.fence(), last).await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(crate) async fn rows(&self) -> Vec<Lease> {
        let request = ScanRequest::new(ApplicationName::new(APPLICATION).unwrap());
        self.store.scan(&request).await.unwrap().leases
    }
}

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never happened: {what}"));
}
