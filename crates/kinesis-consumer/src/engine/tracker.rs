//! Which records of a shard were handed out and which are finished: the watermark. Pure and synchronous.

use std::collections::VecDeque;

use kinesis_core::Position;

/// A record that was handed out.
#[derive(Debug)]
struct Entry {
    position: Position,
    done: bool,
}

/// Follows the records of one tenure. The watermark is the last record before the first unfinished one; it only grows.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Records from the first unfinished one on, in order.
    entries: VecDeque<Entry>,
    /// The ticket of the first entry: tickets count the records handed out.
    first_ticket: u64,
    unfinished: usize,
    watermark: Option<Position>,
    last_delivered: Option<Position>,
    /// The last record that a handler took without an error.
    last_taken: Option<Position>,
}

impl Tracker {
    /// Starts after what is stored.
    pub(crate) fn new(stored: Option<Position>) -> Self {
        Self {
            entries: VecDeque::new(),
            first_ticket: 0,
            unfinished: 0,
            last_delivered: stored.clone(),
            last_taken: stored.clone(),
            watermark: stored,
        }
    }

    /// Notes that a record is handed out; records come in order. Returns its ticket.
    pub(crate) fn deliver(&mut self, position: Position) -> u64 {
        debug_assert!(
            self.last_delivered.as_ref().is_none_or(|last| *last < position),
            "records come in order"
        );
        self.last_delivered = Some(position.clone());
        self.entries.push_back(Entry { position, done: false });
        self.unfinished += 1;
        self.first_ticket + self.entries.len() as u64 - 1
    }

    /// Notes that a handler took everything up to a record without an error.
    pub(crate) fn taken(&mut self, position: &Position) {
        if self.last_taken.as_ref().is_none_or(|last| last < position) {
            self.last_taken = Some(position.clone());
        }
    }

    /// Finishes one record by ticket; finishing it again changes nothing.
    pub(crate) fn finish(&mut self, ticket: u64) {
        let Some(index) = ticket.checked_sub(self.first_ticket) else { return };
        if let Some(entry) = self.entries.get_mut(index as usize) {
            self.unfinished -= usize::from(!entry.done);
            entry.done = true;
            self.advance();
        }
    }

    /// Whether the record of a ticket is finished.
    pub(crate) fn is_finished(&self, ticket: u64) -> bool {
        let entry = ticket.checked_sub(self.first_ticket).and_then(|index| self.entries.get(index as usize));
        entry.map_or(ticket < self.first_ticket, |entry| entry.done)
    }

    /// Whether the record at a position is finished.
    pub(crate) fn is_finished_at(&self, position: &Position) -> bool {
        match self.entries.binary_search_by(|entry| entry.position.cmp(position)) {
            Ok(index) => self.entries[index].done,
            Err(_) => self.watermark.as_ref().is_some_and(|watermark| position <= watermark),
        }
    }

    /// Finishes the record at a position. Returns whether it was handed out and not forgotten yet.
    pub(crate) fn finish_at(&mut self, position: &Position) -> bool {
        match self.entries.binary_search_by(|entry| entry.position.cmp(position)) {
            Ok(index) => {
                self.finish(self.first_ticket + index as u64);
                true
            }
            // At or before the watermark it was finished before.
            Err(_) => self.watermark.as_ref().is_some_and(|watermark| position <= watermark),
        }
    }

    /// Finishes the records from `first` to `last`, both included.
    pub(crate) fn finish_range(&mut self, first: &Position, last: &Position) {
        let start = self.entries.partition_point(|entry| entry.position < *first);
        for entry in self.entries.iter_mut().skip(start).take_while(|entry| entry.position <= *last) {
            self.unfinished -= usize::from(!entry.done);
            entry.done = true;
        }
        self.advance();
    }

    /// Finishes everything up to and including a position.
    pub(crate) fn finish_up_to(&mut self, last: &Position) {
        if let Some(first) = self.entries.front().map(|entry| entry.position.clone()) {
            self.finish_range(&first, last);
        }
    }

    fn advance(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.done) {
            self.watermark = self.entries.pop_front().map(|entry| entry.position);
            self.first_ticket += 1;
        }
    }

    /// The last record before the first unfinished one: what may be stored.
    pub(crate) fn watermark(&self) -> Option<&Position> {
        self.watermark.as_ref()
    }

    /// The last record that was handed out, or what was stored at the start.
    pub(crate) fn last_delivered(&self) -> Option<&Position> {
        self.last_delivered.as_ref()
    }

    /// The last record that a handler took without an error, or what was stored at the start.
    pub(crate) fn last_taken(&self) -> Option<&Position> {
        self.last_taken.as_ref()
    }

    /// The ticket and the position of the first unfinished record.
    pub(crate) fn first_unfinished(&self) -> Option<(u64, &Position)> {
        // What is finished at the front is taken off at once.
        self.entries.front().map(|entry| (self.first_ticket, &entry.position))
    }

    /// How many records are handed out and unfinished.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(number: u128) -> Position {
        Position::new(number.into(), 0)
    }

    fn tracker(numbers: impl IntoIterator<Item = u128>) -> Tracker {
        let mut tracker = Tracker::new(None);
        for number in numbers {
            tracker.deliver(at(number));
        }
        tracker
    }

    /// S-023, F-10: with 5, 9 and 7 finished and 6 in work, nothing past 5 may be stored.
    #[test]
    fn the_watermark_stops_before_the_first_unfinished_record() {
        let mut tracker = tracker([5, 6, 7, 9]);
        for number in [5, 9, 7] {
            assert!(tracker.finish_at(&at(number)));
        }
        assert_eq!(tracker.watermark(), Some(&at(5)));
        assert_eq!(tracker.unfinished(), 1);
        tracker.finish_at(&at(6));
        assert_eq!(tracker.watermark(), Some(&at(9)));
        assert_eq!(tracker.unfinished(), 0);
    }

    #[test]
    fn records_never_handed_out_are_not_finished() {
        let mut tracker = tracker([5, 6]);
        assert!(!tracker.finish_at(&at(7)));
        tracker.finish(17);
        assert_eq!((tracker.watermark(), tracker.unfinished()), (None, 2));
    }

    proptest! {
        /// S-023: whatever is finished in whatever order, the watermark is the last of the finished prefix.
        #[test]
        fn watermark_is_the_finished_prefix(order in Just((0_u64..40).collect::<Vec<_>>()).prop_shuffle(), cut in 0_usize..40) {
            let mut tracker = tracker(1..=40);
            let finished: std::collections::BTreeSet<_> = order[..cut].iter().copied().collect();
            let mut before = None;
            for ticket in &order[..cut] {
                tracker.finish(*ticket);
                prop_assert!(tracker.watermark().cloned() >= before, "the watermark never goes back");
                before = tracker.watermark().cloned();
            }
            let prefix = (0..40).take_while(|ticket| finished.contains(ticket)).count() as u128;
            prop_assert_eq!(tracker.watermark().cloned(), (prefix > 0).then(|| at(prefix)));
            prop_assert_eq!(tracker.unfinished(), 40 - cut);
        }
    }
}
