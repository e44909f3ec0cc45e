//! Prints every record of a stream, in one process.
//!
//! `cargo run -p examples --bin basic-consumer`, after the example `producer`. Ctrl-c or SIGTERM stops it gracefully.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use anyhow::ensure;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::lease::MemoryStore;
use kinesis_consumer::{BoxError, Consumer, Record};

#[derive(Debug, Parser)]
#[command(about = "Prints every record of a stream")]
struct Args {
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
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
    // Workers of one application share a stream; each application gets every record.
    let consumer = Consumer::builder(&aws, "basic-consumer", args.stream)
        // Positions are kept in memory, so every run starts at the oldest record. `multi-worker` shows a store that
        // remembers and that several processes share.
        .lease_store(MemoryStore::new())
        .for_each(move |record: Record| {
            let tally = counted.clone();
            async move {
                let text = String::from_utf8_lossy(record.data());
                println!("{text}: {} {}", record.source().shard(), record.position());
                tally.add(1);
                // `Ok` finishes the record. After an error it would be offered again, later and later, and nothing
                // behind it on its shard would be stored as finished meanwhile.
                Ok::<(), BoxError>(())
            }
        })
        .build()?;

    // Whatever completes the future given to `run` stops the consumer: no more records are handed out, handlers
    // finish what they have, positions are stored, leases are given back. Without it, `run` does not return.
    let signal = examples::stop_signal()?;
    let enough = tally.clone();
    let stop = async move {
        tokio::select! {
            () = signal => {}
            () = enough.reached(args.until) => {}
        }
    };
    let report = consumer.run(stop).await?;

    println!("{report}");
    println!("processed {} records", tally.total());
    ensure!(report.is_clean(), "some work was not finished");
    Ok(())
}
