//! How far reading has come, and where an iterator has to start so that nothing is skipped.

use std::time::{Duration, Instant};

use kinesis_core::source::{Gap, GapWatch, SourceRecord, Tip};
use kinesis_core::{SequenceNumber, StartPosition};

use crate::limits::MIN_RETENTION;

/// The place of reading in one shard.
#[derive(Debug)]
pub(super) struct Cursor {
    start: StartPosition,
    /// The last record that was read. A new iterator starts after it.
    last: Option<SequenceNumber>,
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
        Self { start, last: None, fallen_back: false, gap, caught_up_at: None, tip: Tip::new(latest_margin) }
    }

    /// Where the next iterator starts.
    pub(super) fn opening(&mut self, now: Instant) -> StartPosition {
        if self.fallen_back {
            return StartPosition::TrimHorizon;
        }
        if let Some(last) = &self.last {
            return StartPosition::AfterSequenceNumber { sequence: last.clone() };
        }
        match &self.start {
            StartPosition::Latest => self.tip.start(now),
            start => start.clone(),
        }
    }

    /// Whether the iterator that came of an asking is where reading has to go on.
    pub(super) fn accepts(&mut self, asked: &StartPosition) -> bool {
        let accepted = self.tip.accepts(asked);
        self.tip.lost();
        accepted
    }

    /// The number that an iterator was to start at was refused: goes on at the oldest record. `false` when the
    /// iterator did not start at a number.
    pub(super) fn fall_back(&mut self, now: Instant, asked: &StartPosition) -> bool {
        let (StartPosition::AtSequenceNumber { sequence } | StartPosition::AfterSequenceNumber { sequence }) =
            asked
        else {
            return false;
        };
        self.fallen_back = true;
        let nothing_missed = self.last.is_some()
            && self.caught_up_at.is_some_and(|at| now.saturating_duration_since(at) < MIN_RETENTION);
        self.gap = if nothing_missed { GapWatch::default() } else { GapWatch::refused(sequence.clone()) };
        true
    }

    /// Takes the records of a page that was asked for at `asked_at`; returns the gap before them, if any. Records
    /// that were read before are removed: there are some only after a fall-back.
    pub(super) fn read(
        &mut self,
        asked_at: Instant,
        records: &mut Vec<SourceRecord>,
        caught_up: bool,
    ) -> Option<Gap> {
        if caught_up {
            self.caught_up_at = Some(asked_at);
        }
        if let (true, Some(last)) = (self.fallen_back, &self.last) {
            records.retain(|record| record.sequence > *last);
        }
        match (records.first(), records.last()) {
            (Some(first), Some(last)) => {
                let gap = self.gap.first(&first.sequence);
                self.last = Some(last.sequence.clone());
                self.fallen_back = false;
                gap
            }
            _ if caught_up => self.gap.caught_up(),
            _ => None,
        }
    }

    /// The shard is read to its end; returns the gap before the end, if any.
    pub(super) fn end(&mut self) -> Option<Gap> {
        self.gap.end()
    }
}
