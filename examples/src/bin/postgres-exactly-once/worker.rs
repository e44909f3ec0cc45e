//! A worker: its results and the position in the stream are written in one transaction.

use std::time::Duration;

use kinesis_consumer::core::BoxError;
use kinesis_consumer::lease::{LeaseConfig, PostgresStore};
use kinesis_consumer::{Checkpoints, Consumer, RecordBatch};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::STREAM;

/// What a batch is processed with.
#[derive(Clone)]
struct Ledger {
    pool: PgPool,
    store: PostgresStore,
    schema: String,
}

impl Ledger {
    /// Adds the amounts of a batch up. Neither statement could be repeated without harm.
    async fn process(&self, batch: RecordBatch) -> Result<(), BoxError> {
        let Some(last) = batch.last_position() else { return Ok(()) };
        let numbers =
            batch.records().iter().map(|record| number(record.data())).collect::<Result<Vec<_>, _>>()?;
        let schema = &self.schema;
        let mut transaction = self.pool.begin().await?;
        let entries = format!("INSERT INTO {schema}.entries SELECT * FROM unnest($1::bigint[])");
        sqlx::query(AssertSqlSafe(entries)).bind(&numbers).execute(&mut *transaction).await?;
        let total = format!(
            "INSERT INTO {schema}.totals AS t VALUES ($1, $2)
             ON CONFLICT (shard) DO UPDATE SET amount = t.amount + excluded.amount"
        );
        let amount: i64 = numbers.iter().sum();
        let total = sqlx::query(AssertSqlSafe(total)).bind(batch.source().shard().as_str()).bind(amount);
        total.execute(&mut *transaction).await?;
        // The last thing before the commit. When another worker has taken the shard over, this fails, and nothing of the
        // transaction remains.
        self.store.checkpoint_in(&mut transaction, batch.fence(), last).await?;
        transaction.commit().await?;
        Ok(())
    }
}

fn number(data: &[u8]) -> Result<i64, BoxError> {
    Ok(std::str::from_utf8(data)?.parse()?)
}

pub(crate) async fn run(url: &str, schema: &str, name: &str) -> anyhow::Result<()> {
    let pool = PgPoolOptions::new().max_connections(4).connect(url).await?;
    let store = PostgresStore::builder().schema(schema).pool(pool.clone())?;
    let ledger = Ledger { pool, store: store.clone(), schema: schema.to_owned() };
    // Short times, so that a killed worker is followed within two seconds.
    let lease = LeaseConfig::default()
        .expiry(Duration::from_millis(1_500))
        .heartbeat_interval(Duration::from_millis(300))
        .look_interval(Duration::from_millis(200));
    let consumer = Consumer::builder(&examples::aws_config().await, "exactly-once", STREAM)
        .worker_id(name)
        .lease_store(store)
        .lease(lease)
        .max_batch_records(20)
        .checkpoints(Checkpoints::Transactional)
        .for_each_batch(move |batch: RecordBatch| {
            let ledger = ledger.clone();
            async move { ledger.process(batch).await }
        })
        .build()?;
    consumer.run(examples::stop_signal()?).await?;
    Ok(())
}
