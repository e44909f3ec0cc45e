//! Growing, jittered delays between tries.

use std::time::Duration;

/// How delays grow. The delay before try `n` is drawn from the upper half of `min(initial * 2^n, max)`, so that
/// workers that failed together do not come back together, and no delay is near zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BackoffConfig {
    /// The first delay (its upper bound).
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl BackoffConfig {
    /// Delays from `initial`, doubling, up to `max`.
    #[must_use]
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max }
    }
}

/// The delays of one run of failures. Random numbers are injected.
#[derive(Debug, Clone)]
pub struct Backoff {
    config: BackoffConfig,
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// A run that has not failed yet; `seed` makes its jitter repeatable.
    #[must_use]
    pub fn new(config: BackoffConfig, seed: u64) -> Self {
        Self { config, failures: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// How often [`next_delay`](Self::next_delay) was asked since the last reset.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The delay after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX);
        let ceiling = self.config.initial.saturating_mul(factor).min(self.config.max);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(0.5 + self.random.f64() / 2.0)
    }

    /// Progress was made: the next delay is the first one again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_the_maximum_within_the_upper_half_and_reset() {
        let config = BackoffConfig::new(Duration::from_millis(300), Duration::from_secs(5));
        let mut backoff = Backoff::new(config, 1);
        for ceiling in [300, 600, 1_200, 2_400, 4_800, 5_000, 5_000] {
            let delay = backoff.next_delay();
            let ceiling = Duration::from_millis(ceiling);
            assert!(ceiling / 2 <= delay && delay <= ceiling, "{delay:?} for {ceiling:?}");
        }
        for _ in 0..100 {
            assert!(backoff.next_delay() <= Duration::from_secs(5));
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(300));
    }

    #[test]
    fn different_seeds_give_different_jitter() {
        let config = BackoffConfig::new(Duration::from_secs(1), Duration::from_secs(1));
        assert_ne!(Backoff::new(config, 1).next_delay(), Backoff::new(config, 2).next_delay());
    }
}
