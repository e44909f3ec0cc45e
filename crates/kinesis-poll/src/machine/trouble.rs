//! Failures in a row: how long to wait, when to say so, when to give up.

use std::time::{Duration, Instant};

use kinesis_core::backoff::Backoff;

use crate::PollConfig;

/// One episode of failures; over with the next page.
#[derive(Debug)]
pub(super) struct Trouble {
    backoff: Backoff,
    degraded_after: Duration,
    since: Option<Instant>,
    announced: bool,
    retry_at: Option<Instant>,
    /// Failed calls that count towards giving up.
    pub(super) failures: u32,
    /// Denied calls.
    pub(super) denials: u32,
    /// Expired iterators.
    pub(super) expiries: u32,
    /// Iterators that were refused as such.
    pub(super) bad_iterators: u32,
}

impl Trouble {
    pub(super) fn new(config: &PollConfig, seed: u64) -> Self {
        Self {
            backoff: Backoff::new(config.backoff(), seed),
            degraded_after: config.degraded_after,
            since: None,
            announced: false,
            retry_at: None,
            failures: 0,
            denials: 0,
            expiries: 0,
            bad_iterators: 0,
        }
    }

    /// A call failed and is tried again after a longer delay than the last.
    pub(super) fn retry(&mut self, now: Instant) {
        self.retry_at = Some(now + self.backoff.next_delay());
    }

    /// A call failed as was to be expected: it is tried again without a delay of its own.
    pub(super) fn retry_in_turn(&mut self) {
        self.retry_at = None;
    }

    /// Whether this failure is the moment to say that reading does not get on: once per episode.
    pub(super) fn announce(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let announce = !self.announced && now.saturating_duration_since(since) >= self.degraded_after;
        self.announced |= announce;
        announce
    }

    /// When the failed call may be tried again; `None`: at once.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// A page came: the episode is over. Whether it had been said.
    pub(super) fn end(&mut self) -> bool {
        self.backoff.reset();
        self.since = None;
        self.retry_at = None;
        self.failures = 0;
        self.denials = 0;
        self.expiries = 0;
        self.bad_iterators = 0;
        std::mem::take(&mut self.announced)
    }
}
