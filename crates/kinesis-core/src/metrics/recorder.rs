//! A backend that keeps everything in memory, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Desc, Instrument, Labels, MetricsSink};

/// What was recorded for one metric and one set of labels.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Sample {
    /// The sum of a counter.
    pub total: u64,
    /// The last value of a gauge.
    pub last: Option<f64>,
    /// All values of a histogram, in order.
    pub values: Vec<f64>,
}

type Samples = Arc<Mutex<BTreeMap<(&'static str, Labels), Sample>>>;

/// Keeps everything in memory. A clone looks at the same values.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Samples);

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The sum of a counter over all labels.
    #[must_use]
    pub fn total(&self, name: &str) -> u64 {
        self.samples().iter().filter(|((found, _), _)| *found == name).map(|(_, sample)| sample.total).sum()
    }

    /// Everything recorded for a metric, by labels.
    #[must_use]
    pub fn samples_of(&self, name: &str) -> Vec<(Labels, Sample)> {
        let matching = |((found, labels), sample): (&(&'static str, Labels), &Sample)| {
            (*found == name).then(|| (labels.clone(), sample.clone()))
        };
        self.samples().iter().filter_map(matching).collect()
    }

    /// The names of all metrics that an instrument was made for.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.samples().keys().map(|(name, _)| *name).collect();
        names.dedup();
        names
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, BTreeMap<(&'static str, Labels), Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricsSink for Recorder {
    fn instrument(&self, desc: &'static Desc, labels: Labels) -> Arc<dyn Instrument> {
        let key = (desc.name, labels);
        self.samples().entry(key.clone()).or_default();
        Arc::new(Recorded { recorder: self.clone(), key })
    }
}

#[derive(Debug)]
struct Recorded {
    recorder: Recorder,
    key: (&'static str, Labels),
}

impl Recorded {
    fn update(&self, change: impl FnOnce(&mut Sample)) {
        change(self.recorder.samples().entry(self.key.clone()).or_default());
    }
}

impl Instrument for Recorded {
    fn add(&self, amount: u64) {
        self.update(|sample| sample.total += amount);
    }

    fn set(&self, value: f64) {
        self.update(|sample| sample.last = Some(value));
    }

    fn record(&self, value: f64) {
        self.update(|sample| sample.values.push(value));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fanout, names};
    use super::*;
    use crate::StreamRef;

    #[derive(Debug)]
    struct Broken;

    impl MetricsSink for Broken {
        fn instrument(&self, _: &'static Desc, _: Labels) -> Arc<dyn Instrument> {
            Arc::new(Self)
        }
    }

    impl Instrument for Broken {
        fn add(&self, _: u64) {
            panic!("backend down")
        }
        fn set(&self, _: f64) {
            panic!("backend down")
        }
        fn record(&self, _: f64) {
            panic!("backend down")
        }
    }

    /// S-178: one failing backend does not keep the values from the others.
    #[test]
    fn a_failing_backend_does_not_stop_the_others() {
        let (first, last) = (Recorder::new(), Recorder::new());
        let fanout = Fanout::new(vec![Arc::new(first.clone()), Arc::new(Broken), Arc::new(last.clone())]);
        let labels = Labels::stream(StreamRef::new("orders").unwrap());
        let counter = fanout.instrument(&names::RECORDS_PROCESSED, labels);
        counter.add(3);
        counter.add(4);
        assert_eq!((first.total("records_processed_total"), last.total("records_processed_total")), (7, 7));
    }
}
