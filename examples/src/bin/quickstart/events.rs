//! The events: real flights, as they are published.

use anyhow::Context as _;
use bytes::Bytes;
use kinesis_core::OutboundRecord;

/// 20,000 flights of 2001 in order of departure; see `examples/data/README.md`.
const FLIGHTS: &str = include_str!("../../../data/flights-20k.ndjson");

/// The first `count` flights as records: the line is the payload, the origin airport the partition key.
pub(crate) fn flights(count: u32) -> anyhow::Result<Vec<OutboundRecord>> {
    FLIGHTS.lines().take(count as usize).map(record).collect()
}

fn record(line: &'static str) -> anyhow::Result<OutboundRecord> {
    let flight: serde_json::Value = serde_json::from_str(line).context("a flight is not JSON")?;
    let origin = flight["origin"].as_str().context("a flight has no origin")?;
    Ok(OutboundRecord::new(origin, Bytes::from_static(line.as_bytes())))
}
