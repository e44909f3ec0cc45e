//! Partition-key safety: batches of one key only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A batch that must have one partition key has several.
///
/// It names the place of the first record that differs, not the keys: those are data of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("partition key mismatch: record {position} has another partition key than record 0")]
#[non_exhaustive]
pub struct PartitionKeyMismatch {
    /// The place of the first record with another key, from 0.
    pub position: usize,
}

impl PartitionKeyMismatch {
    /// Never: the same batch is refused again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Checks that all records of a batch have the same partition key; an empty batch has.
///
/// Readers that check hash ranges drop records of an aggregate that lie outside the shard: the KCL, and with it
/// Lambda's enhanced fan-out path. A batch of one key cannot be torn that way, whatever the shards look like.
/// [`group_by_key`] makes such batches.
///
/// # Errors
/// [`PartitionKeyMismatch`] with the place of the first record that differs.
pub fn check_same_key<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<(), PartitionKeyMismatch> {
    let mut keys = keys.into_iter().enumerate();
    let Some((_, first)) = keys.next() else { return Ok(()) };
    match keys.find(|(_, key)| *key != first) {
        Some((position, _)) => Err(PartitionKeyMismatch { position }),
        None => Ok(()),
    }
}

/// Splits records into batches of one partition key each: batches in order of the key's first use, records in their
/// order.
///
/// ```
/// use kinesis_kpl::{check_same_key, group_by_key};
///
/// let flights = [("CDG", 1), ("JFK", 2), ("CDG", 3)];
/// let batches = group_by_key(flights, |flight| flight.0);
///
/// assert_eq!(batches, [vec![("CDG", 1), ("CDG", 3)], vec![("JFK", 2)]]);
/// for batch in &batches {
///     check_same_key(batch.iter().map(|flight| flight.0))?; // and now it can be sent
/// }
/// # Ok::<(), kinesis_kpl::PartitionKeyMismatch>(())
/// ```
pub fn group_by_key<R, K>(records: impl IntoIterator<Item = R>, key: impl Fn(&R) -> K) -> Vec<Vec<R>>
where
    K: std::hash::Hash + Eq,
{
    let mut batches: Vec<Vec<R>> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for record in records {
        match places.entry(key(&record)) {
            Entry::Occupied(place) => batches[*place.get()].push(record),
            Entry::Vacant(place) => {
                place.insert(batches.len());
                batches.push(vec![record]);
            }
        }
    }
    batches
}
