//! A DynamoDB on this machine for the example `dynamodb-leases`, in memory:
//!
//! ```console
//! $ cargo run -p examples --features dynamodb --bin local-dynamodb -- --port 8000
//! $ export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000
//! ```
#![allow(clippy::print_stdout, reason = "a program shows its results")]

use anyhow::Context as _;
use clap::Parser;
use tokio::net::TcpListener;

#[derive(Debug, Parser)]
#[command(about = "Serves a DynamoDB in memory until interrupted")]
struct Args {
    /// The port; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    port: u16,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let stop = examples::stop_signal()?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await.context("listening")?;
    println!("listening on http://{}", listener.local_addr()?);
    let database = dynoxide::Database::memory()?;
    // Clients keep their connections open, so the signal ends the program and not only the listening.
    tokio::select! {
        served = dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()) => {
            served.map_err(anyhow::Error::msg)
        }
        () = stop => Ok(()),
    }
}
