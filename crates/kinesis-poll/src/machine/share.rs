//! This reader's share of the reads that a shard answers: grows slowly, shrinks when the shard refuses.
//!
//! All readers of a shard, of whatever application, share its reads, and none knows of the others. What each sees is how
//! many of its own calls are refused. Since whoever calls more is refused more often, rates that grow by a little for
//! everybody and shrink by a part of their own for whoever was refused come to be alike. The constants below are a
//! compromise, found by simulation, between refused calls, even shares and the time that both take; the tests in
//! `tests/polling/sharing.rs` say what came of it.

use std::time::{Duration, Instant};

/// How much of its rate a reader keeps when it is refused for the first time, and so learns that it is not alone.
const FIRST_CUT: f64 = 0.31;

/// How much of its rate a reader keeps when it is refused again.
const CUT: f64 = 0.862;

/// By how much a rate of 1 read a second grows per second, in reads a second, after a refusal; faster rates grow less.
const GROWTH: f64 = 0.02;

/// To what part growth slows down after that: each step too far is a refused call.
const SETTLED: f64 = 0.28;

/// How fast it slows down: to 37 % of the way within this time.
const SETTLING: f64 = 45.0;

/// After this time without a refusal, somebody must have left: growth becomes faster and faster.
const QUIET: Duration = Duration::from_secs(20);

/// By how much faster, as a part of the rate: per second, for each second that quiet lasts.
const QUIET_GROWTH: f64 = 0.0008;

/// No share is below this, in reads a second, unless the settings say so: five readers get one read a second each, and
/// one beside a reader that gives way to nobody is not starved. Calls that are refused in a row are still made with
/// growing delays.
const LEAST: f64 = 0.88;

/// How far from their mean the times between reads lie. Readers in step would always refuse the same one.
const JITTER: f64 = 0.1;

/// How much longer than the least interval the time between reads is at the most, at the full rate. A reader in perfect
/// step with the shard's allowance would take all of it.
const FULL_RATE_JITTER: f64 = 0.05;

/// The rate of one reader.
#[derive(Debug)]
pub(super) struct Share {
    floor: Duration,
    /// The rate without others, in reads a second.
    full: f64,
    rate: f64,
    /// Whether others are known to read the shard: the last refusal.
    refused_at: Option<Instant>,
    /// When `rate` was true.
    at: Option<Instant>,
    /// How fast it grows, from 1 down to `SETTLED`.
    pace: f64,
    random: fastrand::Rng,
}

impl Share {
    /// The share of a reader that reads at most once per `floor`.
    pub(super) fn new(floor: Duration, seed: u64) -> Self {
        let full = 1.0 / floor.as_secs_f64();
        Self {
            floor,
            full,
            rate: full,
            refused_at: None,
            at: None,
            pace: 1.0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// A read was answered.
    pub(super) fn accepted(&mut self, now: Instant) {
        self.grow(now);
    }

    /// A read was refused because the shard's reads were used up.
    pub(super) fn refused(&mut self, now: Instant) {
        self.grow(now);
        let kept = if self.refused_at.is_none() { FIRST_CUT } else { CUT };
        self.rate = (self.rate * kept).max(LEAST.min(self.full));
        self.pace = 1.0;
        self.refused_at = Some(now);
    }

    /// The time from one read to the next.
    pub(super) fn spacing(&mut self) -> Duration {
        let random = self.random.f64();
        if self.rate >= self.full {
            return self.floor.mul_f64(FULL_RATE_JITTER.mul_add(random, 1.0));
        }
        Duration::from_secs_f64(JITTER.mul_add(random - 0.5, 1.0) / self.rate).max(self.floor)
    }

    fn grow(&mut self, now: Instant) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if let (Some(at), Some(refused_at)) = (self.at, self.refused_at) {
            let passed = since(at).as_secs_f64();
            let quiet = since(refused_at).saturating_sub(QUIET).as_secs_f64();
            let steady = GROWTH * self.pace / self.rate;
            let released = QUIET_GROWTH * quiet * self.rate;
            self.rate += (steady + released) * passed;
            self.pace = SETTLED.max(self.pace * (-passed / SETTLING).exp());
            if self.rate >= self.full {
                self.rate = self.full;
                self.refused_at = None;
            }
        }
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(200);

    fn spacing_ms(share: &mut Share) -> u128 {
        share.spacing().as_millis()
    }

    #[test]
    fn a_reader_that_is_never_refused_reads_at_the_full_rate() {
        let mut share = Share::new(FLOOR, 1);
        let mut now = Instant::now();
        for _ in 0..1_000 {
            share.accepted(now);
            let spacing = share.spacing();
            assert!(FLOOR <= spacing && spacing <= FLOOR.mul_f64(1.05), "{spacing:?}");
            now += spacing;
        }
    }

    #[test]
    fn a_refusal_is_answered_by_fewer_reads_down_to_a_least_rate() {
        let mut share = Share::new(FLOOR, 1);
        let now = Instant::now();
        share.accepted(now);
        share.refused(now);
        assert!((610..=680).contains(&spacing_ms(&mut share)));
        share.refused(now);
        assert!((710..=785).contains(&spacing_ms(&mut share)));
        for _ in 0..100 {
            share.refused(now);
        }
        assert!((1_079..=1_194).contains(&spacing_ms(&mut share)));
    }

    #[test]
    fn quiet_brings_the_full_rate_back() {
        let mut share = Share::new(FLOOR, 1);
        let mut now = Instant::now();
        share.refused(now);
        let began = now;
        while share.rate < share.full {
            now += share.spacing();
            share.accepted(now);
        }
        let took = now - began;
        assert!(Duration::from_secs(40) <= took && took <= Duration::from_secs(90), "{took:?}");
    }

    #[test]
    fn a_longer_interval_of_the_settings_stays_the_least() {
        let mut share = Share::new(Duration::from_secs(2), 1);
        share.refused(Instant::now());
        for _ in 0..100 {
            assert!(share.spacing() >= Duration::from_secs(2));
        }
    }
}
