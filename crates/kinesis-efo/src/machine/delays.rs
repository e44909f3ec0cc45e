//! How long to wait between subscriptions.

use std::time::Duration;

use crate::limits::SUBSCRIBE_INTERVAL;

/// The part of a delay that chance adds at most, so that shards that failed together come back apart. It is only
/// added: a delay is never shorter than the service's limit.
const JITTER: f64 = 0.25;

/// Delays that double from the service's least up to a maximum.
#[derive(Debug)]
pub(super) struct Ladder {
    max: Duration,
    steps: u32,
}

impl Ladder {
    pub(super) fn new(max: Duration) -> Self {
        Self { max, steps: 0 }
    }

    /// The next delay, without jitter.
    pub(super) fn climb(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.steps).unwrap_or(u32::MAX);
        self.steps = (self.steps + 1).min(u32::BITS - 1);
        SUBSCRIBE_INTERVAL.saturating_mul(factor).min(self.max)
    }

    /// Whether the last delay was the longest, after a shorter one or another of that length.
    pub(super) fn is_high(&self) -> bool {
        let factor = 1_u32.checked_shl(self.steps.saturating_sub(1)).unwrap_or(u32::MAX);
        self.steps > 1 && SUBSCRIBE_INTERVAL.saturating_mul(factor) >= self.max
    }

    /// The next delay is the first one again.
    pub(super) fn reset(&mut self) {
        self.steps = 0;
    }
}

/// The delay with some time added by chance.
pub(super) fn jittered(delay: Duration, random: &mut fastrand::Rng) -> Duration {
    delay.mul_f64(1.0 + JITTER * random.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-099: 1, 2, 4 and so on up to the maximum, and from 1 after a reset.
    #[test]
    fn delays_double_from_one_second_to_the_maximum() {
        let mut ladder = Ladder::new(Duration::from_secs(30));
        let mut climb = || (ladder.climb().as_secs(), ladder.is_high());
        let climbed: Vec<_> = (0..8).map(|_| climb()).collect();
        let low = [1, 2, 4, 8, 16].map(|seconds| (seconds, false));
        assert_eq!(climbed, [&low[..], &[(30, true); 3]].concat());
        for _ in 0..100 {
            assert_eq!(ladder.climb().as_secs(), 30);
        }
        ladder.reset();
        assert_eq!((ladder.climb().as_secs(), ladder.is_high()), (1, false));
        // Of delays that never grow the second is the longest.
        let mut flat = Ladder::new(SUBSCRIBE_INTERVAL);
        assert_eq!(
            [0; 3].map(|_| (flat.climb().as_secs(), flat.is_high())),
            [(1, false), (1, true), (1, true)]
        );
    }

    /// jitter only adds, at most a quarter.
    #[test]
    fn jitter_only_adds() {
        let mut random = fastrand::Rng::with_seed(1);
        let delays: Vec<_> = (0..1_000).map(|_| jittered(SUBSCRIBE_INTERVAL, &mut random)).collect();
        assert!(delays.iter().all(|delay| (1_000..=1_250).contains(&delay.as_millis())));
        assert!(delays.iter().any(|delay| delay.as_millis() > 1_200));
    }
}
