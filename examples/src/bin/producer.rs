//! Sends records and says where each was stored.
//!
//! `cargo run -p examples --bin producer`; the documentation of the package says how to start a local Kinesis.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use std::time::Duration;

use anyhow::ensure;
use clap::Parser;
use kinesis_producer::{OutboundRecord, Producer, StreamRef};

#[derive(Debug, Parser)]
#[command(about = "Sends records and says where each was stored")]
struct Args {
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
    /// How many records to send.
    #[arg(long, default_value_t = 100)]
    records: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 4).await?;

    let producer = Producer::builder(&aws, StreamRef::new(args.stream)?).build()?;

    let mut receipts = Vec::new();
    for number in 1..=args.records {
        // The partition key chooses the shard: what belongs to one customer stays in order.
        let customer = format!("customer-{}", number % 10);
        let order = format!("order {number}");
        // `put` waits only while the buffer is full. The receipt resolves when the service has the record, so
        // awaiting it here would send one record at a time; collected, they travel up to 500 in one call.
        let receipt = producer.put(OutboundRecord::new(customer, order.clone())).await?;
        receipts.push((order, receipt));
    }
    for (order, receipt) in receipts {
        let sent = receipt.await?;
        println!("{order}: {} {}", sent.shard, sent.sequence);
    }

    // Nothing is left in the buffer here; a program that drops its receipts must close, or it loses what is.
    let report = producer.close(Duration::from_secs(10)).await;
    ensure!(report.is_complete(), "{} records were not stored", report.failed + report.unsent.len());
    println!("stored {} records", args.records);
    Ok(())
}
