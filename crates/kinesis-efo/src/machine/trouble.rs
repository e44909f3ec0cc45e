//! Failures in a row: how long to wait, when to say so, when to give up.

use std::time::{Duration, Instant};

use super::delays::Ladder;
use crate::EfoConfig;

/// One episode of failures; over with the next event.
#[derive(Debug)]
pub(super) struct Trouble {
    ladder: Ladder,
    /// Of subscriptions that another reader took over.
    taken: Ladder,
    degraded_after: Duration,
    contended_after: Duration,
    since: Option<Instant>,
    announced: bool,
    /// It was said that others take the shard over again and again, which more events do not end.
    contested: bool,
    /// Failures that count towards giving up.
    pub(super) failures: u32,
    /// Denied calls.
    pub(super) denials: u32,
    /// Calls for something that does not exist.
    pub(super) missing: u32,
}

impl Trouble {
    pub(super) fn new(config: &EfoConfig) -> Self {
        Self {
            ladder: Ladder::new(config.max_resubscribe_interval),
            taken: Ladder::new(config.max_resubscribe_interval),
            degraded_after: config.degraded_after,
            contended_after: config.max_resubscribe_interval,
            since: None,
            announced: false,
            contested: false,
            failures: 0,
            denials: 0,
            missing: 0,
        }
    }

    /// Something failed: the delay, without jitter.
    pub(super) fn failed(&mut self) -> Duration {
        self.ladder.climb()
    }

    /// Another reader took a subscription over that had lived for so long: the delay, without jitter. Events do not
    /// start these delays over, or two readers would take a shard from each other for ever, each getting a few.
    pub(super) fn taken_over(&mut self, lived: Duration) -> Duration {
        if lived > self.contended_after {
            self.taken.reset();
        }
        self.taken.climb()
    }

    /// Whether this is the moment to say that reading does not get on: once per episode. `contended`: because another
    /// reader has the shard, as in a hand-over.
    pub(super) fn announce(&mut self, now: Instant, contended: bool) -> bool {
        let since = *self.since.get_or_insert(now);
        let after = if contended { self.contended_after } else { self.degraded_after };
        let announce = !self.announced && !self.contested && now.saturating_duration_since(since) >= after;
        self.announced |= announce;
        announce
    }

    /// Whether this is the moment to say that others take the shard over again and again: once, when the delays
    /// between have grown to the longest.
    pub(super) fn announce_take_overs(&mut self) -> bool {
        let announce = self.taken.is_high() && !self.contested && !self.announced;
        self.contested |= self.taken.is_high();
        announce
    }

    /// An event came, from a subscription that has lived for so long: the episode is over, but that of take-overs only
    /// if it lived for long enough. Whether that is news.
    pub(super) fn end(&mut self, lived: Duration) -> bool {
        let said = self.announced || self.contested;
        self.announced = false;
        self.contested &= lived <= self.contended_after;
        self.ladder.reset();
        self.since = None;
        self.failures = 0;
        self.denials = 0;
        self.missing = 0;
        said && !self.contested
    }
}
