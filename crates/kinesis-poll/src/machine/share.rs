//! This reader's share of the reads that a shard answers.
//!
//! All readers of a shard, of whatever application, share its reads, and none knows of the others. A reader that was
//! never refused is alone and reads at the full rate. One that is refused reads less, and takes part in the next
//! [`Count`], by which all readers of this kind learn at the same moment how many they are; from then on each reads its
//! part of what the shard allows. Refusals between counts come from somebody new: everybody gives way a little, and the
//! newcomer, who cannot know how many there are, reads as if there were five. Where that does not help, somebody gives
//! no way, and the reader [insists](Insist) on one read a second; now and then it takes part in a count to see whether it
//! still has to. An endpoint whose answers have no date allows no common moment: there, rates only grow slowly for
//! everybody and shrink by a part of their own for whoever is refused. The constants were found by simulation, and are no
//! settings: all readers of a shard must use the same. The README says what came of them.

use std::time::{Duration, Instant};

use super::clock::ServiceClock;
use super::count::{self, Count, Next};
use super::insist::Insist;

/// What a shard allows, in reads a second, and how much of it is used: without a rest, jitter alone would cause refusals.
const ALLOWED: f64 = 5.0;
const USED: f64 = 0.98;

/// The share of a reader that does not know how many there are, and the least after a refusal, in reads a second.
const LEAST: f64 = ALLOWED * USED / Count::MOST as f64;

/// How much of its rate a reader keeps when it is refused.
const CUT: f64 = 0.75;

/// Who is refused this soon after its first read is the newcomer.
const NEWCOMER: Duration = Duration::from_secs(10);

/// How much of the full rate is kept at the first refusal where readers cannot be counted.
const UNCOUNTED_CUT: f64 = 0.31;

/// By how much a rate of 1 read a second grows per second there, in reads a second; faster rates grow less.
const UNCOUNTED_GROWTH: f64 = 0.02;

/// So many reads refused at the least rate, and somebody gives no way: between five readers of this kind there are fewer.
/// They count from the second count on after one found five readers, when those that came have settled; half of them are
/// forgotten with each count.
const STRAYS: u32 = 4;
const SETTLED: u32 = 2;

/// So it is when so many of the last reads at the least rate are refused; after the first count, it takes more of them.
const MANY_REFUSED: u32 = 6;
const MANY_REFUSED_EARLY: u32 = 7;
const OF_READS: u32 = 12;

/// Where readers cannot be counted, it is so when so many of the last 32 reads below the full rate are refused.
const UNCOUNTED_REFUSED: u32 = 14;

/// How often a reader that insists takes part in a count, after which it insists again only if it has to; in every one
/// until two in a row have found five readers. Where readers cannot be counted, it looks anew after this time.
const RETRIAL: Duration = Duration::from_secs(120);

/// So many refusals are taken as seen already when a reader that insisted looks whether it has to.
const SUSPECTED: u32 = 2;

/// So many counts in a row that find fewer than five readers do not end insisting: beside a reader that gives no way,
/// counts err.
const DOUBTED: u32 = 2;

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
    clock: ServiceClock,
    count: Option<Count>,
    insist: Insist,
    /// Whether it insisted until this count.
    insisted: bool,
    /// Whether it ever insisted.
    insisted_once: bool,
    /// The last reads at the least rate, the newest one in the lowest bit; refused ones are set.
    recent: u32,
    /// The result of the last count.
    counted: Option<u32>,
    /// The same, if the count before came to it too.
    confirmed: Option<u32>,
    /// How many counts there were since one found as many readers as it can tell, that one included.
    since_most: u32,
    /// How many counts in a row found fewer.
    fewer: u32,
    /// Reads refused lately at the least rate, outside counts.
    strays: u32,
    at_tip: bool,
    refused_in_a_row: u32,
    began: Option<Instant>,
    /// When `rate` was true.
    at: Option<Instant>,
    random: fastrand::Rng,
}

/// When to read next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) at: Instant,
    /// Whether that holds after a refusal as well, in place of the delays after failures.
    pub(super) holds: bool,
}

impl Share {
    /// The share of a reader that reads at most once per `floor`.
    pub(super) fn new(floor: Duration, seed: u64) -> Self {
        let full = 1.0 / floor.as_secs_f64();
        Self {
            floor,
            full,
            rate: full,
            clock: ServiceClock::default(),
            count: None,
            insist: Insist::default(),
            insisted: false,
            insisted_once: false,
            recent: 0,
            counted: None,
            confirmed: None,
            since_most: 0,
            fewer: 0,
            strays: 0,
            at_tip: false,
            refused_in_a_row: 0,
            began: None,
            at: None,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The answer to a read, sent and received at these times, told the service's time in seconds.
    pub(super) fn heard(&mut self, sent: Instant, received: Instant, seconds: i64) {
        self.clock.heard(sent, received, seconds);
    }

    /// A read was answered. Who reads at the tip of the shard does so too seldom to have a part in counts.
    pub(super) fn accepted(&mut self, sent: Instant, at_tip: bool) -> Turn {
        self.at_tip = at_tip;
        if at_tip {
            (self.count, self.counted, self.confirmed) = (None, None, None);
            (self.insisted, self.insisted_once, self.since_most, self.strays) = (false, false, 0, 0);
            self.insist.end();
        }
        self.began.get_or_insert(sent);
        self.refused_in_a_row = 0;
        if !self.clock.is_known() && self.insist.since().is_some_and(|since| sent >= since + RETRIAL) {
            self.insist.end();
        }
        self.note(false);
        let due = self.insist.answered(sent).max(sent + self.floor);
        if self.insist.since().is_some() {
            return Turn { at: self.or_count(sent, due, self.retrial()), holds: true };
        }
        self.grow(sent);
        self.go_on(sent, false)
    }

    /// A read was refused because the shard's reads were used up.
    pub(super) fn refused(&mut self, sent: Instant) -> Turn {
        let began = *self.began.get_or_insert(sent);
        self.refused_in_a_row += 1;
        self.note(true);
        if self.insist.since().is_some() {
            let Turn { at, holds } = self.try_again(sent);
            return Turn { at: self.or_count(sent, at, self.retrial()), holds };
        }
        self.grow(sent);
        // What is refused in a row is refused for one reason.
        if self.count.is_none() && self.refused_in_a_row == 1 {
            self.rate = if self.rate < self.full {
                (self.rate * CUT).max(LEAST.min(self.rate))
            } else if !self.clock.is_known() {
                self.rate * UNCOUNTED_CUT
            } else if sent.saturating_duration_since(began) < NEWCOMER {
                LEAST.min(self.full)
            } else {
                self.rate * CUT
            };
        }
        self.go_on(sent, true)
    }

    fn go_on(&mut self, sent: Instant, refused: bool) -> Turn {
        match self.count.as_mut().map(|count| count.read(sent, refused, self.floor)) {
            Some(Next::Read(at)) => return Turn { at, holds: true },
            Some(Next::Readers(readers)) => self.take_count(sent, readers),
            Some(Next::Spoilt) if std::mem::take(&mut self.insisted) => self.insist.begin(sent),
            Some(Next::Spoilt) | None => {}
        }
        self.count = None;
        let many = if self.clock.is_known() {
            let most = if self.is_settled() { MANY_REFUSED } else { MANY_REFUSED_EARLY };
            (self.recent & ((1 << OF_READS) - 1)).count_ones() >= most
        } else {
            self.recent.count_ones() >= UNCOUNTED_REFUSED
        };
        if self.insist.since().is_none() && (many || self.strays >= STRAYS) {
            self.insist.begin(sent);
        }
        if self.insist.since().is_some() {
            (self.insisted_once, self.strays, self.recent) = (true, 0, 0);
            return self.try_again(sent);
        }
        let at = self.next(sent);
        // Who cannot be counted leaves it to the delays after failures when to read after a refusal.
        let uncounted = refused && !self.clock.is_known();
        // A delay would make the first read of a count late.
        Turn { at: if uncounted { sent + self.floor } else { at }, holds: self.count.is_some() }
    }

    /// The next read of a reader that insists, after a refusal.
    fn try_again(&self, sent: Instant) -> Turn {
        let at = self.insist.refused(sent).max(sent + self.floor);
        Turn { at, holds: self.insist.is_of_use(sent) }
    }

    /// A count found this many readers.
    fn take_count(&mut self, sent: Instant, found: u32) {
        let insisted = std::mem::take(&mut self.insisted);
        let fewer = if found < Count::MOST { self.fewer + 1 } else { 0 };
        let before = std::mem::replace(&mut self.fewer, fewer);
        // After several counts that found fewer, somebody has come; unless somebody was there that gave no way.
        self.since_most = match self.since_most {
            _ if found == 1 => 0,
            since if found == Count::MOST && (since == 0 || before >= DOUBTED && !self.insisted_once) => 1,
            0 => 0,
            since => since + 1,
        };
        // Who comes or goes during a count makes it wrong for some, and so does a reader that gives no way; a step at a
        // time, that does little harm.
        let before = if insisted { self.counted } else { self.confirmed };
        let readers = before.map_or(found, |before| found.max(before - 1));
        self.confirmed = self.counted.replace(readers).filter(|before| *before == readers);
        let share = ALLOWED * USED / f64::from(readers);
        self.rate = if readers == 1 { self.full } else { share.min(self.full) };
        self.strays = match insisted {
            _ if !self.is_settled() => 0,
            true => SUSPECTED,
            false => self.strays / 2,
        };
        if insisted && self.since_most > 0 && (1..=DOUBTED).contains(&self.fewer) {
            self.insist.begin(sent);
        }
    }

    /// The next read at this rate, or the first one of a count.
    fn next(&mut self, sent: Instant) -> Instant {
        let due = sent + self.spacing();
        if self.rate < self.full { self.or_count(sent, due, count::PERIOD) } else { due }
    }

    /// How often a reader that insists takes part in a count.
    fn retrial(&self) -> Duration {
        if self.confirmed == Some(Count::MOST) { RETRIAL } else { count::PERIOD }
    }

    /// `due`, or the first read of a count if one of those that begin once per `period` begins before.
    fn or_count(&mut self, sent: Instant, due: Instant, period: Duration) -> Instant {
        let next = self.clock.next_multiple(sent, period).filter(|_| !self.at_tip);
        let Some(start) = next.filter(|start| due + count::QUIET > *start) else { return due };
        let start = start.max(sent + self.floor);
        self.count = Some(Count::new(start));
        if self.insist.end() {
            self.insisted = true;
            self.recent = (1 << SUSPECTED) - 1;
        }
        start
    }

    /// The time from one read to the next.
    fn spacing(&mut self) -> Duration {
        let random = self.random.f64();
        if self.rate >= self.full {
            return self.floor.mul_f64(FULL_RATE_JITTER.mul_add(random, 1.0));
        }
        Duration::from_secs_f64(JITTER.mul_add(random - 0.5, 1.0) / self.rate).max(self.floor)
    }

    /// Looks for a reader that gives no way.
    fn note(&mut self, refused: bool) {
        if self.insist.since().is_some() {
            return;
        }
        // Before the first count, and at a higher rate, others may still be about to give way.
        let early = if self.clock.is_known() {
            self.rate > LEAST || self.counted.is_none()
        } else {
            self.rate >= self.full
        };
        if early {
            self.recent = 0;
            return;
        }
        let settled = self.is_settled();
        if self.count.is_none() || settled {
            self.recent = self.recent << 1 | u32::from(refused);
        }
        // Among readers of this kind, each is refused in a count.
        if self.count.is_none() && settled {
            self.strays += u32::from(refused);
        }
    }

    /// Whether those that came have settled, so that refusals mean something; who insisted once knows it anyway.
    fn is_settled(&self) -> bool {
        self.insisted_once || self.since_most >= SETTLED
    }

    /// Where readers cannot be counted, only trying tells whether more can be had.
    fn grow(&mut self, now: Instant) {
        let passed = self.at.replace(now).map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        if self.rate < self.full && !self.clock.is_known() {
            self.rate = (self.rate + UNCOUNTED_GROWTH / self.rate * passed).min(self.full);
        }
    }
}
