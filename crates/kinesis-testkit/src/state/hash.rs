//! Hash keys: where a partition key falls, and how the range is divided.

use md5::{Digest as _, Md5};

/// A closed range of hash keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashRange {
    pub(crate) start: u128,
    pub(crate) end: u128,
}

impl HashRange {
    pub(crate) const FULL: Self = Self { start: 0, end: u128::MAX };

    /// Divides the full range evenly over `count` shards, as the service does: equal widths, the rest at the end.
    pub(crate) fn uniform(count: usize) -> Vec<Self> {
        let count = count.max(1) as u128;
        if count == 1 {
            return vec![Self::FULL];
        }
        // 2^128 / count, without the number 2^128.
        let width = u128::MAX / count + u128::from(u128::MAX % count == count - 1);
        (0..count)
            .map(|shard| Self {
                start: width * shard,
                end: if shard == count - 1 { u128::MAX } else { width * (shard + 1) - 1 },
            })
            .collect()
    }

    /// Whether the two ranges touch without a gap, in either order.
    pub(crate) fn is_adjacent_to(self, other: Self) -> bool {
        self.end.checked_add(1) == Some(other.start) || other.end.checked_add(1) == Some(self.start)
    }

    /// The range that covers both of two adjacent ones.
    pub(crate) fn join(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The hash key of a partition key: its MD5, read as a big-endian number.
pub(crate) fn hash_partition_key(key: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(key.as_bytes()).into())
}

/// Whether a text has the documented form of a hash key: 1 to 39 digits without a leading zero.
pub(crate) fn is_hash_key(text: &str) -> bool {
    let digits = (1..=39).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0'))
}

/// Reads a hash key in decimal: no sign, no leading zeros, at most 2^128 - 1.
pub(crate) fn parse_hash_key(text: &str) -> Option<u128> {
    if is_hash_key(text) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_ranges_cover_everything_once() {
        for count in [1, 2, 3, 4, 7, 1_000] {
            let ranges = HashRange::uniform(count);
            assert_eq!(ranges.len(), count);
            assert_eq!(ranges[0].start, 0);
            assert_eq!(ranges[count - 1].end, u128::MAX);
            assert!(ranges.windows(2).all(|pair| pair[0].end + 1 == pair[1].start));
        }
    }

    #[test]
    fn four_shards_have_the_service_s_boundaries() {
        let starts: Vec<_> = HashRange::uniform(4).into_iter().map(|range| range.start).collect();
        assert_eq!(starts, [0, 1 << 126, 2 << 126, 3 << 126]);
    }

    #[test]
    fn a_partition_key_hashes_to_its_md5() {
        // md5("") is a published test vector (RFC 1321).
        assert_eq!(hash_partition_key(""), 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e);
    }

    #[test]
    fn only_plain_decimals_are_hash_keys() {
        assert_eq!(parse_hash_key("0"), Some(0));
        assert_eq!(parse_hash_key("340282366920938463463374607431768211455"), Some(u128::MAX));
        for bad in ["", "00", "-1", "+1", "1a", "340282366920938463463374607431768211456"] {
            assert_eq!(parse_hash_key(bad), None, "{bad}");
        }
        // The form alone is that of a key.
        assert!(is_hash_key("340282366920938463463374607431768211456"));
        assert!(!is_hash_key("1234567890123456789012345678901234567890"));
    }
}
