//! The settings of an aggregator.

use kinesis_core::HashKeyRange;

/// The default size limit of an aggregate in bytes: 50 KiB, the KPL's `AggregationMaxSize`.
///
/// Kinesis meters in units of 25 KB for puts and reads, and readers decode an aggregate as a whole; larger ones gain
/// little (<https://docs.aws.amazon.com/streams/latest/dev/kinesis-kpl-config.html>).
pub const DEFAULT_MAX_BYTES: usize = 51_200;

/// The default limit of user records in an aggregate: the KPL's `AggregationMaxCount`, in effect none.
pub const DEFAULT_MAX_RECORDS: usize = u32::MAX as usize;

/// The smallest size limit that can be set, as in the KPL.
pub const MIN_BYTES_LIMIT: usize = 64;

/// The largest size limit that can be set: what the service takes as one record where the stream allows it, 10 MiB
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html>).
pub const MAX_BYTES_LIMIT: usize = 10 * 1024 * 1024;

/// Which partition key the aggregate gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OuterKey {
    /// That of its first user record, with that record's explicit hash key if it has one.
    #[default]
    First,
    /// `a`, with the hash key of the first user record as explicit hash key: what the KPL does.
    Kpl,
}

/// What becomes of an aggregate with a single user record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Lone {
    /// The record itself, without a frame: smaller, and any reader can read it. A record with tags is framed all
    /// the same, as a plain one cannot carry them.
    #[default]
    Unframed,
    /// An aggregate of one.
    Framed,
}

/// What counts against the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SizeRule {
    /// The aggregate and its partition key: what the service counts.
    #[default]
    WithPartitionKey,
    /// The aggregate only.
    PayloadOnly,
}

/// Whether user records with different partition keys may share an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum KeyMode {
    /// They may.
    #[default]
    Mixed,
    /// They may not: safe with readers that drop what lies outside their shard, whatever the shards look like.
    Same,
}

/// The settings of an [`Aggregator`](crate::Aggregator).
///
/// ```
/// use kinesis_kpl::{Aggregator, AggregatorConfig, KeyMode};
///
/// let config = AggregatorConfig::default().max_bytes(1 << 20).key_mode(KeyMode::Same);
/// let aggregator = Aggregator::new(config)?;
///
/// let error = Aggregator::new(config.max_records(0)).unwrap_err();
/// assert_eq!(error.field(), "max_records");
/// # Ok::<(), kinesis_kpl::InvalidConfig>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct AggregatorConfig {
    /// The size limit in bytes, from [`MIN_BYTES_LIMIT`] to [`MAX_BYTES_LIMIT`]; default [`DEFAULT_MAX_BYTES`].
    pub max_bytes: usize,
    /// The limit of user records, at least 1; default [`DEFAULT_MAX_RECORDS`].
    pub max_records: usize,
    /// What counts against the size limit.
    pub size_rule: SizeRule,
    /// Which partition key the aggregate gets.
    pub outer_key: OuterKey,
    /// What becomes of an aggregate with a single user record.
    pub lone: Lone,
    /// Whether user records with different partition keys may share an aggregate.
    pub key_mode: KeyMode,
    /// The range of the shard that the aggregate is for: records outside of it are refused. Not part of a
    /// configuration file.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub range: Option<HashKeyRange>,
}

impl Default for AggregatorConfig {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            max_records: DEFAULT_MAX_RECORDS,
            size_rule: SizeRule::default(),
            outer_key: OuterKey::default(),
            lone: Lone::default(),
            key_mode: KeyMode::default(),
            range: None,
        }
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub const fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl AggregatorConfig {
    setters! {
        max_bytes: usize,
        max_records: usize,
        size_rule: SizeRule,
        outer_key: OuterKey,
        lone: Lone,
        key_mode: KeyMode,
        range: Option<HashKeyRange>,
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`InvalidConfig`] that names the first field out of its range.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        if !(MIN_BYTES_LIMIT..=MAX_BYTES_LIMIT).contains(&self.max_bytes) {
            return Err(InvalidConfig { field: "max_bytes", problem: "must be from 64 to 10485760 bytes" });
        }
        if self.max_records == 0 {
            return Err(InvalidConfig { field: "max_records", problem: "must be at least 1" });
        }
        Ok(())
    }
}

/// A setting out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid aggregator setting `{field}`: {problem}")]
pub struct InvalidConfig {
    field: &'static str,
    problem: &'static str,
}

impl InvalidConfig {
    /// The field.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// Never: the same settings are refused again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}
