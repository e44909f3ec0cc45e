//! The whole job in one command: events are produced to Kinesis, shared by worker processes, the stream is resharded,
//! a worker is stalled and another killed, and nothing is lost. An independent reader judges the result.
//!
//! `cargo run --release -p examples --bin quickstart`; `--help` lists what can be changed.
#![allow(clippy::print_stdout, reason = "a program shows its results")]

mod args;
mod audit;
mod aws;
mod conductor;
mod events;
mod fleet;
mod judge;
mod log;
mod progress;
mod publish;
mod stream;
mod verdict;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Some(Command::Worker(worker)) => worker::run(worker).await.map(|()| true),
        None => conductor::run(args.job).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}
