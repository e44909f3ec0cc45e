//! Deterministic simulation: fleets of lease machines over one table, with clocks that differ, calls that are slow,
//! refused and lost, crashes, pauses and reshards. Everything is drawn from one seed, and the machines are stepped
//! directly: no runtime, no threads, no clock.
//!
//! Not a part of the crate's interface: it changes without notice. `cargo xtask sim` runs it.

mod beats;
mod consumer;
mod coverage;
mod discover;
mod faults;
mod fleet;
mod load;
mod scenario;
mod stream;
mod table;
mod watch;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kinesis_core::lease::LeaseKey;
use kinesis_core::{ApplicationName, ShardId, StreamRef};

pub use crate::mutant::Mutant;
pub use coverage::Coverage;
#[cfg(test)]
pub(crate) use faults::Faults;
#[cfg(test)]
pub(crate) use fleet::{Fleet, Settings};
#[cfg(test)]
pub(crate) use load::Loads;

/// What became of one run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Run {
    /// What went wrong, which must never happen.
    pub violation: Option<String>,
    /// What the run went through.
    pub coverage: Coverage,
    /// What happened, one line each, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64) -> Run {
    guarded(seed, false, None)
}

/// Runs one seed and writes down what happens. The same seed gives the same lines.
#[must_use]
pub fn trace(seed: u64) -> Run {
    guarded(seed, true, None)
}

/// Runs one seed with workers that read all rows each 20 s only, as on DynamoDB without hints.
#[must_use]
pub fn run_sparing(seed: u64) -> Run {
    guarded(seed, false, Some(crate::LeaseConfig::SPARSE_LOOK_INTERVAL))
}

/// Runs one seed with a fault switched on.
#[must_use]
pub fn run_mutant(mutant: Mutant, seed: u64) -> Run {
    crate::mutant::switch(Some(mutant));
    let run = guarded(seed, false, None);
    crate::mutant::switch(None);
    run
}

/// Runs one seed with a fault switched on, and writes down what happens.
#[must_use]
pub fn trace_mutant(mutant: Mutant, seed: u64) -> Run {
    crate::mutant::switch(Some(mutant));
    let run = guarded(seed, true, None);
    crate::mutant::switch(None);
    run
}

/// A machine that panics breaks a promise, too.
fn guarded(seed: u64, tracing: bool, full_look_interval: Option<Duration>) -> Run {
    catch_unwind(AssertUnwindSafe(|| scenario::run(seed, tracing, full_look_interval))).unwrap_or_else(
        |panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let violation = Some(format!("panic: {}", text.unwrap_or_default()));
            Run { violation, coverage: Coverage::default(), trace: Vec::new() }
        },
    )
}

fn shard_id(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).expect("a valid name")
}

/// The lease of a shard by its number.
pub(crate) fn key(number: u32) -> LeaseKey {
    let application = ApplicationName::new("sim").expect("a valid name");
    LeaseKey::new(application, StreamRef::new("stream").expect("a valid name"), shard_id(number))
}

/// The number of a lease's shard.
pub(crate) fn number(key: &LeaseKey) -> u32 {
    let (_, digits) = key.shard().as_str().split_at("shardId-".len());
    digits.parse().expect("made by `key`")
}
