//! Whether a reader may read on although its caller has not asked: pure.

use crate::budget::Need;
use crate::limits::{MAX_BYTES_PER_READ, MAX_RECORDS_PER_READ};
use crate::machine::Page;

/// The least that a page is expected to have: a shard may begin to fill at any time.
const LEAST_PAGE_BYTES: u64 = 64 * 1024;

/// What a record takes besides its payload: its numbers, its key, its place in the page.
const RECORD_BYTES: u64 = 256;

/// The most that a page can have, and what is expected before one with records was read: a reader that begins far
/// behind finds full pages.
const MOST_PAGE_BYTES: u64 = MAX_BYTES_PER_READ + MAX_RECORDS_PER_READ as u64 * RECORD_BYTES;

/// What a reader holds for its caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) events: usize,
    pub(crate) bytes: u64,
    /// The caller waits for an event.
    pub(crate) wanted: bool,
}

/// The rule for reading ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// How much the reader may hold; 0 for reading on demand only.
    limit: u64,
    expected: u64,
    /// The last page reached the tip.
    caught_up: bool,
}

impl ReadAhead {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, expected: MOST_PAGE_BYTES, caught_up: false }
    }

    /// How many bytes the next page will have, by the last one.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Whether the next page may be read, and why; `None`: not before the caller took something.
    ///
    /// One page, however large, is read ahead. More are only while reading is behind, as far as they fit: at the tip the
    /// next page can come when this one was taken, and a caller that takes nothing causes no requests. Events without
    /// records hold no page back.
    pub(crate) fn may_read(&self, held: Held) -> Option<Need> {
        match held {
            Held { events: 0, wanted: true, .. } => Some(Need::Demand),
            Held { events: 0, .. } => (self.limit > 0).then_some(Need::Ahead),
            Held { bytes, .. } => {
                let fits = bytes == 0 || bytes.saturating_add(self.expected) <= self.limit;
                (self.limit > 0 && !self.caught_up && fits).then_some(Need::Ahead)
            }
        }
    }

    /// Takes note of a page; returns its bytes.
    pub(crate) fn learn(&mut self, page: &Page) -> u64 {
        let bytes: u64 = page.records.iter().map(|record| record.data.len() as u64 + RECORD_BYTES).sum();
        self.caught_up = page.is_caught_up();
        // An empty page on the way to the tip says nothing about the next one.
        if self.caught_up || bytes > 0 {
            self.expected = bytes.clamp(LEAST_PAGE_BYTES, MOST_PAGE_BYTES);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use kinesis_core::source::SourceRecord;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn held(events: usize, bytes: u64, wanted: bool) -> Held {
        Held { events, bytes, wanted }
    }

    fn page(bytes: u64, behind_ms: u64) -> Page {
        let data = Bytes::from(vec![0; usize::try_from(bytes - RECORD_BYTES).unwrap()]);
        Page {
            records: vec![SourceRecord::new(1.into(), None, data)],
            next: Some("next".to_owned()),
            behind: Some(Duration::from_millis(behind_ms)),
            ..Page::default()
        }
    }

    fn page_without_records(behind_ms: u64) -> Page {
        Page { records: Vec::new(), ..page(RECORD_BYTES, behind_ms) }
    }

    #[test]
    fn while_behind_pages_are_read_ahead_as_far_as_they_fit() {
        let mut ahead = ReadAhead::new(10 * MIB);
        assert_eq!(ahead.learn(&page(3 * MIB, 5)), 3 * MIB);
        assert_eq!(ahead.may_read(held(0, 0, true)), Some(Need::Demand));
        assert_eq!(ahead.may_read(held(0, 0, false)), Some(Need::Ahead));
        assert_eq!(ahead.may_read(held(1, 7 * MIB, false)), Some(Need::Ahead));
        assert_eq!(ahead.may_read(held(2, 7 * MIB + 1, false)), None);
        assert_eq!(ahead.may_read(held(1, 0, false)), Some(Need::Ahead), "an event without records");
    }

    #[test]
    fn at_the_tip_one_page_is_read_ahead() {
        let mut ahead = ReadAhead::new(10 * MIB);
        ahead.learn(&page(MIB, 0));
        assert_eq!(ahead.may_read(held(0, 0, false)), Some(Need::Ahead));
        assert_eq!(ahead.may_read(held(1, 0, false)), None);
    }

    /// A page larger than the buffer is read when nothing else is held.
    #[test]
    fn a_page_larger_than_the_buffer_is_read_alone() {
        let mut ahead = ReadAhead::new(MIB);
        ahead.learn(&page(9 * MIB, 5));
        assert_eq!(ahead.may_read(held(0, 0, false)), Some(Need::Ahead));
        assert_eq!(ahead.may_read(held(1, 1, false)), None);
    }

    #[test]
    fn without_a_buffer_only_demand_reads() {
        let ahead = ReadAhead::new(0);
        assert_eq!(ahead.may_read(held(0, 0, true)), Some(Need::Demand));
        assert_eq!(ahead.may_read(held(0, 0, false)), None);
        assert_eq!(ahead.may_read(held(1, 0, false)), None);
    }

    #[test]
    fn a_page_is_expected_to_be_like_the_last_one_within_bounds() {
        let mut ahead = ReadAhead::new(MIB);
        let most = 10 * MIB + 10_000 * 256;
        assert_eq!(ahead.expected(), most);
        assert_eq!(ahead.learn(&page_without_records(5)), 0);
        assert_eq!(ahead.expected(), most, "an empty page while behind says nothing");
        ahead.learn(&page(300, 5));
        assert_eq!(ahead.expected(), 64 * 1024);
        ahead.learn(&page(2 * MIB, 5));
        assert_eq!(ahead.expected(), 2 * MIB);
        ahead.learn(&page(13 * MIB, 5));
        assert_eq!(ahead.expected(), most);
        ahead.learn(&page_without_records(0));
        assert_eq!(ahead.expected(), 64 * 1024);
    }
}
