//! The messages as prost reads and writes them: another implementation to compare with.

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AggregatedRecord {
    #[prost(string, repeated, tag = "1")]
    pub(crate) partition_key_table: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) explicit_hash_key_table: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) records: Vec<Record>,
}

/// The required fields are optional here, so that their absence can be seen and written.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Record {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) partition_key_index: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) explicit_hash_key_index: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) data: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) tags: Vec<Tag>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Tag {
    #[prost(string, optional, tag = "1")]
    pub(crate) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) value: Option<String>,
}
