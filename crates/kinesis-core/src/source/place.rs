//! What every reader keeps in mind so that nothing is skipped in silence.

use std::time::{Duration, Instant};

use super::Gap;
use crate::{SequenceNumber, StartPosition, Timestamp};

/// The tip that a start at `LATEST` means: as it was when first asked for, whatever fails in between. For those who write a
/// [`ShardReader`](super::ShardReader).
///
/// The service resolves `LATEST` anew at each asking. So once an asking failed, reading starts at the time of the first one,
/// as soon as an answer of the service has told its time.
#[derive(Debug, Clone)]
pub struct Tip {
    margin: Duration,
    asked_at: Option<Instant>,
    /// The service's time at `asked_at`, not later.
    time: Option<Timestamp>,
    /// Whether no asking failed yet.
    is_first: bool,
}

impl Tip {
    /// A tip that nobody has asked for. `margin` is taken off the service's time, which is told to the second.
    #[must_use]
    pub const fn new(margin: Duration) -> Self {
        Self { margin, asked_at: None, time: None, is_first: true }
    }

    /// Where an asking at `now` has to start: at `LATEST`, or at the time of the first asking once that is known.
    pub fn start(&mut self, now: Instant) -> StartPosition {
        match self.time {
            Some(timestamp) => StartPosition::AtTimestamp { timestamp },
            None => {
                self.asked_at.get_or_insert(now);
                StartPosition::Latest
            }
        }
    }

    /// An answer told the service's time: enough to know when the tip was first asked for.
    pub fn learn_time(&mut self, now: Instant, service_time: Option<Timestamp>) {
        if let (Some(asked_at), None, Some(time)) = (self.asked_at, self.time, service_time) {
            self.time = Some(time.minus(now.saturating_duration_since(asked_at) + self.margin));
        }
    }

    /// An asking failed, or what came of it is over: a later one at `LATEST` would be of a later tip.
    pub const fn lost(&mut self) {
        self.is_first = false;
    }

    /// Whether what was asked for is where reading has to go on.
    #[must_use]
    pub fn accepts(&self, asked: &StartPosition) -> bool {
        // Without a time from the service there is nothing better than the later tip.
        *asked != StartPosition::Latest || self.is_first || self.time.is_none()
    }
}

/// Finds out whether records are missing before the first one that is read, and reports that once. For those who write a
/// [`ShardReader`](super::ShardReader).
#[derive(Debug, Clone, Default)]
pub struct GapWatch(Option<PendingGap>);

/// A gap that is reported with the first record after it.
#[derive(Debug, Clone)]
struct PendingGap {
    after: SequenceNumber,
    /// Whether the service refused the number. Otherwise there is a gap only if the record with that number, where
    /// reading was to start, does not come.
    certain: bool,
}

impl GapWatch {
    /// Before anything is read from `start`: only a start at a record has something to miss.
    #[must_use]
    pub fn new(start: &StartPosition) -> Self {
        match start {
            StartPosition::AtSequenceNumber { sequence } => {
                Self(Some(PendingGap { after: sequence.clone(), certain: false }))
            }
            _ => Self(None),
        }
    }

    /// The service refused to go on after this number: what follows it is gone.
    #[must_use]
    pub const fn refused(after: SequenceNumber) -> Self {
        Self(Some(PendingGap { after, certain: true }))
    }

    /// A record was read; the gap before it, if any.
    pub fn first(&mut self, first: &SequenceNumber) -> Option<Gap> {
        let gap = self.0.take().filter(|gap| gap.certain || *first != gap.after)?;
        Some(Gap::new(gap.after, Some(first.clone())))
    }

    /// Reading has reached the tip without a record; the gap, if there is one for certain: nothing is left after it, so
    /// there is no end of it to wait for.
    pub fn caught_up(&mut self) -> Option<Gap> {
        self.0.take_if(|gap| gap.certain).map(|gap| Gap::new(gap.after, None))
    }

    /// The shard is read to its end; the gap before the end, if any.
    pub fn end(&mut self) -> Option<Gap> {
        self.0.take().map(|gap| Gap::new(gap.after, None))
    }
}
