//! Hash keys: where the service puts a record.

use kinesis_core::{HashKey, InvalidHashKey};

/// The hash key that the service computes for a partition key: its MD5, read as a big-endian number.
///
/// ```
/// assert_eq!(kinesis_kpl::hash_key("a").to_string(), "16955237001963240173058271559858726497");
/// ```
#[must_use]
pub fn hash_key(partition_key: &str) -> HashKey {
    HashKey::new(u128::from_be_bytes(crate::md5::digest(partition_key.as_bytes())))
}

/// The hash key that decides about a record's shard: the explicit one if it has one, else that of its partition key.
///
/// An explicit hash key is normalised as the KPL does: `007` is 7.
///
/// # Errors
/// [`InvalidHashKey`] when the explicit hash key is not a decimal number from 0 to 2^128 - 1.
pub fn effective_hash_key(partition_key: &str, explicit: Option<&str>) -> Result<HashKey, InvalidHashKey> {
    explicit.map_or_else(|| Ok(hash_key(partition_key)), str::parse)
}
