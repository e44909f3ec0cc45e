//! A token bucket: one second's worth of tokens, refilled steadily, exact in integers.

use std::time::Duration;

use crate::clock::Moment;

/// Parts of a token that the bucket counts in: with nanoseconds as time, no rounding ever happens.
const PARTS: i128 = 1_000_000_000;

/// More of a refill is not computed: it fills any bucket, and so the product stays small.
const LONGEST_REFILL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    /// Tokens per second, and the most that it holds.
    rate: u64,
    /// What it holds, in parts; negative after an overdraft.
    level: i128,
    /// When `level` was true.
    at: Moment,
    /// An overdraft is being repaid: nothing is given before the bucket is full again.
    repaying: bool,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(rate: u64, now: Moment) -> Self {
        Self { rate, level: i128::from(rate) * PARTS, at: now, repaying: false }
    }

    /// Whether `tokens` could be taken now. More than it can ever hold is given to a caller who finds it full.
    pub(crate) fn holds(&mut self, now: Moment, tokens: u64) -> bool {
        self.refill(now);
        let wanted = i128::from(tokens.min(self.rate)) * PARTS;
        !self.repaying && self.level >= wanted
    }

    /// When `tokens` can be taken, if nothing else is until then; `now` if they can be at once.
    pub(crate) fn available_at(&mut self, now: Moment, tokens: u64) -> Moment {
        if self.holds(now, tokens) {
            return now;
        }
        let full = i128::from(self.rate) * PARTS;
        let wanted = if self.repaying { full } else { i128::from(tokens.min(self.rate)) * PARTS };
        let nanos = (wanted - self.level).unsigned_abs().div_ceil(u128::from(self.rate.max(1)));
        now.plus(std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Takes `tokens`, going into debt if it holds fewer. The debt is repaid until the bucket is full.
    pub(crate) fn take(&mut self, now: Moment, tokens: u64) {
        self.refill(now);
        self.level -= i128::from(tokens) * PARTS;
        self.repaying |= self.level < 0;
    }

    fn refill(&mut self, now: Moment) {
        let full = i128::from(self.rate) * PARTS;
        let nanos = now.since(self.at).min(LONGEST_REFILL).as_nanos();
        let gained = i128::from(self.rate) * i128::try_from(nanos).unwrap_or(i128::MAX);
        self.level = (self.level + gained).min(full);
        self.at = self.at.max(now);
        if self.level == full {
            self.repaying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(5, at(0));
        for _ in 0..5 {
            assert!(bucket.holds(at(0), 1));
            bucket.take(at(0), 1);
        }
        assert!(!bucket.holds(at(199), 1));
        assert!(bucket.holds(at(200), 1));
        bucket.take(at(200), 1);
        assert!(!bucket.holds(at(399), 1));
        assert!(bucket.holds(at(400), 1));
    }

    #[test]
    fn an_overdraft_is_repaid_until_the_bucket_is_full() {
        let mut bucket = TokenBucket::new(2, at(0));
        bucket.take(at(0), 10);
        assert!(!bucket.holds(at(4_999), 1));
        assert!(bucket.holds(at(5_000), 2));
    }

    #[test]
    fn the_moment_of_the_next_tokens_is_exact() {
        let mut bucket = TokenBucket::new(3, at(0));
        assert_eq!(bucket.available_at(at(0), 3), at(0));
        bucket.take(at(0), 3);
        let next = bucket.available_at(at(0), 1);
        assert_eq!(next, at(0).plus(std::time::Duration::from_nanos(333_333_334)));
        assert!(bucket.holds(next, 1));
        bucket.take(next, 10);
        let repaid = bucket.available_at(next, 1);
        assert!(bucket.holds(repaid, 3));
    }

    #[test]
    fn more_than_it_holds_is_given_only_when_full() {
        let mut bucket = TokenBucket::new(10, at(0));
        bucket.take(at(0), 1);
        assert!(!bucket.holds(at(99), 25));
        assert!(bucket.holds(at(100), 25));
    }
}
