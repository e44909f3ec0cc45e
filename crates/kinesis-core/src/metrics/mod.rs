//! The metrics seam: an injected sink that makes instruments, so that two consumers in one process can have two
//! backends and parallel tests share no counters.

pub mod names;
mod recorder;

use std::fmt;
use std::sync::Arc;

use crate::{ShardId, StreamRef};
pub use recorder::{Recorder, Sample};

/// What kind of instrument a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Only grows.
    Counter,
    /// The last value.
    Gauge,
    /// A distribution.
    Histogram,
}

/// The unit of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Milliseconds (the names taken over from other libraries).
    Milliseconds,
    /// Seconds (everything new).
    Seconds,
    /// From 0 to 100.
    Percent,
}

/// A metric: its name without a namespace, its kind, unit and help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Desc {
    /// The name; a backend may put its namespace before it.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// The unit of the values.
    pub unit: Unit,
    /// One sentence.
    pub help: &'static str,
}

/// The labels of an instrument. Never the worker: that would make a new set of metrics with every deploy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Labels {
    /// The stream.
    pub stream: StreamRef,
    /// The shard, where the metric is per shard.
    pub shard: Option<ShardId>,
    /// Further labels of a few fixed values, for example `result = success`.
    pub extra: Vec<(&'static str, &'static str)>,
}

impl Labels {
    /// Labels of a stream.
    #[must_use]
    pub fn stream(stream: StreamRef) -> Self {
        Self { stream, shard: None, extra: Vec::new() }
    }

    /// Adds the shard.
    #[must_use]
    pub fn shard(mut self, shard: ShardId) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Adds a further label.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.extra.push((name, value));
        self
    }
}

/// One metric with its labels: made once, used per batch. An instrument must be cheap and must not block.
pub trait Instrument: fmt::Debug + Send + Sync + 'static {
    /// Adds to a counter.
    fn add(&self, amount: u64);
    /// Sets a gauge.
    fn set(&self, value: f64);
    /// Records one value of a histogram.
    fn record(&self, value: f64);
}

/// A backend: makes instruments.
pub trait MetricsSink: fmt::Debug + Send + Sync + 'static {
    /// The instrument for this metric and these labels; called once per shard, never per batch.
    fn instrument(&self, desc: &'static Desc, labels: Labels) -> Arc<dyn Instrument>;
}

/// Discards everything: the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Noop;

impl Instrument for Noop {
    fn add(&self, _amount: u64) {}
    fn set(&self, _value: f64) {}
    fn record(&self, _value: f64) {}
}

impl MetricsSink for Noop {
    fn instrument(&self, _desc: &'static Desc, _labels: Labels) -> Arc<dyn Instrument> {
        Arc::new(Self)
    }
}

/// Writes to several backends. A backend that panics does not keep the values from the others.
#[derive(Debug, Clone, Default)]
pub struct Fanout(Vec<Arc<dyn MetricsSink>>);

impl Fanout {
    /// Writes to all of these.
    #[must_use]
    pub fn new(sinks: Vec<Arc<dyn MetricsSink>>) -> Self {
        Self(sinks)
    }
}

impl MetricsSink for Fanout {
    fn instrument(&self, desc: &'static Desc, labels: Labels) -> Arc<dyn Instrument> {
        Arc::new(FanoutInstrument(self.0.iter().map(|sink| sink.instrument(desc, labels.clone())).collect()))
    }
}

#[derive(Debug)]
struct FanoutInstrument(Vec<Arc<dyn Instrument>>);

impl FanoutInstrument {
    fn each(&self, act: impl Fn(&dyn Instrument)) {
        for instrument in &self.0 {
            // A backend's panic is its own fault; the others still get the value.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&**instrument)));
        }
    }
}

impl Instrument for FanoutInstrument {
    fn add(&self, amount: u64) {
        self.each(|instrument| instrument.add(amount));
    }

    fn set(&self, value: f64) {
        self.each(|instrument| instrument.set(value));
    }

    fn record(&self, value: f64) {
        self.each(|instrument| instrument.record(value));
    }
}
