//! What a Lambda function does with a Kinesis event: split the aggregates, work on the user records, report where it
//! stopped.
//!
//! Reads a recorded event, so no Lambda service is needed:
//! `cargo run -p kinesis-kpl --features lambda --example lambda [EVENT.json]`
#![allow(clippy::print_stdout, reason = "an example speaks to the person who runs it")]

use std::error::Error;
use std::path::PathBuf;

use kinesis_kpl::lambda::{BatchResponse, KinesisEvent, LambdaRecord};

fn main() -> Result<(), Box<dyn Error>> {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/lambda-event.json");
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(recorded), PathBuf::from);
    let response = handle(&std::fs::read_to_string(path)?)?;
    println!("{}", serde_json::to_string(&response)?);
    Ok(())
}

/// The function's handler. One record of the recorded event cannot be processed: its Kinesis record is reported.
fn handle(event: &str) -> Result<BatchResponse, Box<dyn Error>> {
    let event: KinesisEvent = serde_json::from_str(event)?;
    let response = event.for_each(|record| {
        let flight = process(&record)?;
        println!("{}/{}: {flight}", record.sequence_number(), record.sub_sequence());
        Ok::<(), String>(())
    });
    Ok(response)
}

/// The work on one record: here, flights must have a number.
fn process(record: &LambdaRecord) -> Result<String, String> {
    let flight: serde_json::Value =
        serde_json::from_slice(record.data()).map_err(|error| error.to_string())?;
    flight["flight"].as_str().map(str::to_owned).ok_or_else(|| "a flight without number".to_owned())
}
