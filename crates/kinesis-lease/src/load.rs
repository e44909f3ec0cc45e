//! How busy a lease keeps its holder: what is reported of it, and the average that stands in its row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kinesis_core::lease::{Change, FieldWrite, Lease, LeaseWrite, PrivateValue};

/// The private attribute with the load, in thousandths.
const ATTRIBUTE: &str = "load";
/// No lease is that busy; what is above is a mistake.
const MOST: f64 = 1_000.0;

/// A shard yields 2 MB a second to all of its readers by GetRecords.
/// <https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html>
const BYTES_PER_SECOND: u64 = 2_000_000;
/// Five GetRecords a second with 10,000 records each (the same page).
const RECORDS_PER_SECOND: u64 = 50_000;
const SECOND: u64 = 1_000_000_000;
/// The longest single report, so that sums never overflow: a day.
const LONGEST: u64 = 86_400 * SECOND;

/// The work on one lease since it was last looked at, in nanoseconds of a load of 1. Whoever reports only adds.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    spent: AtomicU64,
    is_used: AtomicBool,
}

impl Meter {
    pub(crate) fn add(&self, busy: Duration, bytes: u64, records: u64) {
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let bytes = bytes.saturating_mul(SECOND / BYTES_PER_SECOND);
        let records = records.saturating_mul(SECOND / RECORDS_PER_SECOND);
        let spent = busy.saturating_add(bytes).saturating_add(records).min(LONGEST);
        self.spent.fetch_add(spent, Ordering::Relaxed);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// What was spent since the last call; `None` as long as nobody ever reports.
    fn take(&self) -> Option<Duration> {
        let spent = self.spent.swap(0, Ordering::Relaxed);
        self.is_used.load(Ordering::Relaxed).then(|| Duration::from_nanos(spent))
    }
}

/// The moving average of one tenure, averaged once more, over half of the window each: work is reported when it is done,
/// in pieces that may be long, and one average would rise and fall with each of them by more than what leases move for.
#[derive(Debug)]
pub(crate) struct Average {
    meter: Arc<Meter>,
    since: Instant,
    stages: [Stage; STAGES],
}

const STAGES: usize = 2;

#[derive(Debug, Clone, Copy)]
struct Stage {
    sum: f64,
    /// How much of the average is known: without it the first measure would be averaged with nothing.
    weight: f64,
}

impl Average {
    /// Goes on from what the holder before has measured: the load is the shard's.
    pub(crate) fn new(row: &Lease, now: Instant) -> Self {
        let before = of_row(row);
        let weight = if before.is_some() { 1.0 } else { 0.0 };
        let stage = Stage { sum: before.unwrap_or_default(), weight };
        Self { meter: Arc::default(), since: now, stages: [stage; STAGES] }
    }

    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// The average with everything until now; `None` as long as nobody ever reports.
    fn measure(&mut self, now: Instant, window: Duration) -> Option<f64> {
        let passed = now.saturating_duration_since(self.since);
        if !passed.is_zero() {
            // The first report is of the time before it, too.
            let spent = self.meter.take()?;
            self.since = now;
            let kept = (-passed.as_secs_f64() * STAGES as f64 / window.as_secs_f64()).exp();
            let mut input = Stage { sum: spent.as_secs_f64() / passed.as_secs_f64(), weight: 1.0 };
            for stage in &mut self.stages {
                stage.sum = stage.sum * kept + input.sum * (1.0 - kept);
                stage.weight = stage.weight * kept + input.weight * (1.0 - kept);
                input = *stage;
            }
        }
        let Stage { sum, weight } = self.stages[STAGES - 1];
        (weight > 0.0).then(|| sum / weight)
    }

    /// Adds the average to a write that is made anyway.
    pub(crate) fn note(&mut self, write: &mut LeaseWrite, now: Instant, window: Duration) {
        if let Change::Update(fields) = &mut write.change
            && let Some(load) = self.measure(now, window)
        {
            fields.push(field(Some(load)));
        }
    }
}

/// Adds to a taking that the load of the holder before does not count: a worker that does not weigh would leave it there,
/// and look as if it did.
pub(crate) fn forget(row: &Lease, write: &mut LeaseWrite) {
    if let Change::Update(fields) = &mut write.change
        && row.private.contains_key(ATTRIBUTE)
    {
        fields.push(field(None));
    }
}

/// The write that stores a load, or removes it.
fn field(load: Option<f64>) -> FieldWrite {
    let thousandths = load.map(|load| (load.clamp(0.0, MOST) * 1_000.0).round() as i64);
    FieldWrite::Private { name: ATTRIBUTE.to_owned(), value: thousandths.map(PrivateValue::Number) }
}

/// The load that stands in a row.
pub(crate) fn of_row(row: &Lease) -> Option<f64> {
    match row.private.get(ATTRIBUTE) {
        Some(PrivateValue::Number(thousandths)) if *thousandths >= 0 => Some(*thousandths as f64 / 1_000.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;
    use kinesis_core::lease::TenureToken;

    const WINDOW: Duration = Duration::from_secs(100);

    fn row(load: Option<f64>) -> Lease {
        let row = Lease::new(crate::sim::key(0), kinesis_core::Checkpoint::TrimHorizon);
        Change::Update(vec![field(load)]).apply_to(Some(row)).unwrap()
    }

    /// The load of a row after renewals each second, with so much reported before each.
    fn after(start: Option<f64>, seconds: u64, report: impl Fn(&Meter)) -> Option<f64> {
        let start_at = Instant::now();
        let mut row = row(start);
        let mut average = Average::new(&row, start_at);
        for second in 1..=seconds {
            report(&average.meter);
            let mut write = ops::renew(&row, TenureToken::from_random(1));
            average.note(&mut write, start_at + Duration::from_secs(second), WINDOW);
            row = write.change.apply_to(Some(row)).unwrap();
        }
        of_row(&row)
    }

    #[test]
    fn the_load_is_busy_time_and_parts_of_the_limits_of_reading() {
        let load = |busy, bytes, records| {
            after(None, 10, move |meter| meter.add(Duration::from_millis(busy), bytes, records))
        };
        assert_eq!(load(250, 0, 0), Some(0.25));
        assert_eq!(load(0, 1_000_000, 0), Some(0.5));
        assert_eq!(load(0, 0, 5_000), Some(0.1));
        assert_eq!(load(250, 1_000_000, 5_000), Some(0.85));
        assert_eq!(load(0, 0, 0), Some(0.0), "idle, and said so");
    }

    #[test]
    fn the_average_follows_within_its_window() {
        let idle = |meter: &Meter| meter.add(Duration::ZERO, 0, 0);
        assert_eq!(after(Some(1.0), 100, idle), Some(0.403), "about 3 / e²");
        assert_eq!(after(Some(1.0), 700, idle), Some(0.0));
        let busy = |meter: &Meter| meter.add(Duration::from_secs(1), 0, 0);
        assert_eq!(after(Some(0.0), 100, busy), Some(0.597));
        assert_eq!(after(None, 1, busy), Some(1.0), "the first measure counts whole");
    }

    /// Who works for half a minute at a time reports only then: the load does not rise and fall with each piece.
    #[test]
    fn long_pieces_of_work_are_no_noise() {
        for seconds in 600..660 {
            let passed = std::cell::Cell::new(0);
            let piece = |meter: &Meter| {
                passed.set(passed.get() + 1);
                if passed.get() % 30 == 0 {
                    meter.add(Duration::from_secs(15), 0, 0);
                }
            };
            let load = after(Some(0.5), seconds, piece).unwrap();
            assert!((0.475..=0.525).contains(&load), "{load} after {seconds} s");
        }
    }

    #[test]
    fn the_first_report_is_of_all_the_time_before_it() {
        let passed = std::cell::Cell::new(0);
        let piece = |meter: &Meter| {
            passed.set(passed.get() + 1);
            if passed.get() == 30 {
                meter.add(Duration::from_secs(15), 0, 0);
            }
        };
        assert_eq!(after(None, 30, piece), Some(0.5));
    }

    #[test]
    fn without_a_report_the_row_stays_as_it_is() {
        assert_eq!(after(None, 50, |_| {}), None);
        assert_eq!(after(Some(0.7), 50, |_| {}), Some(0.7));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let much = |meter: &Meter| meter.add(Duration::MAX, u64::MAX, u64::MAX);
        assert_eq!(after(None, 3, much), Some(MOST));
        for value in [PrivateValue::Number(-1), PrivateValue::Text("1".into())] {
            let mut row = row(None);
            row.private.insert(ATTRIBUTE.into(), value);
            assert_eq!(of_row(&row), None);
        }
    }
}
