//! Effects exactly once: results and the position in the stream are written in one PostgreSQL transaction.
//!
//! ```console
//! $ export DATABASE_URL=postgres://user:password@localhost/database
//! $ cargo run -p examples --features postgres --bin postgres-exactly-once
//! ```
//!
//! Brings its own Kinesis and two worker processes, kills one with SIGKILL again and again (at whatever place of a
//! transaction it is), and then counts the results. `worker.rs` is what a program of yours would have.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

mod worker;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use kinesis_testkit::{TestClock, TestKinesis};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row as _};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The stream, of the embedded Kinesis.
const STREAM: &str = "payments";

/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Parser)]
#[command(
    about = "Writes results and the position in one PostgreSQL transaction, and counts them after many crashes"
)]
struct Args {
    /// The database. A schema of its own is made for a run, and removed at its end.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// How many records to produce.
    #[arg(long, default_value_t = 2_000)]
    records: u32,
    /// How often a worker is killed.
    #[arg(long, default_value_t = 5)]
    kills: u32,
    /// Set for the worker processes: the schema of the run.
    #[arg(long, hide = true)]
    schema: Option<String>,
    /// Set for the worker processes: their name.
    #[arg(long, hide = true, default_value = "worker")]
    worker: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match &args.schema {
        Some(schema) => worker::run(&args.database_url, schema, &args.worker).await,
        None => conduct(&args).await,
    }
}

async fn conduct(args: &Args) -> anyhow::Result<()> {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await?;
    kinesis.create_stream(STREAM, 4)?;
    let results = Results::new(&args.database_url).await?;
    let fleet = Fleet { schema: &results.schema, endpoint: server.url() };
    let mut workers = [fleet.start("worker-1")?, fleet.start("worker-2")?];
    let deadline = Instant::now() + LIMIT;
    let mut killed = 0;
    for part in 0..=args.kills {
        // The next part of the records comes when the one before is on its way, so that there is always work to cut off.
        let (from, to) =
            (part * args.records / (args.kills + 1), (part + 1) * args.records / (args.kills + 1));
        for number in from..to {
            kinesis.put(STREAM, &format!("account-{}", number % 50), number.to_string())?;
        }
        let enough = if part == args.kills { args.records } else { from + (to - from) / 3 };
        while results.written().await?.different < i64::from(enough) {
            ensure!(Instant::now() < deadline, "the workers did not come to an end within {LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if part < args.kills {
            let victim = usize::from(part % 2 == 1);
            workers[victim].kill().await?;
            killed += 1;
            println!("killed worker-{}, {}", victim + 1, results.written().await?);
            workers[victim] = fleet.start(if victim == 0 { "worker-1" } else { "worker-2" })?;
        }
    }
    for worker in &mut workers {
        worker.kill().await?;
    }
    let written = results.written().await?;
    let expected: i64 = (0..i64::from(args.records)).sum();
    let processed = written.different;
    let duplicates = written.entries - written.different;
    println!("{written}");
    println!(
        "{{\"produced\":{},\"processed\":{processed},\"lost\":{},\"duplicates\":{duplicates},\"off_by\":{},\"killed\":{killed}}}",
        args.records,
        i64::from(args.records) - processed,
        written.amount - expected
    );
    ensure!(processed == i64::from(args.records) && duplicates == 0, "the effects are not exactly once");
    results.remove().await
}

/// Starts worker processes.
struct Fleet<'a> {
    schema: &'a str,
    endpoint: String,
}

impl Fleet<'_> {
    fn start(&self, name: &str) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("this program has a file")?;
        let worker = Command::new(program)
            .args(["--schema", self.schema, "--worker", name])
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        worker.context("starting a worker")
    }
}

/// The tables with the results. Nothing in them keeps a record from being written twice.
struct Results {
    pool: PgPool,
    schema: String,
}

struct Written {
    entries: i64,
    different: i64,
    amount: i64,
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} entries of {} records, amounts of {}", self.entries, self.different, self.amount)
    }
}

impl Results {
    async fn new(url: &str) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new().max_connections(1).connect(url).await.context("connecting")?;
        let results = Self { pool, schema: format!("exactly_once_{}", std::process::id()) };
        let schema = &results.schema;
        results.run(format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        results.run(format!("CREATE SCHEMA {schema}")).await?;
        results.run(format!("CREATE TABLE {schema}.entries (number bigint NOT NULL)")).await?;
        results
            .run(format!("CREATE TABLE {schema}.totals (shard text PRIMARY KEY, amount bigint NOT NULL)"))
            .await?;
        Ok(results)
    }

    async fn run(&self, statement: String) -> anyhow::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.pool).await.context("preparing the tables")?;
        Ok(())
    }

    async fn written(&self) -> anyhow::Result<Written> {
        let schema = &self.schema;
        let query = format!(
            "SELECT count(*), count(DISTINCT number), (SELECT coalesce(sum(amount), 0)::bigint FROM {schema}.totals)
             FROM {schema}.entries"
        );
        let row =
            sqlx::query(AssertSqlSafe(query)).fetch_one(&self.pool).await.context("counting the results")?;
        Ok(Written { entries: row.get(0), different: row.get(1), amount: row.get(2) })
    }

    async fn remove(&self) -> anyhow::Result<()> {
        self.run(format!("DROP SCHEMA {} CASCADE", self.schema)).await
    }
}
