//! How far reading has come, and where a subscription has to start so that nothing is skipped.

use std::time::{Duration, Instant};

use kinesis_core::source::{Gap, GapWatch, SourceRecord, Tip};
use kinesis_core::{SequenceNumber, StartPosition};

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
    gap: GapWatch,
    /// When reading was last known to have reached the tip.
    caught_up_at: Option<Instant>,
    pub(super) tip: Tip,
}

impl Cursor {
    pub(super) fn new(start: StartPosition, latest_margin: Duration) -> Self {
        let gap = GapWatch::new(&start);
        Self {
            start,
            last: None,
            continuation: None,
            fallen_back: false,
            gap,
            caught_up_at: None,
            tip: Tip::new(latest_margin),
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
        match &self.start {
            StartPosition::Latest => self.tip.start(now),
            start => start.clone(),
        }
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
        self.gap = if nothing_missed { GapWatch::default() } else { GapWatch::refused(sequence.clone()) };
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
            Some(first) => self.gap.first(&first),
            None if caught_up => self.gap.caught_up(),
            None => None,
        }
    }

    /// The shard is read to its end; returns the gap before the end, if any.
    pub(super) fn end(&mut self) -> Option<Gap> {
        self.gap.end()
    }
}
