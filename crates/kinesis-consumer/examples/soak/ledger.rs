//! What was written, what was delivered, and which repetitions are allowed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long it is remembered who delivered a record first: longer than anything can come again.
const MEMORY: Duration = Duration::from_secs(600);

/// How many violations are kept as text.
const ENOUGH: usize = 20;

/// The records of one key, in the order of writing.
#[derive(Debug, Default)]
struct Channel {
    written: u64,
    /// The number that has to be delivered next.
    expected: u64,
    /// When the last ones before it were delivered first, and by which worker.
    recent: VecDeque<(Instant, u32)>,
}

/// A time in which what a worker finished may not be stored.
#[derive(Debug, Clone, Copy)]
struct Outage {
    from: Instant,
    /// None: for good.
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Book {
    channels: Vec<Channel>,
    outages: HashMap<u32, Vec<Outage>>,
    delivered: u64,
    repeated: u64,
    violations: u64,
    first: Vec<String>,
}

/// The book of a run. Of every channel each record has to be delivered, the first time in order; again only where its
/// worker could not store that it was finished.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Book>);

/// What the book says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) written: u64,
    /// Different records.
    pub(crate) delivered: u64,
    pub(crate) repeated: u64,
    pub(crate) violations: u64,
}

impl Ledger {
    pub(crate) fn new(channels: usize) -> Self {
        let mut book = Book::default();
        book.channels.resize_with(channels, Channel::default);
        Self(Mutex::new(book))
    }

    /// The number of the next record of a channel, which is written now.
    pub(crate) fn write(&self, channel: usize) -> u64 {
        let mut book = self.book();
        let channel = &mut book.channels[channel];
        channel.written += 1;
        channel.written - 1
    }

    /// A worker finished a record.
    pub(crate) fn deliver(&self, now: Instant, worker: u32, shard: &str, channel: usize, number: u64) {
        let mut guard = self.book();
        let book = &mut *guard;
        let Some(entry) = book.channels.get_mut(channel) else {
            return book.violation(format!("{shard}: a record that nobody wrote"));
        };
        let expected = entry.expected;
        if number > expected {
            return book.violation(format!(
                "{shard}: worker {worker} got {channel}/{number} before {channel}/{expected}"
            ));
        }
        if number == expected {
            entry.expected += 1;
            while entry.recent.front().is_some_and(|(at, _)| now - *at > MEMORY) {
                entry.recent.pop_front();
            }
            entry.recent.push_back((now, worker));
            if entry.recent.capacity() > 4 * entry.recent.len() {
                // A burst leaves no room behind: this memory is judged as well.
                entry.recent.shrink_to(2 * entry.recent.len());
            }
            book.delivered += 1;
            return;
        }
        book.repeated += 1;
        let age = usize::try_from(expected - number).unwrap_or(usize::MAX);
        let first = entry.recent.len().checked_sub(age).map(|place| entry.recent[place]);
        let excused = first.is_some_and(|(at, by)| {
            let outages = book.outages.get(&by).map_or(&[][..], Vec::as_slice);
            outages.iter().any(|out| out.from <= at && out.until.is_none_or(|until| at <= until))
        });
        if !excused {
            let (ago, by) = match first {
                Some((at, by)) => (format!("{:?} ago", now - at), by.to_string()),
                None => ("long ago".to_owned(), "somebody".to_owned()),
            };
            book.violation(format!(
                "{shard}: worker {worker} got {channel}/{number} again, which worker {by} had finished {ago}"
            ));
        }
    }

    /// From then on, for good or for a time, what this worker finishes may not be stored.
    pub(crate) fn outage(&self, worker: u32, from: Instant, until: Option<Instant>) {
        let mut book = self.book();
        // Those of workers that are gone for so long that nothing of theirs can come again.
        book.outages.retain(|_, outages| {
            outages.retain(|outage| from - outage.from.min(from) < 2 * MEMORY);
            !outages.is_empty()
        });
        book.outages.entry(worker).or_default().push(Outage { from, until });
    }

    pub(crate) fn violation(&self, what: String) {
        self.book().violation(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.book().first.clone()
    }

    pub(crate) fn totals(&self) -> Totals {
        let book = self.book();
        Totals {
            written: book.channels.iter().map(|channel| channel.written).sum(),
            delivered: book.delivered,
            repeated: book.repeated,
            violations: book.violations,
        }
    }

    /// How much of every channel was written.
    pub(crate) fn written(&self) -> Vec<u64> {
        self.book().channels.iter().map(|channel| channel.written).collect()
    }

    /// The channels of which not all of `goal` was delivered.
    pub(crate) fn behind(&self, goal: &[u64]) -> Vec<usize> {
        let book = self.book();
        let behind = |(channel, goal): (&Channel, &u64)| channel.expected < *goal;
        book.channels.iter().zip(goal).enumerate().filter(|(_, pair)| behind(*pair)).map(|(n, _)| n).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn violation(&mut self, what: String) {
        self.violations += 1;
        if self.first.len() < ENOUGH {
            self.first.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The soak sees a record that is left out, one that comes again without a reason, and none where there is one.
    #[test]
    fn losses_and_unexcused_repetitions_are_violations() {
        let now = Instant::now();
        let ledger = Ledger::new(2);
        for _ in 0..5 {
            ledger.write(1);
        }
        for number in 0..3 {
            ledger.deliver(now, 7, "s", 1, number);
        }
        assert_eq!(ledger.totals().violations, 0);
        ledger.deliver(now, 7, "s", 1, 4);
        assert_eq!(ledger.violations(), ["s: worker 7 got 1/4 before 1/3"]);
        ledger.deliver(now + SECOND, 8, "s", 1, 2);
        assert_eq!(ledger.totals().violations, 2, "nothing was wrong with worker 7");
        ledger.outage(7, now, None);
        ledger.deliver(now + SECOND, 8, "s", 1, 2);
        assert_eq!(ledger.totals().violations, 2);
        ledger.outage(8, now + SECOND, Some(now + 3 * SECOND));
        ledger.deliver(now + 4 * SECOND, 8, "s", 1, 3);
        ledger.deliver(now + 5 * SECOND, 9, "s", 1, 3);
        let totals = ledger.totals();
        assert_eq!((totals.violations, totals.delivered, totals.repeated), (3, 4, 3));
        assert_eq!((ledger.behind(&[0, 4]), ledger.behind(&[0, 5])), (vec![], vec![1]));
    }
}
