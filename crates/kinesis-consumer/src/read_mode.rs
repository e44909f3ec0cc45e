//! How shards are read.

/// How shards are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ReadMode {
    /// With GetRecords, sharing each shard's 5 reads a second with every other reader. Needs the feature `poll`.
    #[default]
    Poll,
    /// With SubscribeToShard: records are pushed to a registered consumer. Without one the consumer does not start.
    EnhancedFanOut,
    /// With SubscribeToShard, and with GetRecords for as long as that is not to be had: the stream takes no further
    /// consumer, or a permission is missing. Needs the feature `poll` too.
    EnhancedFanOutOrPoll,
}
