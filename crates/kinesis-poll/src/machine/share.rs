//! This reader's share of the reads that a shard answers.
//!
//! All readers of a shard, of whatever application, share its reads, and none knows of the others. A reader that was
//! never refused is alone and reads at its full rate. One that is refused learns in *trials* how many others there are:
//! these begin at the same moments of the service's own clock, which its answers tell, so all readers that share a
//! shard hold them together. In a trial each begins at the same low rate and raises it alike until it is refused: how
//! soon that is says how many they are ([`trial`](super::trial)), and between trials each reads at its part of the rate.
//! A reader that gets through a trial is alone again.
//!
//! Each refusal carries little, and only one call in twenty may be refused: by raising and cutting rates one by one
//! (AIMD) readers come to even shares on average, but not within a minute and not each of them. What came of this way is
//! in `docs/benchmarks/sharing.md`.

use std::time::{Duration, Instant};

use kinesis_core::Timestamp;

use super::clock::ServiceClock;
use super::trial;
use crate::limits::READS_PER_SECOND;

/// The time from one trial to the next, in seconds: who leaves is noticed within a minute, the refusals of a trial
/// included.
const CYCLE: f64 = 48.5;

/// No read in the last moments before a trial, in seconds: the shard saves up its reads for it.
const CALM: f64 = 0.7;

/// Who was refused for the first time less than this before a trial does not take part, in seconds: reads are not saved
/// up again.
const TOO_LATE: f64 = 4.6;

/// Nor does who was refused more often than this in a row: that is no matter of shares.
const MOST_IN_A_ROW: u32 = 2;

/// How long a reader goes on in a trial after its first refusal, in seconds, so that the others are refused as well.
const HOLD: f64 = 1.15;

/// The least and the most time to the next read after a refusal in a trial, in seconds.
const TRIAL_RETRY: (f64, f64) = (0.2, 0.29);

/// How long a reader rests after a trial on top of its interval, in seconds: together they save up some reads.
const REST: f64 = 0.3;

/// With how many others a reader counts that was refused and waits for its first trial.
const UNKNOWN: f64 = 6.8;

/// By how much more others a reader counts with when it is refused between trials, once in [`RAISE_EVERY`] seconds and
/// up to [`RAISE_MOST`] of what the trial said.
const RAISE: f64 = 1.1;
const RAISE_EVERY: f64 = 4.1;
const RAISE_MOST: f64 = 1.44;

/// What a trial says is taken as it is if it is that much more or less than what was known, as parts of it; otherwise it
/// counts for [`WEIGHT`], because refusals come by chance.
const MORE: f64 = 1.2;
const LESS: f64 = 0.78;
const WEIGHT: f64 = 0.79;

/// How far from their mean the times between reads lie between trials, as a part of them.
const JITTER: f64 = 0.05;

/// How much longer than the least interval the time between reads is at the most, at the full rate. A reader in perfect
/// step with the shard's allowance would take all of it.
const FULL_RATE_JITTER: f64 = 0.05;

/// The longest interval, in seconds, once a trial was held. Five readers have one read a second each, and a reader that
/// gives way to nobody looks like many: beside it one read a second is to be had all the same.
const LONGEST: f64 = 1.0;

/// Where two trials in a row found so many readers, calls are refused in any case: the interval is this then, in seconds,
/// for everybody.
const CROWD: f64 = 6.0;
const PUSHED: f64 = 0.6;

/// The rate of one reader.
#[derive(Debug)]
pub(super) struct Share {
    floor: f64,
    /// The first read, for want of the service's time.
    began: Option<Instant>,
    clock: ServiceClock,
    /// Where in a cycle the trials of this shard are, so that not all shards of a stream have theirs at once.
    offset: f64,
    random: fastrand::Rng,
    /// None while this reader is alone.
    others: Option<Others>,
}

/// What is known of the readers of the shard.
#[derive(Debug)]
struct Others {
    /// How many there are, this one included, if all were equal.
    readers: f64,
    /// How many `readers` may become before the next trial.
    most: f64,
    /// The last trial said what was known before, or nearly.
    confirmed: bool,
    /// What no interval is longer than, in seconds, by the last trial; `None` before the first one.
    longest: Option<f64>,
    since: Instant,
    raised_at: Instant,
    /// Refusals in a row.
    row: u32,
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    begins: Instant,
    refused_at: Option<f64>,
}

impl Share {
    /// The share of a reader that reads at most once per `floor`, of the shard with this name.
    pub(super) fn new(floor: Duration, shard: &str, seed: u64) -> Self {
        let place = shard.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        Self {
            floor: floor.as_secs_f64(),
            began: None,
            clock: ServiceClock::new(),
            offset: CYCLE * f64::from(place % 1_000) / 1_000.0,
            random: fastrand::Rng::with_seed(seed),
            others: None,
        }
    }

    /// The answer to a read told the service's time.
    pub(super) fn learn_time(&mut self, sent: Instant, received: Instant, time: Timestamp) {
        self.clock.learn(sent, received, time);
    }

    /// The read sent at `sent` was answered: the time from it to the next one.
    pub(super) fn accepted(&mut self, sent: Instant) -> Duration {
        let random = self.random.f64();
        let Some(others) = &mut self.others else {
            return Duration::from_secs_f64(self.floor * FULL_RATE_JITTER.mul_add(random, 1.0));
        };
        others.row = 0;
        if let Some(trial) = &others.trial {
            let at = seconds(trial.begins, sent);
            match trial.refused_at {
                Some(refused_at) if at >= refused_at + HOLD => return self.conclude(sent, refused_at),
                None if at >= trial::longest() => {
                    self.others = None;
                    return Duration::from_secs_f64(self.floor);
                }
                _ => return self.spacing(trial::next_read(at) - at),
            }
        }
        let interval = others.interval();
        self.plan(sent, interval * JITTER.mul_add(random - 0.5, 1.0))
    }

    /// The read sent at `sent` was refused because the shard's reads were used up: the time from it to the next one, and
    /// whether that is all there is to wait. Where it is not, delays that grow with every refusal come on top.
    pub(super) fn refused(&mut self, sent: Instant) -> (Duration, bool) {
        let random = self.random.f64();
        let Some(others) = &mut self.others else {
            self.others = Some(Others::unknown(sent));
            return (self.plan(sent, self.floor), false);
        };
        others.row += 1;
        if let Some(trial) = &mut others.trial {
            let at = seconds(trial.begins, sent);
            let refused_at = *trial.refused_at.get_or_insert(at);
            if at >= refused_at + HOLD {
                return (self.conclude(sent, refused_at), false);
            }
            let (least, most) = TRIAL_RETRY;
            return (self.spacing((most - least).mul_add(random, least)), true);
        }
        others.refused(sent);
        let interval = others.interval();
        (self.plan(sent, (interval / 2.0).min(0.5)), false)
    }

    /// The end of a trial in which the first refusal came at `refused_at`.
    fn conclude(&mut self, sent: Instant, refused_at: f64) -> Duration {
        let Some(others) = &mut self.others else { return Duration::ZERO };
        others.learn(trial::readers(refused_at));
        others.raised_at = sent;
        let interval = others.interval() + REST;
        self.plan(sent, interval)
    }

    /// The next read after `wait` seconds, or the first one of the next trial.
    fn plan(&mut self, sent: Instant, wait: f64) -> Duration {
        let began = *self.began.get_or_insert(sent);
        let at = self.clock.seconds(sent, began) + self.offset;
        let left = CYCLE - at.rem_euclid(CYCLE);
        let first = trial::time_of(self.random.f64());
        let Some(others) = &mut self.others else { return self.spacing(wait) };
        others.trial = None;
        let out_of_order = others.row > MOST_IN_A_ROW || seconds(others.since, sent) < TOO_LATE;
        if wait < left - CALM || out_of_order {
            return self.spacing(wait);
        }
        others.trial = Some(Trial { begins: sent + Duration::from_secs_f64(left), refused_at: None });
        self.spacing(left + first)
    }

    fn spacing(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds.max(self.floor))
    }
}

impl Others {
    fn unknown(now: Instant) -> Self {
        Self {
            readers: UNKNOWN,
            most: UNKNOWN,
            confirmed: false,
            longest: None,
            since: now,
            raised_at: now,
            row: 1,
            trial: None,
        }
    }

    /// The time between two reads, in seconds.
    fn interval(&self) -> f64 {
        let fair = self.readers / f64::from(READS_PER_SECOND);
        self.longest.map_or(fair, |longest| fair.min(longest))
    }

    /// A trial said that there are so many.
    fn learn(&mut self, found: f64) {
        let crowd_before = self.longest.is_some() && self.readers >= CROWD;
        let part = found / self.readers;
        self.readers = if !self.confirmed || part > MORE {
            found
        } else if part < LESS {
            // Few are refused late by chance: no more than one in four, or one of a few, is believed to have left.
            self.readers * part.max(if self.readers >= 3.5 { 0.76 } else { 0.45 })
        } else {
            WEIGHT.mul_add(found - self.readers, self.readers)
        };
        self.longest = Some(if crowd_before && self.readers >= CROWD { PUSHED } else { LONGEST });
        self.confirmed = found < trial::MANY && (LESS..MORE).contains(&part);
        self.most = self.readers * RAISE_MOST;
    }

    /// A refusal between trials: there are more than was known.
    fn refused(&mut self, now: Instant) {
        if seconds(self.raised_at, now) > RAISE_EVERY {
            self.raised_at = now;
            self.readers = (self.readers * RAISE).min(self.most);
        }
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(200);

    #[test]
    fn a_reader_that_was_refused_once_gets_through_a_trial_and_is_alone_again() {
        let mut share = Share::new(FLOOR, "shardId-000000000003", 1);
        let began = Instant::now();
        let mut now = began + share.refused(began).0;
        while share.others.is_some() {
            assert!(now - began < Duration::from_secs(90), "it takes one trial");
            now += share.accepted(now);
        }
        assert!(now - began > Duration::from_secs(20), "not before the trial is over");
        assert!((FLOOR..=FLOOR.mul_f64(1.05)).contains(&share.accepted(now)));
    }

    #[test]
    fn a_longer_interval_of_the_settings_stays_the_least() {
        let least = Duration::from_secs(2);
        let mut share = Share::new(least, "shardId-000000000003", 1);
        let mut now = Instant::now();
        for read in 0..200 {
            let spacing = if read % 3 == 0 { share.refused(now).0 } else { share.accepted(now) };
            assert!(spacing >= least, "{spacing:?}");
            now += spacing;
        }
    }

    #[test]
    fn a_shard_that_refuses_everything_gets_no_trials() {
        let mut share = Share::new(FLOOR, "shardId-000000000003", 1);
        let mut now = Instant::now();
        let answers: Vec<_> = (0..1_000)
            .map(|_| {
                let (spacing, is_all) = share.refused(now);
                now += spacing.max(Duration::from_secs(5));
                is_all
            })
            .collect();
        assert!(!answers.contains(&true), "delays grow with every refusal");
    }
}
