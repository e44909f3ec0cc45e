//! Which shard a record goes to.

use kinesis_core::{HashKey, HashKeyRange};

/// Two shards of a [`ShardMap`] share hash keys. Leave closed shards out: their ranges belong to their children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("hash key ranges overlap: {first} and {second}")]
#[non_exhaustive]
pub struct OverlappingRanges {
    /// The range that starts lower.
    pub first: HashKeyRange,
    /// The range that starts inside it.
    pub second: HashKeyRange,
}

impl OverlappingRanges {
    /// Never for the same list of shards; a fresh list may be right.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The open shards of a stream by hash key range, for O(log n) look-ups.
///
/// `S` is whatever names a shard, for example `kinesis_core::ShardId`.
///
/// ```
/// use kinesis_core::{HashKey, HashKeyRange};
/// use kinesis_kpl::ShardMap;
///
/// let half = HashKey::new(1 << 127);
/// let low = HashKeyRange::new(HashKey::MIN, HashKey::new((1 << 127) - 1)).unwrap();
/// let high = HashKeyRange::new(half, HashKey::MAX).unwrap();
/// let map = ShardMap::new([(high, "shard 1"), (low, "shard 0")])?;
///
/// assert_eq!(map.shard_of("a", None), Some(&"shard 0"));
/// assert_eq!(map.shard_of("a", Some(half)), Some(&"shard 1"));
/// # Ok::<(), kinesis_kpl::OverlappingRanges>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMap<S> {
    /// Sorted by range; the ranges do not overlap, so their ends are sorted too.
    shards: Vec<(HashKeyRange, S)>,
}

impl<S> ShardMap<S> {
    /// Makes a map from the open shards, in any order. Gaps are legal: a look-up there finds nothing.
    ///
    /// # Errors
    /// [`OverlappingRanges`] when two ranges share a hash key.
    pub fn new(shards: impl IntoIterator<Item = (HashKeyRange, S)>) -> Result<Self, OverlappingRanges> {
        let mut shards: Vec<_> = shards.into_iter().collect();
        shards.sort_by_key(|(range, _)| *range);
        for pair in shards.windows(2) {
            let (first, second) = (pair[0].0, pair[1].0);
            if first.end() >= second.start() {
                return Err(OverlappingRanges { first, second });
            }
        }
        Ok(Self { shards })
    }

    /// The shard that holds `key`, with its range.
    #[must_use]
    pub fn lookup(&self, key: HashKey) -> Option<(HashKeyRange, &S)> {
        let at = self.shards.partition_point(|(range, _)| range.end() < key);
        self.shards.get(at).filter(|(range, _)| range.contains(key)).map(|(range, shard)| (*range, shard))
    }

    /// The shard that a record goes to.
    #[must_use]
    pub fn shard_of(&self, partition_key: &str, explicit: Option<HashKey>) -> Option<&S> {
        let key = explicit.unwrap_or_else(|| crate::hash_key(partition_key));
        self.lookup(key).map(|(_, shard)| shard)
    }

    /// Whether every hash key belongs to a shard. A list taken while shards split may have holes.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let mut next = Some(HashKey::MIN);
        for (range, _) in &self.shards {
            if next != Some(range.start()) {
                return false;
            }
            next = range.end().get().checked_add(1).map(HashKey::new);
        }
        next.is_none()
    }

    /// All shards, by ascending hash key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (HashKeyRange, &S)> {
        self.shards.iter().map(|(range, shard)| (*range, shard))
    }

    /// How many shards there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether there is no shard at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u128, end: u128) -> HashKeyRange {
        HashKeyRange::new(HashKey::new(start), HashKey::new(end)).unwrap()
    }

    #[test]
    fn both_ends_of_a_range_are_found_and_gaps_are_not() {
        let map =
            ShardMap::new([(range(20, 29), 'b'), (range(0, 9), 'a'), (range(30, u128::MAX), 'c')]).unwrap();
        let at = |key| map.lookup(HashKey::new(key)).map(|(_, shard)| *shard);
        assert_eq!(
            [0, 9, 10, 19, 20, 29, 30].map(at),
            [Some('a'), Some('a'), None, None, Some('b'), Some('b'), Some('c')]
        );
        assert_eq!(at(u128::MAX), Some('c'));
        assert!(!map.is_complete());
        assert_eq!(map.iter().map(|(_, shard)| *shard).collect::<String>(), "abc");
    }

    #[test]
    fn a_map_is_complete_when_it_covers_everything() {
        assert!(ShardMap::new([(range(0, 4), 0), (range(5, u128::MAX), 1)]).unwrap().is_complete());
        assert!(!ShardMap::new([(range(0, 4), 0), (range(5, u128::MAX - 1), 1)]).unwrap().is_complete());
        assert!(!ShardMap::<()>::new([]).unwrap().is_complete());
    }

    #[test]
    fn a_parent_beside_its_child_is_refused() {
        let error = ShardMap::new([(range(0, u128::MAX), "parent"), (range(0, 9), "child")]).unwrap_err();
        assert_eq!((error.first, error.second), (range(0, 9), range(0, u128::MAX)));
        assert!(!error.is_retryable());
    }
}
