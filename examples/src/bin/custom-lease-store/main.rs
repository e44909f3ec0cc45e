//! A lease store of one's own (`store.rs`): proved by the public conformance suite, then used by a consumer.
//!
//! `cargo run -p examples --bin custom-lease-store`, after the example `producer`.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

mod store;

use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::{BoxError, Consumer, RecordBatch};
use kinesis_core::lease::LeaseStore;
use kinesis_core::lease::conformance::{self, StoreFactory, Verdict};

use crate::store::KeyValueStore;

#[derive(Debug, Parser)]
#[command(about = "Proves a lease store of one's own with the conformance suite and consumes with it")]
struct Args {
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
    /// Stop by itself after this many records.
    #[arg(long)]
    until: Option<u64>,
}

/// Makes clients of one table for a case of the suite.
#[derive(Debug, Default)]
struct Table(KeyValueStore);

#[async_trait]
impl StoreFactory for Table {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.0.clone())
    }
}

/// Runs every case on a table of its own. In a crate of your own, `lease_store_conformance!` makes tests of them.
async fn prove() -> anyhow::Result<()> {
    let mut kept = 0;
    for case in conformance::ALL {
        match case.run(&Table::default()).await.with_context(|| case.name())? {
            Verdict::NotRun(why) => println!("{}: not run, {why}", case.name()),
            _ => kept += 1,
        }
    }
    println!("the store keeps {kept} promises");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    prove().await?;

    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 4).await?;
    let tally = Tally::new();
    let counted = tally.clone();
    let leases: Arc<dyn LeaseStore> = Arc::new(KeyValueStore::default());
    let consumer = Consumer::builder(&aws, "custom-lease-store", args.stream)
        .lease_store(leases)
        .for_each_batch(move |batch: RecordBatch| {
            let tally = counted.clone();
            async move {
                for record in batch.records() {
                    println!("{}", String::from_utf8_lossy(record.data()));
                }
                tally.add(batch.records().len());
                Ok::<(), BoxError>(())
            }
        })
        .build()?;
    let report = consumer.run(examples::stop_signal_or(tally.clone(), args.until)?).await?;
    println!("{report}");
    println!("processed {} records", tally.total());
    Ok(())
}
