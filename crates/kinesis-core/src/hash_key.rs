//! The 128-bit key space that shards divide among them.

use std::fmt;
use std::str::FromStr;

/// Text that is not a hash key: a decimal number from 0 to 2^128 - 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid hash key: must be a decimal number from 0 to 2^128 - 1")]
pub struct InvalidHashKey;

/// A point in the key space: the MD5 of a partition key, or an explicit hash key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashKey(u128);

impl HashKey {
    /// The lowest hash key.
    pub const MIN: Self = Self(0);
    /// The highest hash key, 2^128 - 1.
    pub const MAX: Self = Self(u128::MAX);

    /// From a number.
    #[must_use]
    pub const fn new(value: u128) -> Self {
        Self(value)
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for HashKey {
    type Err = InvalidHashKey;

    /// Takes ASCII digits only; leading zeros are dropped, as the KPL does (`007` is 7).
    fn from_str(text: &str) -> Result<Self, InvalidHashKey> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidHashKey);
        }
        text.parse().map(Self).map_err(|_| InvalidHashKey)
    }
}

/// The part of the key space that a shard holds; both ends are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashKeyRange {
    start: HashKey,
    end: HashKey,
}

impl HashKeyRange {
    /// The whole key space.
    pub const FULL: Self = Self { start: HashKey::MIN, end: HashKey::MAX };

    /// The range from `start` to `end`, both inclusive; `None` when they are the wrong way round.
    #[must_use]
    pub fn new(start: HashKey, end: HashKey) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }

    /// The first hash key of the range.
    #[must_use]
    pub const fn start(self) -> HashKey {
        self.start
    }

    /// The last hash key of the range.
    #[must_use]
    pub const fn end(self) -> HashKey {
        self.end
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(self, key: HashKey) -> bool {
        self.start <= key && key <= self.end
    }

    /// Whether this is the whole key space, where a filter has nothing to do.
    #[must_use]
    pub fn is_full(self) -> bool {
        self == Self::FULL
    }
}

impl fmt::Display for HashKeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_keys_are_decimal_and_bounded() {
        assert_eq!("007".parse(), Ok(HashKey::new(7)));
        assert_eq!(u128::MAX.to_string().parse(), Ok(HashKey::MAX));
        for bad in ["", "-1", "+1", " 1", "1.0", "340282366920938463463374607431768211456", "١"] {
            assert_eq!(bad.parse::<HashKey>(), Err(InvalidHashKey), "{bad:?}");
        }
    }

    #[test]
    fn both_ends_of_a_range_belong_to_it() {
        let range = HashKeyRange::new(HashKey::new(5), HashKey::new(9)).unwrap();
        let inside: Vec<u128> = (0..12).filter(|n| range.contains(HashKey::new(*n))).collect();
        assert_eq!(inside, [5, 6, 7, 8, 9]);
        assert_eq!(HashKeyRange::new(HashKey::new(2), HashKey::new(1)), None);
    }
}
