#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod aggregate;
mod aggregator;
mod config;
mod deaggregate;
mod filter;
mod hash;
mod index;
mod key_table;
mod keys;
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod lambda;
pub mod md5;
mod nested;
mod packed;
mod reason;
mod record;
mod shard_map;
mod wire;

pub use aggregate::{Aggregate, IntoRecords, RecordView, Records, TagView, Tags};
pub use aggregator::{Aggregator, Refusal, Refused};
pub use config::{
    AggregatorConfig, DEFAULT_MAX_BYTES, DEFAULT_MAX_RECORDS, InvalidConfig, KeyMode, Lone, MAX_BYTES_LIMIT,
    MIN_BYTES_LIMIT, OuterKey, SizeRule,
};
pub use deaggregate::{
    Checksum, Deaggregated, Deaggregator, InvalidAggregate, Strictness, deaggregate, is_aggregated,
};
pub use filter::{FilterReport, RangeFilter};
pub use hash::{effective_hash_key, hash_key};
pub use keys::{PartitionKeyMismatch, check_same_key, group_by_key};
pub use nested::{Nested, unnest};
pub use packed::Packed;
pub use reason::Reason;
pub use record::{ExplicitHashKey, RecordRef, ToRecordRef, UserRecord};
pub use shard_map::{OverlappingRanges, ShardMap};
pub use wire::{DIGEST_LEN, FRAME_LEN, MAGIC, MAX_NESTING};
