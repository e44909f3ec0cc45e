//! What the runs went through: a simulation that never meets a fault proves nothing.

use std::fmt;

macro_rules! coverage {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// How often each thing happened.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Coverage {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Coverage {
            /// Each row with its number.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!($($doc),+).trim_matches([' ', '.']), self.$name),)+]
            }

            /// Adds another run's numbers.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

coverage! {
    /// Tenures.
    tenures,
    /// Steals of expired leases.
    steals,
    /// Steals from holders that did not answer.
    overdue_steals,
    /// Refused writes.
    refusals,
    /// Lost calls.
    lost_calls,
    /// Lost replies.
    lost_replies,
    /// Replies that came too late.
    late_replies,
    /// Throttled calls.
    throttled,
    /// Tenures that expired for their holder.
    expiries,
    /// Pauses beyond the expiry.
    long_pauses,
    /// Workers cut off from the store.
    cuts,
    /// Crashes.
    crashes,
    /// Clean stops.
    stops,
    /// Workers that joined.
    joins,
    /// Splits.
    splits,
    /// Merges.
    merges,
    /// Merges whose parents ended on two workers.
    merges_across_workers,
    /// Hand-overs asked for.
    hand_overs,
    /// Hand-overs cut short.
    cut_short,
    /// Releases with a rest.
    rests,
    /// Ends of shards.
    ends,
    /// Shards that outlived their retention unread.
    gone,
    /// Leases of finished shards that were removed.
    collected,
    /// Listings that missed a shard.
    glitches,
    /// Listings that failed.
    failed_listings,
    /// Starts at the tip that came half-way.
    half_starts,
    /// Stops right after a lease was asked for or taken.
    hasty_stops,
    /// Takings recognised although their reply was lost.
    recognised,
    /// Heartbeats of whole workers.
    beats,
    /// Workers stopped while their heartbeat was on its way.
    dozed,
    /// Answers that came to stopped workers.
    late_answers,
    /// Rows of dead workers that were removed.
    workers_removed,
    /// Leases asked for because of their load.
    load_moves,
    /// Workers that share by numbers beside others that share by load.
    unaware,
    /// Calm ends in which the loads were within the band.
    weighed,
    /// Calm ends in which every shard had an owner, evenly.
    balanced,
}

impl Coverage {
    /// The rows that never happened.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.rows().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.rows() {
            writeln!(f, "{count:>12}  {name}")?;
        }
        Ok(())
    }
}
