//! What goes wrong with calls to the store.

use std::time::Duration;

/// Of 100 calls or hand-overs, how many go wrong, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Work, but the reply is lost.
    pub(crate) lost_replies: u32,
    /// Never reach the store.
    pub(crate) lost_calls: u32,
    /// Reach the store after their caller has given up.
    pub(crate) late: u32,
    /// Are refused because there are too many.
    pub(crate) throttled: u32,
    /// Hand-overs that are not answered by the consumer.
    pub(crate) deaf: u32,
    /// Steps of a consumer that end in a rest of the shard; of 1,000.
    pub(crate) poison: u32,
    /// Listings that miss a shard.
    pub(crate) glitches: u32,
    /// Listings that fail.
    pub(crate) listings: u32,
    /// The longest way to the store, and the longest way back.
    pub(crate) latency: Duration,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        lost_replies: 0,
        lost_calls: 0,
        late: 0,
        throttled: 0,
        deaf: 0,
        poison: 0,
        glitches: 0,
        listings: 0,
        latency: Duration::from_millis(40),
    };
    /// Whether nothing at all goes wrong with calls and hand-overs.
    pub(super) fn are_none(&self) -> bool {
        let Self { lost_replies, lost_calls, late, throttled, deaf, glitches, listings, .. } = *self;
        lost_replies + lost_calls + late + throttled + deaf + glitches + listings == 0
            && self.latency <= Self::NONE.latency
    }
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    /// After what time the store sees it, if it does.
    pub(super) reach: Option<Duration>,
    /// How long the reply takes from there, if it comes at all.
    pub(super) reply: Option<Duration>,
    /// The store refuses it.
    pub(super) throttled: bool,
}
