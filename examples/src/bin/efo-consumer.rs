//! Prints every record of a stream, pushed by enhanced fan-out.
//!
//! `cargo run -p examples --bin efo-consumer`, after the example `producer`. Ctrl-c or SIGTERM stops it gracefully.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use anyhow::ensure;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::lease::MemoryStore;
use kinesis_consumer::{BoxError, Consumer, ReadMode, Record};

#[derive(Debug, Parser)]
#[command(about = "Prints every record of a stream, pushed by enhanced fan-out")]
struct Args {
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
    /// The registered consumer; it is registered on the first run. In AWS it costs money while it is registered.
    #[arg(long, default_value = "efo-consumer")]
    consumer: String,
    /// Poll while enhanced fan-out is not to be had: no free place on the stream, or no permission.
    #[arg(long)]
    or_poll: bool,
    /// Stop by itself after this many records.
    #[arg(long)]
    until: Option<u64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 4).await?;

    let tally = Tally::new();
    let counted = tally.clone();
    // The one line that makes it push: the rest is that of `basic-consumer`.
    let mut consumer = Consumer::builder(&aws, "efo-consumer", args.stream).enhanced_fan_out(args.consumer);
    if args.or_poll {
        consumer = consumer.read_mode(ReadMode::EnhancedFanOutOrPoll);
    }
    let consumer = consumer
        .lease_store(MemoryStore::new())
        .for_each(move |record: Record| {
            let tally = counted.clone();
            async move {
                let text = String::from_utf8_lossy(record.data());
                println!("{text}: {} {}", record.source().shard(), record.position());
                tally.add(1);
                Ok::<(), BoxError>(())
            }
        })
        .build()?;

    // The start fails when the consumer cannot be registered, and says which permission is missing. A stop closes the
    // subscriptions and leaves the consumer registered for the next start.
    let stop = examples::stop_signal_or(tally.clone(), args.until)?;
    let report = consumer.run(stop).await?;

    println!("{report}");
    println!("processed {} records", tally.total());
    ensure!(report.is_clean(), "some work was not finished");
    Ok(())
}
