//! Where a record lies in its shard, and where reading starts.

use std::fmt;

use crate::{SequenceNumber, Timestamp};

/// The place of a user record in its shard: the sequence number of its Kinesis record, and its place inside an
/// aggregate (0 for plain records).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position {
    sequence: SequenceNumber,
    sub_sequence: u64,
}

impl Position {
    /// A place inside an aggregate, counted from 0.
    #[must_use]
    pub const fn new(sequence: SequenceNumber, sub_sequence: u64) -> Self {
        Self { sequence, sub_sequence }
    }

    /// The sequence number of the Kinesis record.
    #[must_use]
    pub const fn sequence(&self) -> &SequenceNumber {
        &self.sequence
    }

    /// The place inside an aggregate, from 0; 0 for plain records.
    #[must_use]
    pub const fn sub_sequence(&self) -> u64 {
        self.sub_sequence
    }
}

impl From<SequenceNumber> for Position {
    fn from(sequence: SequenceNumber) -> Self {
        Self { sequence, sub_sequence: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sequence)?;
        if self.sub_sequence > 0 { write!(f, "/{}", self.sub_sequence) } else { Ok(()) }
    }
}

/// Where reading a shard starts when nothing is stored for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", tag = "type")
)]
#[non_exhaustive]
pub enum StartPosition {
    /// The oldest record that the stream still has.
    #[default]
    TrimHorizon,
    /// Only what is written from now on.
    Latest,
    /// The first record that arrived at or after this time.
    AtTimestamp {
        /// The time.
        timestamp: Timestamp,
    },
    /// The record with this sequence number.
    AtSequenceNumber {
        /// The sequence number.
        sequence: SequenceNumber,
    },
    /// The record after the one with this sequence number.
    AfterSequenceNumber {
        /// The sequence number.
        sequence: SequenceNumber,
    },
}

impl fmt::Display for StartPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrimHorizon => f.write_str("trim horizon"),
            Self::Latest => f.write_str("latest"),
            Self::AtTimestamp { timestamp } => write!(f, "at {timestamp}"),
            Self::AtSequenceNumber { sequence } => write!(f, "at {sequence}"),
            Self::AfterSequenceNumber { sequence } => write!(f, "after {sequence}"),
        }
    }
}

/// What is stored for a shard: how far its records are finished, or where it starts.
///
/// Ordered as the KCL orders its sentinels: `AtTimestamp < TrimHorizon < Latest < At(..) < ShardEnd`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Checkpoint {
    /// Nothing finished; start at the time kept beside it (the lease's anchor) or in the configuration.
    AtTimestamp,
    /// Nothing finished; start at the oldest record.
    TrimHorizon,
    /// Nothing finished; start at the tip, as it was when the lease was made (the lease's anchor).
    Latest,
    /// Everything up to and including this place is finished.
    At(Position),
    /// The shard is closed and everything in it is finished.
    ShardEnd,
}

impl Checkpoint {
    /// The finished place, unless this is a sentinel.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::At(position) => Some(position),
            _ => None,
        }
    }

    /// Whether the whole shard is finished.
    #[must_use]
    pub fn is_shard_end(&self) -> bool {
        *self == Self::ShardEnd
    }
}

impl fmt::Display for Checkpoint {
    /// The KCL's words for the sentinels, digits (and `/sub`) for a place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtTimestamp => f.write_str("AT_TIMESTAMP"),
            Self::TrimHorizon => f.write_str("TRIM_HORIZON"),
            Self::Latest => f.write_str("LATEST"),
            Self::At(position) => position.fmt(f),
            Self::ShardEnd => f.write_str("SHARD_END"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_ordered_as_the_kcl_orders_them() {
        let at = |n: u128, sub| Checkpoint::At(Position::new(n.into(), sub));
        let order = [
            Checkpoint::AtTimestamp,
            Checkpoint::TrimHorizon,
            Checkpoint::Latest,
            at(9, 0),
            at(9, 7),
            at(10, 0),
            Checkpoint::ShardEnd,
        ];
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// C-04: the end of a shard is a mark of its own, not the trim horizon.
    #[test]
    fn the_end_of_a_shard_is_a_mark_of_its_own() {
        assert!(Checkpoint::ShardEnd.is_shard_end());
        assert!(!Checkpoint::TrimHorizon.is_shard_end());
        assert_eq!(Checkpoint::ShardEnd.to_string(), "SHARD_END");
    }
}
