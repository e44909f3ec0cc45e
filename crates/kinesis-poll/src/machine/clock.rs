//! The service's time between its answers: the one clock that readers of different hosts have in common.

use std::time::{Duration, Instant};

use kinesis_core::Timestamp;

const SECOND: i128 = 1_000_000_000;

/// What the answers said, in nanoseconds: how far the service's time is ahead of the time since `began`. Answers tell
/// their time to the second; where two bounds come from two answers, they lie much closer than that.
#[derive(Debug)]
pub(super) struct ServiceClock {
    began: Option<Instant>,
    least: i128,
    most: i128,
}

impl ServiceClock {
    pub(super) fn new() -> Self {
        Self { began: None, least: 0, most: 0 }
    }

    /// An answer said what time it was, to the second, while its call was under way.
    pub(super) fn learn(&mut self, sent: Instant, received: Instant, time: Timestamp) {
        let time = i128::from(time.as_millis()) * 1_000_000;
        let known = self.began.is_some();
        let began = *self.began.get_or_insert(sent);
        let (least, most) = (time - nanos(began, received), time + SECOND - nanos(began, sent));
        (self.least, self.most) = (self.least.max(least), self.most.min(most));
        if !known || self.least > self.most {
            // The first answer, or a clock that was set.
            (self.least, self.most) = (least, most);
        }
    }

    /// Seconds of the service's time; before an answer told it, of the time since `otherwise`.
    pub(super) fn seconds(&self, now: Instant, otherwise: Instant) -> f64 {
        let nanos = match self.began {
            Some(began) => nanos(began, now) + i128::midpoint(self.least, self.most),
            None => nanos(otherwise, now),
        };
        nanos as f64 / SECOND as f64
    }
}

fn nanos(from: Instant, to: Instant) -> i128 {
    let signed = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    signed(to.saturating_duration_since(from)) - signed(from.saturating_duration_since(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(service: Duration) -> Timestamp {
        Timestamp::from_millis(i64::try_from(service.as_secs() * 1_000).unwrap())
    }

    #[test]
    fn a_few_answers_tell_the_time_far_better_than_to_the_second() {
        let began = Instant::now();
        let service = |now: Instant| Duration::from_millis(1_700_000_000_400) + (now - began);
        let mut clock = ServiceClock::new();
        for n in 0..20 {
            let sent = began + Duration::from_millis(207) * n;
            let received = sent + Duration::from_millis(8);
            clock.learn(sent, received, at(service(sent + Duration::from_millis(4))));
        }
        let now = began + Duration::from_secs(60);
        let error = clock.seconds(now, began) - service(now).as_secs_f64();
        assert!(error.abs() < 0.06, "{error}");
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let began = Instant::now();
        let mut clock = ServiceClock::new();
        clock.learn(began, began, at(Duration::from_secs(1_000)));
        clock.learn(began, began, at(Duration::from_secs(900)));
        assert!((clock.seconds(began, began) - 900.5).abs() < 0.01);
    }

    #[test]
    fn without_answers_time_is_counted_from_the_start() {
        let began = Instant::now();
        let later = began + Duration::from_secs(3);
        assert!((ServiceClock::new().seconds(later, began) - 3.0).abs() < 1e-6);
    }
}
