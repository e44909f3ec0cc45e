//! Counting the readers of a shard, which cannot talk to each other.
//!
//! All that share a shard begin a count at the same moment of the service's clock. First they keep quiet, so that the
//! shard's allowance is full. Then they read at the same moments, which come faster from step to step: each step is more
//! than its number of readers may read. Who is refused in a step therefore knows how many there are. For the rest of that
//! step it reads a little earlier than those that were not refused yet, so that the next refusal hits one of them; by its
//! end all know, and stop.
//!
//! The durations here are no settings: all readers of a shard must use the same, whatever application they belong to.

use std::time::{Duration, Instant};

/// How often readers are counted, by the service's clock.
pub(super) const PERIOD: Duration = Duration::from_secs(40);

/// How long they keep quiet before: in this time a shard regains all that it allows.
pub(super) const QUIET: Duration = Duration::from_millis(1_100);

/// A read that is later than this spoils the count.
const LATE: Duration = Duration::from_millis(150);

/// Reads at the same distance.
struct Step {
    /// How many readers there are, at the least, when one of them is refused.
    readers: u32,
    /// The time from one read to the next.
    gap: Duration,
    reads: u32,
    /// By how much who was refused reads earlier than the others.
    ahead: Duration,
}

const fn step(readers: u32, gap: u64, reads: u32, ahead: u64) -> Step {
    Step { readers, gap: Duration::from_millis(gap), reads, ahead: Duration::from_millis(ahead) }
}

/// Found by simulation: in each step, all of its number of readers are refused once and few of them twice.
const STEPS: [Step; 4] =
    [step(5, 780, 7, 100), step(4, 530, 5, 100), step(3, 330, 5, 100), step(2, 280, 7, 80)];

/// One count.
#[derive(Debug)]
pub(super) struct Count {
    /// When the next read is due if it is not refused in this step.
    slot: Instant,
    step: usize,
    /// Reads of this step that were answered or refused.
    done: u32,
    refused: bool,
}

/// What is next in a count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To read then.
    Read(Instant),
    /// Nothing: this many readers share the shard; where it is the number of the first step, perhaps more.
    Readers(u32),
    /// Nothing: it came to no result.
    Spoilt,
}

impl Count {
    /// The number of readers from which on a count cannot tell.
    pub(super) const MOST: u32 = STEPS[0].readers;

    /// A count whose first read is due at `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self { slot: start, step: 0, done: 0, refused: false }
    }

    /// A read, sent at `sent`, was answered or refused. `floor` is the least time between two reads.
    pub(super) fn read(&mut self, sent: Instant, refused: bool, floor: Duration) -> Next {
        if sent > self.slot + LATE {
            return Next::Spoilt;
        }
        self.refused |= refused;
        self.done += 1;
        let mut step = &STEPS[self.step];
        if self.done == step.reads {
            if self.refused {
                return Next::Readers(step.readers);
            }
            self.step += 1;
            self.done = 0;
            match STEPS.get(self.step) {
                // Who reads no faster than this anyway has its full rate.
                Some(next) if next.gap >= floor => step = next,
                _ => return Next::Readers(1),
            }
        }
        self.slot += step.gap;
        let ahead = if self.refused { step.ahead } else { Duration::ZERO };
        Next::Read((self.slot - ahead).max(sent + floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(200);

    /// What `n` readers count that read at the very same moments, and how many of their reads are refused.
    fn count(n: usize) -> (Vec<u32>, usize) {
        let start = Instant::now();
        let (mut allowance, mut at, mut refused) = (5.0, start, 0);
        let mut counts: Vec<_> = (0..n).map(|_| (start, Count::new(start))).collect();
        let mut results = vec![0; n];
        while let Some(reader) =
            (0..n).filter(|reader| results[*reader] == 0).min_by_key(|reader| counts[*reader].0)
        {
            let (due, count) = &mut counts[reader];
            allowance = f64::min(5.0, allowance + (*due - at).as_secs_f64() * 5.0);
            at = *due;
            let is_refused = allowance < 1.0;
            if is_refused {
                refused += 1;
            } else {
                allowance -= 1.0;
            }
            match count.read(*due, is_refused, FLOOR) {
                Next::Read(next) => *due = next,
                Next::Readers(readers) => results[reader] = readers,
                Next::Spoilt => panic!("no read was late"),
            }
        }
        (results, refused)
    }

    #[test]
    fn all_readers_come_to_the_same_number() {
        assert_eq!(count(1), (vec![1], 0));
        for n in 2..=5 {
            let (results, refused) = count(n);
            assert_eq!(results, vec![u32::try_from(n).unwrap(); n]);
            assert!((n..=2 * n + 1).contains(&refused), "{n} readers: {refused} refused");
        }
        assert_eq!(count(8).0, [5; 8]);
    }

    #[test]
    fn a_late_read_spoils_a_count() {
        let start = Instant::now();
        assert!(matches!(Count::new(start).read(start + LATE, false, FLOOR), Next::Read(_)));
        let late = start + LATE + Duration::from_millis(1);
        assert_eq!(Count::new(start).read(late, false, FLOOR), Next::Spoilt);
    }

    #[test]
    fn no_read_is_earlier_than_the_settings_allow() {
        let floor = Duration::from_millis(400);
        let mut sent = Instant::now();
        let mut count = Count::new(sent);
        let mut reads = 1;
        let readers = loop {
            match count.read(sent, false, floor) {
                Next::Read(next) => {
                    assert!(next >= sent + floor);
                    sent = next;
                }
                Next::Readers(readers) => break readers,
                Next::Spoilt => panic!("no read was late"),
            }
            reads += 1;
        };
        assert_eq!((reads, readers), (12, 1), "two steps fit");
    }
}
