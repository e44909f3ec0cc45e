//! When to try again.

use std::time::{Duration, Instant};

use kinesis_core::backoff::{Backoff, BackoffConfig};

/// Delays grow by doubling, so beyond this many failures nothing grows any more.
const MOST_DOUBLINGS: u32 = 32;

/// Keeps apart how records that were refused come back and how calls that failed as a whole hold up the next ones.
#[derive(Debug)]
pub(super) struct Pace {
    config: BackoffConfig,
    random: fastrand::Rng,
    /// Grows with each pause that follows another one without a call that was answered in between.
    calls: Backoff,
    paused_until: Option<Instant>,
}

impl Pace {
    pub(super) fn new(config: BackoffConfig, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let calls = Backoff::new(config, random.u64(..));
        Self { config, random, calls, paused_until: None }
    }

    /// Until when no call starts; may lie in the past.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }

    /// Whether no call was answered since one failed.
    pub(super) fn is_failing(&self) -> bool {
        self.calls.failures() > 0
    }

    pub(super) fn call_succeeded(&mut self) {
        self.calls.reset();
    }

    /// Begins a pause, longer than the one before. Failures of calls that were under way when it began join it: one
    /// outage is one failure, however many calls it hits. Returns its end.
    pub(super) fn call_failed(&mut self, now: Instant) -> Instant {
        match self.paused_until {
            Some(until) if until > now => until,
            _ => {
                let until = now + self.calls.next_delay();
                self.paused_until = Some(until);
                until
            }
        }
    }

    /// The delays of the records that one answer refused: the same for all that were sent equally often, so that
    /// they share a call again.
    pub(super) fn delays(&mut self) -> Delays {
        Delays { config: self.config, seed: self.random.u64(..) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Delays {
    config: BackoffConfig,
    seed: u64,
}

impl Delays {
    /// The delay after so many attempts, counted from one.
    pub(super) fn before_retry(self, attempts: u32) -> Duration {
        let mut backoff = Backoff::new(self.config, self.seed);
        for _ in 1..attempts.min(MOST_DOUBLINGS) {
            backoff.next_delay();
        }
        backoff.next_delay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BackoffConfig = BackoffConfig::new(Duration::from_millis(200), Duration::from_secs(10));

    fn within(delay: Duration, ceiling_millis: u64) -> bool {
        let ceiling = Duration::from_millis(ceiling_millis);
        ceiling / 2 <= delay && delay <= ceiling
    }

    #[test]
    fn delays_of_records_grow_with_their_attempts_and_are_shared_in_one_answer() {
        let mut pace = Pace::new(CONFIG, 1);
        let delays = pace.delays();
        for (attempts, ceiling) in [(1, 200), (2, 400), (3, 800), (7, 10_000), (u32::MAX, 10_000)] {
            let delay = delays.before_retry(attempts);
            assert!(within(delay, ceiling), "{delay:?} after {attempts}");
            assert_eq!(delay, delays.before_retry(attempts));
        }
        assert_ne!(delays.before_retry(1), pace.delays().before_retry(1));
    }

    #[test]
    fn calls_that_fail_together_make_one_pause_and_a_success_makes_the_next_one_short() {
        let mut pace = Pace::new(CONFIG, 1);
        let now = Instant::now();
        let until = pace.call_failed(now);
        assert!(within(until - now, 200));
        assert_eq!(pace.call_failed(now + Duration::from_millis(1)), until);
        assert!(pace.is_paused(now));
        assert!(!pace.is_paused(until));

        let second = pace.call_failed(until);
        assert!(within(second - until, 400));
        pace.call_succeeded();
        assert!(pace.is_paused(until), "other calls may still fail");
        assert!(within(pace.call_failed(second) - second, 200));
    }
}
