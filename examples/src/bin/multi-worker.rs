//! One of several worker processes on a host that share the shards of a stream.
//!
//! Start it in two terminals:
//!
//! ```console
//! $ WORKER_ID=worker-1 cargo run -p examples --bin multi-worker
//! $ WORKER_ID=worker-2 cargo run -p examples --bin multi-worker
//! ```
//!
//! The second takes half of the shards from the first. Stop one with ctrl-c and the other takes over at once; stop it
//! with `kill -9` and the other takes over when its leases expire, after ten seconds.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use std::path::PathBuf;

use anyhow::ensure;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::lease::SqliteStore;
use kinesis_consumer::{Ack, BoxError, Checkpointer, Consumer, Initialize, RecordBatch, RecordProcessor};

#[derive(Debug, Parser)]
#[command(about = "One of several worker processes that share the shards of a stream")]
struct Args {
    /// The name of this worker, different for each.
    #[arg(long, env = "WORKER_ID")]
    worker_id: String,
    /// The file in which the workers keep who has which shard, and how far each shard is finished. Delete it to start
    /// at the oldest record again.
    #[arg(long, default_value = "multi-worker.db")]
    leases: PathBuf,
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
    /// Stop by itself after this many records.
    #[arg(long)]
    until: Option<u64>,
}

/// What is made for each shard that this worker takes. It may hold state without a lock: its methods are called one
/// at a time.
struct Orders {
    worker: String,
    tally: Tally,
}

impl RecordProcessor for Orders {
    type Error = BoxError;

    async fn initialize(&mut self, start: &Initialize) -> Result<(), BoxError> {
        println!("{} takes {}", self.worker, start.shard.shard());
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, BoxError> {
        for record in batch.records() {
            println!("{} has {}", self.worker, String::from_utf8_lossy(record.data()));
        }
        self.tally.add(batch.records().len());
        // The whole batch is finished. `Ack::UpTo(position)` finishes a part of it.
        Ok(Ack::All)
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), BoxError> {
        println!("{} gives a shard back", self.worker);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 4).await?;

    let tally = Tally::new();
    let (worker, counted) = (args.worker_id.clone(), tally.clone());
    let consumer = Consumer::builder(&aws, "multi-worker", args.stream)
        .worker_id(&args.worker_id)
        .lease_store(SqliteStore::open(&args.leases).await?)
        .processor(move |_shard| Orders { worker: worker.clone(), tally: counted.clone() })
        .build()?;

    let report = consumer.run(examples::stop_signal_or(tally.clone(), args.until)?).await?;

    println!("{} {report}", args.worker_id);
    println!("processed {} records", tally.total());
    ensure!(report.is_clean(), "some work was not finished");
    Ok(())
}
