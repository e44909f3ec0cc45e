//! The service's clock, from the dates of its answers.

use std::time::{Duration, Instant};

/// How far the two clocks may drift apart, as a part of the time that passes.
const DRIFT: f64 = 1e-4;

/// How well the service's time must be known to be of use, in seconds.
const SHARP: f64 = 0.3;

/// The service's time. Answers tell it in whole seconds; each narrows down when those seconds begin.
#[derive(Debug, Default)]
pub(super) struct ServiceClock {
    known: Option<Known>,
}

/// A service time, in seconds, and the earliest and the latest moment at which it may have been, in seconds from `at`.
#[derive(Debug)]
struct Known {
    at: Instant,
    seconds: f64,
    earliest: f64,
    latest: f64,
}

impl ServiceClock {
    /// The answer to a call, sent and received at these times, said that the service's time was `seconds`.
    pub(super) fn heard(&mut self, sent: Instant, received: Instant, seconds: i64) {
        let round_trip = received.saturating_duration_since(sent).as_secs_f64();
        let seconds = seconds as f64;
        // The second may just have begun when the answer came, or just have ended when the call went out.
        let (mut earliest, mut latest) = (-1.0, round_trip);
        if let Some(known) = &self.known {
            let passed = sent.saturating_duration_since(known.at).as_secs_f64();
            let moved = seconds - known.seconds - passed;
            let drift = passed * DRIFT;
            let (low, high) = (known.earliest + moved - drift, known.latest + moved + drift);
            // When they contradict each other, a clock was set: the past says nothing any more.
            if low < latest && earliest < high {
                (earliest, latest) = (earliest.max(low), latest.min(high));
            }
        }
        self.known = Some(Known { at: sent, seconds, earliest, latest });
    }

    /// Whether the service's time is known well enough to be of use.
    pub(super) fn is_known(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.latest - known.earliest <= SHARP)
    }

    /// When the service's time is next divisible by `period`, after `now`; `None` while it is not known well enough.
    pub(super) fn next_multiple(&self, now: Instant, period: Duration) -> Option<Instant> {
        let known = self.known.as_ref().filter(|_| self.is_known())?;
        let period = period.as_secs_f64();
        let began = f64::midpoint(known.earliest, known.latest);
        let time = known.seconds - began + now.saturating_duration_since(known.at).as_secs_f64();
        Some(now + Duration::from_secs_f64(period - time.rem_euclid(period)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PERIOD: Duration = Duration::from_secs(40);

    /// A clock that heard the service's time every 190 ms; the service's time was 1000.35 s at `began`.
    fn told(began: Instant, answers: u32, latency: Duration) -> (ServiceClock, Instant) {
        let mut clock = ServiceClock::default();
        let mut now = began;
        for _ in 0..answers {
            let time = 1000.35 + (now - began + latency / 2).as_secs_f64();
            clock.heard(now, now + latency, time.floor() as i64);
            now += 190 * MS;
        }
        (clock, now)
    }

    #[test]
    fn a_few_answers_tell_when_the_seconds_begin() {
        let began = Instant::now();
        assert!(!told(began, 1, 20 * MS).0.is_known());
        for latency in [0, 20, 60] {
            let (clock, now) = told(began, 12, latency * MS);
            let next = clock.next_multiple(now, PERIOD).unwrap() - began;
            // 1040 is divisible by 40.
            let off = (next.as_secs_f64() - 39.65).abs();
            assert!(off < 0.1, "latency {latency}: {off}");
        }
    }

    #[test]
    fn a_clock_that_is_set_is_learnt_anew() {
        let began = Instant::now();
        let (mut clock, mut now) = told(began, 12, Duration::ZERO);
        let jump = 7.0;
        for answer in 0..12 {
            let time = 1000.35 + jump + (now - began).as_secs_f64();
            clock.heard(now, now, time.floor() as i64);
            assert!(answer > 0 || !clock.is_known(), "one answer is not enough");
            now += 190 * MS;
        }
        let next = clock.next_multiple(now, PERIOD).unwrap() - began;
        assert!((next.as_secs_f64() - 32.65).abs() < 0.1, "{next:?}");
    }
}
