//! When the next GetRecords may go out.

use std::time::{Duration, Instant};

use kinesis_core::Timestamp;

use super::share::{Share, Turn};
use crate::PollConfig;

/// When the GetRecords of one shard go out, counted from one sending to the next.
#[derive(Debug)]
pub(super) struct Pace {
    floor: Duration,
    idle: Duration,
    period: Duration,
    share: Share,
    sent_at: Option<Instant>,
    due: Option<Instant>,
}

impl Pace {
    pub(super) fn new(config: &PollConfig, seed: u64) -> Self {
        Self {
            floor: config.floor(),
            idle: config.idle_interval,
            period: config.poll_period,
            share: Share::new(config.floor(), seed),
            sent_at: None,
            due: None,
        }
    }

    /// A GetRecords goes out. Until its answer says more, the next one is due as if reading were behind.
    pub(super) fn sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
        self.due = Some(now + self.floor.max(self.period));
    }

    /// The answer told the service's time.
    pub(super) fn heard(&mut self, now: Instant, time: Timestamp) {
        self.share.heard(self.sent_at.unwrap_or(now), now, time.as_millis().div_euclid(1_000));
    }

    /// The answer came: whether it reaches the tip of the shard.
    pub(super) fn answered(&mut self, now: Instant, caught_up: bool) {
        let sent = self.sent_at.unwrap_or(now);
        let mut due = self.share.accepted(sent, caught_up).at.max(sent + self.period);
        if caught_up {
            due = due.max(sent + self.idle);
        }
        self.due = Some(due);
    }

    /// The shard refused, because its reads were used up. Whether that was to be expected, and the next one is due in its
    /// turn; otherwise, when to try again is for the delays after failures to say.
    pub(super) fn refused(&mut self, now: Instant) -> bool {
        let sent = self.sent_at.unwrap_or(now);
        let Turn { at, holds } = self.share.refused(sent);
        self.due = Some(at.max(sent + self.period));
        holds
    }

    /// The last GetRecords brought nothing because its iterator had expired: it does not count as the poll of its
    /// period. A new iterator left waiting for a long period would expire as well.
    pub(super) fn reopen(&mut self) {
        self.due = self.sent_at.map(|sent| sent + self.floor);
    }

    /// When the next GetRecords may go out; `None`: at once.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        self.due
    }
}
