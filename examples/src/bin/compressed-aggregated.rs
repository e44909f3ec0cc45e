//! Sends small records packed and compressed, and reads them back one by one.
//!
//! `cargo run -p examples --bin compressed-aggregated`; the documentation of the package says how to start a local
//! Kinesis.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::lease::MemoryStore;
use kinesis_consumer::{BoxError, Consumer, Decompression, Record};
use kinesis_core::metrics::Recorder;
use kinesis_producer::compress::Compression;
use kinesis_producer::{Aggregation, OutboundRecord, Producer, StreamRef};

#[derive(Debug, Parser)]
#[command(about = "Sends small records packed and compressed, and reads them back one by one")]
struct Args {
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "compressed-examples")]
    stream: String,
    /// How many records to send.
    #[arg(long, default_value_t = 100)]
    records: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 2).await?;

    // Two options, and the rest of the program is that of the example `producer`. Records of one shard share a Kinesis
    // record, which is then compressed as a whole. For readers that split before they decompress, the Java KCL and
    // Lambda, set `.compress_each(true)`.
    let meters = Recorder::new();
    let producer = Producer::builder(&aws, StreamRef::new(args.stream.as_str())?)
        .aggregation(Aggregation::ByShard)
        .compression(Compression::Zstd)
        .metrics(Arc::new(meters.clone()))
        .build()?;
    for number in 1..=args.records {
        let customer = format!("customer-{}", number % 10);
        let order = format!(r#"{{"text":"order {number}","items":["coffee","cake"],"paid":true}}"#);
        // Receipts may be dropped where the report of the end is enough.
        drop(producer.put(OutboundRecord::new(customer, order)).await?);
    }
    let report = producer.close(Duration::from_secs(10)).await;
    ensure!(report.is_complete(), "{} records were not stored", report.failed + report.unsent.len());
    println!(
        "{} bytes in {} records went out as {} bytes in {}",
        meters.total("user_bytes_sent_total"),
        meters.total("records_sent_total"),
        meters.total("bytes_sent_total"),
        meters.total("kinesis_records_sent_total"),
    );

    let tally = Tally::new();
    let counted = tally.clone();
    // One option on this side. Aggregates are split without one, and plain records may be among them.
    let consumer = Consumer::builder(&aws, "compressed-aggregated", args.stream)
        .lease_store(MemoryStore::new())
        .decompression(Decompression::Auto)
        .for_each(move |record: Record| {
            let tally = counted.clone();
            async move {
                println!("{}: {}", String::from_utf8_lossy(record.data()), record.position());
                tally.add(1);
                Ok::<(), BoxError>(())
            }
        })
        .build()?;
    let stop = examples::stop_signal_or(tally.clone(), Some(u64::from(args.records)))?;
    let report = consumer.run(stop).await?;
    println!("processed {} records", tally.total());
    ensure!(report.is_clean(), "some work was not finished");
    Ok(())
}
