//! A schema of its own for each test, on the server of `DATABASE_URL`.

use std::str::FromStr as _;
use std::sync::Arc;

use async_trait::async_trait;
use kinesis_core::lease::conformance::{ForeignWriter, StoreFactory};
use kinesis_lease::{LeaseKey, LeaseStore, Pooler, PostgresStore, PostgresStoreBuilder};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row as _};

use crate::server::Bouncer;

/// A table that no other test knows.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) schema: String,
    pub(crate) options: PgConnectOptions,
    bouncer: Option<Bouncer>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let url =
            std::env::var("DATABASE_URL").expect("DATABASE_URL names a server; cargo xtask test starts one");
        Self::on(PgConnectOptions::from_str(&url).unwrap())
    }

    pub(crate) fn on(options: PgConnectOptions) -> Self {
        Self { schema: format!("test_{:016x}", fastrand::u64(..)), options, bouncer: None }
    }

    /// The same, with stores that go through pgbouncer.
    pub(crate) async fn pooled() -> Self {
        Self::pooled_on(Self::new().options).await
    }

    pub(crate) async fn pooled_on(options: PgConnectOptions) -> Self {
        let mut table = Self::on(options);
        table.bouncer = Some(Bouncer::start(&table.options).await);
        table
    }

    pub(crate) fn builder(&self) -> PostgresStoreBuilder {
        let builder = PostgresStore::builder().schema(&self.schema);
        if self.bouncer.is_some() { builder.pooler(Pooler::Transaction) } else { builder }
    }

    pub(crate) fn store(&self) -> PostgresStore {
        self.open(self.builder())
    }

    /// A store with these settings.
    pub(crate) fn open(&self, builder: PostgresStoreBuilder) -> PostgresStore {
        let options = self.bouncer.as_ref().map_or_else(|| self.options.clone(), Bouncer::options);
        builder.max_connections(2).options(options).unwrap()
    }

    pub(crate) async fn ready(&self) -> PostgresStore {
        let store = self.store();
        store.setup().await.unwrap();
        store
    }

    /// A plain pool, past the store.
    pub(crate) fn pool(&self) -> PgPool {
        PgPoolOptions::new().max_connections(4).connect_lazy_with(self.options.clone())
    }

    /// Runs statements, with `{s}` for the schema.
    pub(crate) async fn sql(&self, statements: &str) {
        let statements = statements.replace("{s}", &self.schema);
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&self.pool()).await.unwrap();
    }

    /// The only value of a query.
    pub(crate) async fn value(&self, query: &str) -> i64 {
        let query = query.replace("{s}", &self.schema);
        sqlx::query(AssertSqlSafe(query)).fetch_one(&self.pool()).await.unwrap().get(0)
    }
}

#[async_trait]
impl StoreFactory for Table {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.store())
    }

    fn foreign_writer(&self) -> Option<Arc<dyn ForeignWriter>> {
        Some(Arc::new(Foreign { pool: self.pool(), schema: self.schema.clone() }))
    }
}

/// Writes past the store.
#[derive(Debug)]
struct Foreign {
    pool: PgPool,
    schema: String,
}

impl Foreign {
    async fn set(&self, statement: &str, key: &LeaseKey, value: &str) {
        let statement = statement.replace("{s}", &self.schema);
        let query = sqlx::query(AssertSqlSafe(statement)).bind(value.to_owned());
        query.bind(key.shard().as_str().to_owned()).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl ForeignWriter for Foreign {
    async fn set_unknown(&self, key: &LeaseKey, value: &str) {
        for table in ["kinesis_leases", "kinesis_leases_checkpoints"] {
            let add = format!("ALTER TABLE {}.{table} ADD COLUMN of_another text", self.schema);
            sqlx::query(AssertSqlSafe(add)).execute(&self.pool).await.unwrap();
            self.set(&format!("UPDATE {{s}}.{table} SET of_another = $1 WHERE shard = $2"), key, value).await;
        }
    }

    async fn get_unknown(&self, key: &LeaseKey) -> Option<String> {
        let query = "SELECT CASE WHEN l.of_another = c.of_another THEN l.of_another END FROM {s}.kinesis_leases l
                     JOIN {s}.kinesis_leases_checkpoints c USING (application, stream, shard) WHERE shard = $1";
        let query = query.replace("{s}", &self.schema);
        let query = sqlx::query(AssertSqlSafe(query)).bind(key.shard().as_str().to_owned());
        query.fetch_one(&self.pool).await.unwrap().get(0)
    }

    async fn corrupt(&self, key: &LeaseKey) {
        let statement = "UPDATE {s}.kinesis_leases_checkpoints SET checkpoint = $1 WHERE shard = $2";
        self.set(statement, key, "garbage").await;
    }
}
