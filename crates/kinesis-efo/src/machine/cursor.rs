//! How far reading has come, and where a subscription has to start so that nothing is skipped.

use std::time::{Duration, Instant};

use kinesis_core::source::{Gap, SourceRecord};
use kinesis_core::{SequenceNumber, StartPosition, Timestamp};

use crate::limits::MIN_RETENTION;

/// The place of reading in one shard.
#[derive(Debug)]
pub(super) struct Cursor {
    start: StartPosition,
    /// The last record that was read.
    last: Option<SequenceNumber>,
    /// Where the service says to go on after: the last record or, on a quiet shard, beyond it.
    continuation: Option<SequenceNumber>,
    /// The number to start at was refused: reading goes on at the oldest record.
    fallen_back: bool,
    gap: Option<PendingGap>,
    /// When reading was last known to have reached the tip.
    caught_up_at: Option<Instant>,
    tip: Tip,
}

/// A gap that is reported with the first record after it.
#[derive(Debug)]
struct PendingGap {
    after: SequenceNumber,
    /// Whether the service refused the number. Otherwise there is a gap only if the record with that number, where
    /// reading was to start, does not come.
    certain: bool,
}

/// The tip that a start at `LATEST` means: as it was when first asked for, whatever fails in between.
#[derive(Debug)]
struct Tip {
    margin: Duration,
    asked_at: Option<Instant>,
    /// The service's time at `asked_at`, not later.
    time: Option<Timestamp>,
    /// Whether no subscription failed yet.
    first: bool,
}

impl Cursor {
    pub(super) fn new(start: StartPosition, latest_margin: Duration) -> Self {
        let gap = match &start {
            StartPosition::AtSequenceNumber { sequence } => {
                Some(PendingGap { after: sequence.clone(), certain: false })
            }
            _ => None,
        };
        Self {
            start,
            last: None,
            continuation: None,
            fallen_back: false,
            gap,
            caught_up_at: None,
            tip: Tip { margin: latest_margin, asked_at: None, time: None, first: true },
        }
    }

    /// Where the next subscription starts.
    pub(super) fn opening(&mut self, now: Instant) -> StartPosition {
        if self.fallen_back {
            return StartPosition::TrimHorizon;
        }
        if let Some(sequence) = self.continuation.as_ref().or(self.last.as_ref()) {
            return StartPosition::AfterSequenceNumber { sequence: sequence.clone() };
        }
        match (&self.start, self.tip.time) {
            (StartPosition::Latest, Some(timestamp)) => StartPosition::AtTimestamp { timestamp },
            (StartPosition::Latest, None) => {
                self.tip.asked_at.get_or_insert(now);
                StartPosition::Latest
            }
            (start, _) => start.clone(),
        }
    }

    /// An answer told the service's time: enough to know when the tip was first asked for.
    pub(super) fn learn_time(&mut self, now: Instant, service_time: Option<Timestamp>) {
        if let (Some(asked_at), None, Some(time)) = (self.tip.asked_at, self.tip.time, service_time) {
            self.tip.time = Some(time.minus(now.saturating_duration_since(asked_at) + self.tip.margin));
        }
    }

    /// A subscription failed or ended: a later one at `LATEST` would be of a later tip.
    pub(super) fn lost(&mut self) {
        self.tip.first = false;
    }

    /// Whether a subscription that was asked for is where reading has to go on.
    pub(super) fn accepts(&self, asked: &StartPosition) -> bool {
        // Without a time from the service there is nothing better than the later tip.
        *asked != StartPosition::Latest || self.tip.first || self.tip.time.is_none()
    }

    /// The number that a subscription was to start at was refused: goes on at the oldest record. `false` when it did
    /// not start at a number.
    pub(super) fn fall_back(&mut self, now: Instant, asked: &StartPosition) -> bool {
        let (StartPosition::AtSequenceNumber { sequence } | StartPosition::AfterSequenceNumber { sequence }) =
            asked
        else {
            return false;
        };
        self.fallen_back = true;
        self.continuation = None;
        let nothing_missed =
            self.caught_up_at.is_some_and(|at| now.saturating_duration_since(at) < MIN_RETENTION);
        self.gap = (!nothing_missed).then(|| PendingGap { after: sequence.clone(), certain: true });
        true
    }

    /// Takes the records of an event, and where the service says to go on; returns the gap before them, if any.
    /// Records that were read before are removed: there are some after a fall-back.
    pub(super) fn read(
        &mut self,
        now: Instant,
        records: &mut Vec<SourceRecord>,
        continuation: Option<SequenceNumber>,
        caught_up: bool,
    ) -> Option<Gap> {
        if caught_up {
            self.caught_up_at = Some(now);
        }
        if let (Some(last), Some(first)) = (&self.last, records.first())
            && first.sequence <= *last
        {
            records.retain(|record| record.sequence > *last);
        }
        let first = records.first().map(|record| record.sequence.clone());
        if let Some(record) = records.last() {
            self.last = Some(record.sequence.clone());
        }
        // Never back, whatever the service says.
        self.continuation = continuation.max(self.last.clone()).max(self.continuation.take());
        if self.continuation.is_some() {
            self.fallen_back = false;
        }
        match first {
            Some(first) => {
                let gap = self.gap.take().filter(|gap| gap.certain || first != gap.after);
                gap.map(|gap| Gap::new(gap.after, Some(first)))
            }
            // Nothing is left after the gap: there is no end of it to wait for.
            None => self.gap.take_if(|gap| gap.certain && caught_up).map(|gap| Gap::new(gap.after, None)),
        }
    }

    /// The shard is read to its end; returns the gap before the end, if any.
    pub(super) fn end(&mut self) -> Option<Gap> {
        self.gap.take().map(|gap| Gap::new(gap.after, None))
    }
}
