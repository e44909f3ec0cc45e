//! Getting one read a second beside a reader that gives way to nobody.
//!
//! Such a reader takes most of what the shard allows, and reading less leaves it only more. So a read that is refused is
//! tried again soon, at another moment, until on the whole there is more than one a second; after one that got through
//! the next comes a whole number of allowances later, because what has a rhythm leaves room at the same place again.

use std::time::{Duration, Instant};

/// The time between reads that are answered, if all goes well: there is a margin to one read a second.
const WANTED: Duration = Duration::from_millis(600);

/// The time from an answered read to the next one while too few were answered.
const OWED: Duration = Duration::from_millis(200);

/// How much of what was refused is made up for.
const DEBT: Duration = Duration::from_secs(6);

/// The time from a refused read to the next one, at the least, and by how much more at the most: on average no more than
/// three reads a second.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_JITTER: Duration = Duration::from_millis(200);

/// The same is this many times longer while so many of the last 32 reads are refused: either there is a crowd or nothing
/// to be had.
const CROWD_SLOWER: u32 = 3;
const CROWD_REFUSED: u32 = 26;

/// After this time without an answer it is no use, and failures are left to their growing delays.
const HOPE: Duration = Duration::from_secs(10);

/// The reads of a reader that insists.
#[derive(Debug)]
pub(super) struct Insist {
    /// When the next read is wanted.
    wanted: Instant,
    answered: Instant,
    /// The last reads, the newest one in the lowest bit; refused ones are set.
    recent: u32,
    reads: u32,
}

impl Insist {
    /// Insists from now on.
    pub(super) fn new(now: Instant) -> Self {
        Self { wanted: now, answered: now, recent: 0, reads: 0 }
    }

    /// A read was answered; when the next one is due.
    pub(super) fn answered(&mut self, sent: Instant) -> Instant {
        self.note(false);
        self.answered = sent;
        self.wanted = (self.wanted + WANTED).max(sent.checked_sub(DEBT).unwrap_or(sent));
        sent + if self.wanted <= sent + OWED { OWED } else { WANTED }
    }

    /// A read was refused; when the next one is due.
    pub(super) fn refused(&mut self, sent: Instant, random: &mut fastrand::Rng) -> Instant {
        self.note(true);
        let retry = RETRY + RETRY_JITTER.mul_f64(random.f64());
        let crowded = self.reads >= u32::BITS && self.recent.count_ones() >= CROWD_REFUSED;
        sent + if crowded { retry * CROWD_SLOWER } else { retry }
    }

    /// Whether it is of use: reads got through lately.
    pub(super) fn is_of_use(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.answered) < HOPE
    }

    fn note(&mut self, refused: bool) {
        self.recent = self.recent << 1 | u32::from(refused);
        self.reads = self.reads.saturating_add(1);
    }
}
