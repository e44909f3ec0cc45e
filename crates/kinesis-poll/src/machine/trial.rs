//! How many readers share a shard, from the moment at which its reads were used up.
//!
//! In a trial all readers of a shard begin at the same moment with the same low rate and raise it alike. The more they
//! are, the sooner the shard refuses; so the time of the first refusal says how many they are. Pure arithmetic.

use crate::limits::READS_PER_SECOND;

/// The rate that a trial begins with, in reads a second: five readers do not yet use up the shard.
const START: f64 = 0.92;

/// By how much the rate grows, as a part of itself in a second.
const GROWTH: f64 = 0.085;

/// The first refusal comes later than the moment at which the reads are used up, by this part of the time between two
/// reads.
const DELAY: f64 = 0.08;

/// The rate of the shard: what it refills in a second, and as much as it can have saved up.
const FULL: f64 = READS_PER_SECOND as f64;

/// How many readers are told apart at the most.
pub(super) const MANY: f64 = 8.0;

/// How long a trial goes on without a refusal before a reader knows that it is alone, in seconds: the full rate is
/// reached and kept for a while.
pub(super) fn longest() -> f64 {
    full_at() + 6.0
}

/// When the full rate is reached, in seconds of the trial.
fn full_at() -> f64 {
    (FULL / START).ln() / GROWTH
}

fn rate(at: f64) -> f64 {
    (START * (GROWTH * at).exp()).min(FULL)
}

/// How many reads one reader has made at this time of the trial.
fn reads(at: f64) -> f64 {
    let until = at.min(full_at());
    START / GROWTH * ((GROWTH * until).exp() - 1.0) + FULL * (at - until)
}

/// When a reader that has made `count` reads at `at` makes the next one.
pub(super) fn next_read(at: f64) -> f64 {
    time_of(reads(at) + 1.0)
}

/// When a reader makes its read number `count`, which need not be whole.
pub(super) fn time_of(count: f64) -> f64 {
    let at_full = (FULL - START) / GROWTH;
    if count <= at_full {
        (1.0 + count * GROWTH / START).ln() / GROWTH
    } else {
        full_at() + (count - at_full) / FULL
    }
}

/// How many readers of equal share there are, if the first refusal of one of them comes at `refused_at`. Not whole, at
/// least 1.7 and at most [`MANY`].
pub(super) fn readers(refused_at: f64) -> f64 {
    let used_up = (refused_at - DELAY / rate(refused_at)).max(0.3);
    let (mut few, mut many) = (1.01_f64, 60.0_f64);
    for _ in 0..40 {
        let middle = (few * many).sqrt();
        // Until all together read at the full rate, nothing is taken that does not come back at once.
        let begin = if middle * START >= FULL { 0.0 } else { (FULL / (middle * START)).ln() / GROWTH };
        let taken = middle * (reads(used_up) - reads(begin.min(used_up)));
        let had = FULL + FULL * (used_up - begin.min(used_up));
        if taken < had { few = middle } else { many = middle }
    }
    few.clamp(1.7, MANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When `n` readers without any jitter use up a full shard.
    fn used_up(n: f64) -> f64 {
        let (mut level, mut at) = (FULL, 0.0);
        while level > 0.0 {
            level = (level + (FULL - n * rate(at)) * 0.001).min(FULL);
            at += 0.001;
        }
        at
    }

    #[test]
    fn the_first_refusal_tells_how_many_readers_there_are() {
        for n in 2..=7 {
            let n = f64::from(n);
            let at = used_up(n);
            let found = readers(at + DELAY / rate(at));
            assert!((found / n - 1.0).abs() < 0.03, "{found} for {n}");
        }
        assert!(readers(0.1) >= MANY);
        assert!(readers(longest()) >= 1.7);
    }

    #[test]
    fn reads_come_at_the_times_that_the_rate_gives() {
        for count in [0.0, 0.5, 3.0, 20.0, 60.0, 80.0] {
            assert!((reads(time_of(count)) - count).abs() < 1e-6, "{count}");
        }
        let (mut at, mut last) = (0.0, f64::MAX);
        while at < longest() {
            let next = next_read(at);
            assert!(next - at <= last + 1e-9 && next - at >= 1.0 / FULL - 1e-9);
            (last, at) = (next - at, next);
        }
    }
}
