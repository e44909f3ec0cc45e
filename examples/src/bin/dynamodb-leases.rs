//! One of several workers on any number of hosts that share the shards of a stream through a DynamoDB table.
//!
//! ```console
//! $ WORKER_ID=worker-1 cargo run -p examples --features dynamodb --bin dynamodb-leases
//! $ WORKER_ID=worker-2 cargo run -p examples --features dynamodb --bin dynamodb-leases
//! ```
//!
//! Without AWS, `AWS_ENDPOINT_URL_DYNAMODB` names a local DynamoDB, for example that of the example `local-dynamodb`.
//! With `--kcl` the table has the layout of the Kinesis Client Library's, and workers in Java share it, whoever is there
//! first.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use anyhow::ensure;
use clap::Parser;
use examples::Tally;
use kinesis_consumer::{BoxError, Consumer, RecordBatch};
use kinesis_core::{ApplicationName, StreamRef};
use kinesis_lease::{
    Coordination, DynamoDbStore, LeaseConfig, LeaseStoreSource, NewTable, StoreError, TableLayout,
};

#[derive(Debug, Clone, Parser)]
#[command(about = "One of several workers that share the shards of a stream through a DynamoDB table")]
struct Args {
    /// The name of this worker, different for each.
    #[arg(long, env = "WORKER_ID")]
    worker_id: String,
    /// The application: workers of the same one share its shards. The table is named after it.
    #[arg(long, default_value = "dynamodb-leases")]
    application: String,
    /// The stream; it is created on the first run.
    #[arg(long, default_value = "examples")]
    stream: String,
    /// Keep the table as the Kinesis Client Library does.
    #[arg(long)]
    kcl: bool,
    /// Stop by itself after this many records.
    #[arg(long)]
    until: Option<u64>,
}

/// Opens the store on the thread that writes heartbeats, with connections of its own: a handler that blocks the
/// program's runtime then costs no lease.
fn leases(args: &Args) -> LeaseStoreSource {
    let args = args.clone();
    LeaseStoreSource::factory(move || {
        let args = args.clone();
        async move {
            let unusable =
                |error: kinesis_core::InvalidId| StoreError::misconfigured(error.to_string(), None);
            let layout = match args.kcl {
                true => TableLayout::kcl_single_stream(StreamRef::new(args.stream).map_err(unusable)?),
                false => TableLayout::Native,
            };
            let application = ApplicationName::new(args.application).map_err(unusable)?;
            DynamoDbStore::builder(examples::aws_config().await, application)
                .layout(layout)
                .create_table(NewTable::on_demand().tag("made-by", "examples"))
                .build()
        }
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let aws = examples::aws_config().await;
    examples::create_stream(&aws, &args.stream, 4).await?;

    let tally = Tally::new();
    let (worker, counted) = (args.worker_id.clone(), tally.clone());
    let mut lease = LeaseConfig::default();
    if args.kcl {
        lease = lease.coordination(Coordination::KclCompatible);
    }
    let consumer = Consumer::builder(&aws, args.application.as_str(), args.stream.as_str())
        .worker_id(&args.worker_id)
        .lease_store(leases(&args))
        .lease(lease)
        .for_each_batch(move |batch: RecordBatch| {
            let (worker, tally) = (worker.clone(), counted.clone());
            async move {
                for record in batch.records() {
                    println!("{worker} has {}", String::from_utf8_lossy(record.data()));
                }
                tally.add(batch.records().len());
                Ok::<(), BoxError>(())
            }
        })
        .build()?;

    let report = consumer.run(examples::stop_signal_or(tally.clone(), args.until)?).await?;

    println!("{} {report}", args.worker_id);
    println!("processed {} records", tally.total());
    ensure!(report.is_clean(), "some work was not finished");
    Ok(())
}
