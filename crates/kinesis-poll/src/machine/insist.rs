//! Getting one read a second beside a reader that gives way to nobody.
//!
//! Such a reader takes most of what the shard allows, and reading less leaves it only more. But the shard allows a read
//! each fifth of a second: what got through at some moment gets through a whole number of those later as well, until
//! the other one's calls have moved there. So a read that was answered is followed by one at the same place, and one
//! that was refused by tries at other places, no two of them alike, until there is room. What was missed is made up
//! for. Only a reader that calls the very moment at which each read is allowed leaves no room at all.
//!
//! The durations here are no settings: they follow from what a shard allows, and all its readers must use the same, so that
//! none that insists takes more than another.

use std::time::{Duration, Instant};

/// A shard allows one read in this time.
const ALLOWANCE: Duration = Duration::from_millis(200);

/// The time between answered reads that is aimed at: there is a margin to one read a second.
const WANTED: Duration = Duration::from_millis(850);

/// Reads that are answered more seldom than this are missed, while nobody insists yet: fair shares are not.
const MISSED: Duration = Duration::from_millis(1_050);

/// The reads of this time are made up for, if they were missed.
const DEBT: Duration = Duration::from_secs(30);

/// The least number of allowances from an answered read to the next, while some are made up for.
const OWED: u32 = 2;

/// The time from a refused read to the next. Its part that is no whole allowance is the golden ratio of one, by which
/// the tries fall into the largest gap that those before have left. No two reads are nearer to each other, so there are
/// never more than 3.1 calls a second.
const RETRY: Duration = Duration::from_millis(324);

/// After this time without an answer it is no use, and failures are left to their growing delays.
const HOPE: Duration = Duration::from_secs(20);

/// The reads of a reader that insists, and what it missed before.
#[derive(Debug, Default)]
pub(super) struct Insist {
    since: Option<Instant>,
    /// When the next read is wanted.
    wanted: Option<Instant>,
    answered: Option<Instant>,
}

impl Insist {
    /// Insists from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Insists no longer. Whether it did.
    pub(super) fn end(&mut self) -> bool {
        self.since.take().is_some()
    }

    /// Since when it insists.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// A read was answered; when the next one is due if it insists.
    pub(super) fn answered(&mut self, sent: Instant) -> Instant {
        self.answered = Some(sent);
        let before = self.wanted.unwrap_or(sent);
        let wanted = if self.since.is_some() { before + WANTED } else { (before + MISSED).min(sent) };
        let wanted = wanted.max(sent.checked_sub(DEBT).unwrap_or(sent));
        self.wanted = Some(wanted);
        let left = wanted.saturating_duration_since(sent).as_millis().div_ceil(ALLOWANCE.as_millis());
        sent + ALLOWANCE * u32::try_from(left).unwrap_or(OWED).max(OWED)
    }

    /// A read was refused; when the next one is due.
    pub(super) fn refused(&self, sent: Instant) -> Instant {
        sent + RETRY
    }

    /// Whether it is of use: a read got through lately.
    pub(super) fn is_of_use(&self, now: Instant) -> bool {
        self.answered.is_some_and(|answered| now.saturating_duration_since(answered) < HOPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn begun(now: Instant) -> Insist {
        let mut insist = Insist::default();
        insist.begin(now);
        insist
    }

    /// Where in the allowance `at` is.
    fn place(began: Instant, at: Instant) -> u128 {
        (at - began).as_millis() % ALLOWANCE.as_millis()
    }

    #[test]
    fn what_got_through_is_followed_at_the_same_place() {
        let began = Instant::now();
        let mut insist = begun(began);
        let mut now = began + 37 * MS;
        for _ in 0..60 {
            now = insist.answered(now);
            assert_eq!(place(began, now), 37);
        }
        // As often as is wanted: 60 reads every 850 ms, give or take an allowance.
        let passed = now - began;
        assert!(passed >= 60 * WANTED - ALLOWANCE && passed <= 60 * WANTED + 2 * ALLOWANCE, "{passed:?}");
    }

    #[test]
    fn refused_reads_try_every_place() {
        let began = Instant::now();
        let insist = begun(began);
        let mut now = began;
        let mut places = vec![place(began, now)];
        for _ in 0..30 {
            now = insist.refused(now);
            places.push(place(began, now));
        }
        places.sort_unstable();
        let widest = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(widest <= 16, "{places:?}");
    }

    #[test]
    fn what_was_missed_is_made_up_for_within_bounds() {
        let began = Instant::now();
        let mut insist = begun(began);
        let mut now = insist.answered(began);
        now += Duration::from_secs(300);
        let late = now;
        let mut reads = 0;
        while insist.answered(now) - now == ALLOWANCE * OWED {
            now += ALLOWANCE * OWED;
            reads += 1;
        }
        // The debt of 30 s is paid in reads every 400 ms in place of every 850 ms.
        let paid = now - late;
        assert!(paid >= Duration::from_secs(25) && paid <= Duration::from_secs(30), "{paid:?} {reads}");
    }

    #[test]
    fn reads_that_came_often_enough_are_no_debt() {
        let began = Instant::now();
        let mut insist = Insist::default();
        let mut now = began;
        for _ in 0..600 {
            insist.answered(now);
            now += 1_020 * MS;
        }
        insist.begin(now);
        let before = now;
        for _ in 0..10 {
            now = insist.answered(now);
        }
        assert!(now - before >= 8 * WANTED, "ten reads in {:?}", now - before);
    }

    #[test]
    fn calls_are_bounded_whatever_comes_of_them() {
        let mut random = fastrand::Rng::with_seed(1);
        for refused in [0.0, 0.3, 0.6, 0.9, 1.0] {
            let began = Instant::now();
            let mut insist = begun(began);
            let mut now = began;
            for _ in 0..1_000 {
                let next = if random.f64() < refused { insist.refused(now) } else { insist.answered(now) };
                assert!(next - now >= RETRY);
                now = next;
            }
        }
    }

    #[test]
    fn hope_ends() {
        let began = Instant::now();
        let mut insist = begun(began);
        assert!(!insist.is_of_use(began), "there never was an answer");
        insist.answered(began);
        assert!(insist.is_of_use(began + HOPE - MS));
        assert!(!insist.is_of_use(began + HOPE));
        insist.answered(began + HOPE);
        assert!(insist.is_of_use(began + 2 * HOPE - MS));
    }
}
