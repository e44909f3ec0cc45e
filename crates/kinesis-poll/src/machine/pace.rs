//! When the next GetRecords may go out.

use std::time::{Duration, Instant};

use super::share::Share;
use crate::PollConfig;

/// The spacing of the GetRecords of one shard, from one sending to the next.
#[derive(Debug)]
pub(super) struct Pace {
    floor: Duration,
    idle: Duration,
    period: Duration,
    share: Share,
    sent_at: Option<Instant>,
    spacing: Duration,
}

impl Pace {
    pub(super) fn new(config: &PollConfig, seed: u64) -> Self {
        Self {
            floor: config.floor(),
            idle: config.idle_interval,
            period: config.poll_period,
            share: Share::new(config.floor(), seed),
            sent_at: None,
            spacing: Duration::ZERO,
        }
    }

    /// A GetRecords goes out. Until its answer says more, the next one is due as if reading were behind.
    pub(super) fn sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
        self.spacing = self.floor.max(self.period);
    }

    /// The answer came: whether it reaches the tip of the shard.
    pub(super) fn answered(&mut self, now: Instant, caught_up: bool) {
        self.share.accepted(now);
        let least = self.share.spacing().max(self.period);
        self.spacing = if caught_up { least.max(self.idle) } else { least };
    }

    /// The shard refused, because its reads were used up. When to try again is for the delays after failures to say.
    pub(super) fn refused(&mut self, now: Instant) {
        self.share.refused(now);
    }

    /// The last GetRecords brought nothing because its iterator had expired: it does not count as the poll of its
    /// period. A new iterator left waiting for a long period would expire as well.
    pub(super) fn reopen(&mut self) {
        self.spacing = self.floor;
    }

    /// When the next GetRecords may go out; `None`: at once.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        self.sent_at.map(|sent| sent + self.spacing)
    }
}
