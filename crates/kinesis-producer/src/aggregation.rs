//! Which records share an aggregate.

/// Whether records are packed into aggregates of the KPL's format, and which records share one.
///
/// An aggregate is stored as a whole, in the shard of its first record. Readers that check hash keys (the Java KCL, and
/// with it AWS Lambda on enhanced fan-out) drop the records of an aggregate that belong to another shard; the KCL drops
/// the whole aggregate. Which records may share one is therefore the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Aggregation {
    /// Each record is sent as it is.
    #[default]
    Off,
    /// Records of one shard share an aggregate. Needs the permission `kinesis:ListShards`: the shards are listed when
    /// the first record is put, and again when the service stores a record in another shard than was expected.
    ///
    /// While the shards are not known (the listing fails or is denied, a reshard is under way), and on streams that
    /// distribute records by themselves (`AUTO`), records are packed as with `ByKey`. That a stream does so is seen from
    /// where its records land; a producer that has seen it stays with it.
    ByShard,
    /// Records share an aggregate only when they have the same partition key and explicit hash key. Safe whatever the
    /// shards look like, and needs no permission; gains nothing where keys do not repeat.
    ByKey,
    /// All records share an aggregate, which goes where its first record belongs.
    ///
    /// For readers that do not check hash keys only, as `kinesis-consumer` does not by default: **others lose records**.
    /// Records of one key are no longer in one shard, so that nothing is left of their order for readers, and calls follow
    /// each other one by one.
    FirstKey,
}

/// What becomes of the records of an aggregate that was stored in a shard where not all of them belong, because the
/// stream was resharded since the shards were listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Misplaced {
    /// They are packed anew and sent again, all of them: the KCL drops such an aggregate as a whole. Readers that drop
    /// nothing see the records twice.
    #[default]
    SendAgain,
    /// They count as stored. For readers that drop nothing, as `kinesis-consumer` does by default: no duplicates.
    Accept,
}
