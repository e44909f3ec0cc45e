//! Flushes that wait for their records.

use std::time::Instant;

use crate::report::FlushReport;

/// Names a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlushId(pub(crate) u64);

#[derive(Debug)]
struct Flush {
    id: FlushId,
    /// Covers the records with serials below this.
    below: u64,
    deadline: Option<Instant>,
    /// `unconfirmed` counts down while the flush waits.
    report: FlushReport,
}

#[derive(Debug, Default)]
pub(super) struct Flushes(Vec<Flush>);

impl Flushes {
    /// Covers the `held` records that have no answer yet, all with serials below `below`.
    pub(super) fn begin(&mut self, id: FlushId, deadline: Option<Instant>, below: u64, held: usize) {
        let report = FlushReport { unconfirmed: held, ..FlushReport::default() };
        self.0.push(Flush { id, below, deadline, report });
    }

    pub(super) fn record_done(&mut self, serial: u64, sent: bool) {
        for Flush { report, .. } in self.0.iter_mut().filter(|flush| serial < flush.below) {
            report.unconfirmed -= 1;
            if sent {
                report.sent += 1;
            } else {
                report.failed += 1;
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|flush| flush.deadline).min()
    }

    /// Those that are complete or whose time is over.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<(FlushId, FlushReport)> {
        let ended = |flush: &mut Flush| {
            flush.report.unconfirmed == 0 || flush.deadline.is_some_and(|deadline| deadline <= now)
        };
        self.0.extract_if(.., ended).map(|flush| (flush.id, flush.report)).collect()
    }
}
