//! What flushing and closing came to.

use kinesis_core::OutboundRecord;

/// What became of the records that were in the producer when it was flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlushReport {
    /// Records that were stored.
    pub sent: usize,
    /// Records that were given up.
    pub failed: usize,
    /// Records without an answer when the time was over; they stay in the producer.
    pub unconfirmed: usize,
}

impl FlushReport {
    /// Whether every record was stored.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.unconfirmed == 0
    }
}

/// What became of the records that were in the producer when it was closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CloseReport {
    /// Records that were stored.
    pub sent: usize,
    /// Records that were given up after their retries; their receipts have them.
    pub failed: usize,
    /// Records without an answer when the time was over, in the order in which they were put. Those that were in
    /// flight may have been stored.
    pub unsent: Vec<OutboundRecord>,
}

impl CloseReport {
    /// Whether every record was stored.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.unsent.is_empty()
    }
}
