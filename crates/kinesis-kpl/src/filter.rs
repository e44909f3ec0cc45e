//! Leaving out user records whose hash key lies outside the shard that was read.

use kinesis_core::{HashKey, HashKeyRange};

use crate::Aggregate;

/// What happens to user records of an aggregate whose hash key lies outside the shard it was read from.
///
/// That occurs after a reshard, and with writers that aggregate without a shard map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RangeFilter {
    /// Everything is delivered: nothing is lost with any producer, at worst something comes twice.
    #[default]
    Off,
    /// Records inside the range are delivered, the others dropped. Removes the duplicates that a stale KPL makes;
    /// loses the misplaced records of a producer that does not send them again.
    PerRecord,
    /// As the Java KCL does: one record outside the range, and the whole aggregate is dropped.
    KclCompatible,
}

/// What a [`RangeFilter`] did to one aggregate. Count the drops by shard: they may be losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterReport {
    /// Records that are left.
    pub kept: usize,
    /// Records that were dropped.
    pub dropped: usize,
    /// Of those kept, records whose explicit hash key is not a number, so that nobody can say where they belong.
    pub unjudged: usize,
}

impl<B: AsRef<[u8]>> Aggregate<B> {
    /// Drops the records outside of a shard's range, both of whose ends belong to it. The others keep their
    /// sub-sequence numbers.
    ///
    /// Use the range of the shard that was read, not of its children; where it is not known, or where the service
    /// distributes the records by itself (`AUTO`), do not filter. The whole key space costs nothing, otherwise each
    /// partition key of the aggregate is hashed once.
    pub fn retain_in_range(&mut self, filter: RangeFilter, range: HashKeyRange) -> FilterReport {
        let before = self.len();
        if filter == RangeFilter::Off || range.is_full() {
            return FilterReport { kept: before, ..FilterReport::default() };
        }
        let mut unjudged = 0;
        let mut outside = Vec::new();
        // Whether each used partition key lies in the range, once known.
        let mut keys = vec![None; self.iter().map(|record| record.key_place() + 1).max().unwrap_or(0)];
        for record in self.iter() {
            let inside = match record.explicit_hash_key() {
                Some(text) => explicit_is_inside(text, range).unwrap_or_else(|| {
                    unjudged += 1;
                    true
                }),
                None => *keys[record.key_place()]
                    .get_or_insert_with(|| range.contains(crate::hash_key(record.partition_key()))),
            };
            if !inside {
                outside.push(record.sub_sequence() as usize);
                if filter == RangeFilter::KclCompatible {
                    outside = self.iter().map(|record| record.sub_sequence() as usize).collect();
                    unjudged = 0;
                    break;
                }
            }
        }
        let (_, index) = self.index_mut();
        for &position in &outside {
            index.remove(position);
        }
        FilterReport { kept: before - outside.len(), dropped: outside.len(), unjudged }
    }
}

/// Whether an explicit hash key lies in the range; `None` when it is not a number. Like the KCL, which reads it as
/// a number of any size, this knows signs, and takes a number beyond the key space as outside.
fn explicit_is_inside(text: &str, range: HashKeyRange) -> Option<bool> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let key = digits.parse::<HashKey>().ok().filter(|key| !negative || *key == HashKey::MIN);
    Some(key.is_some_and(|key| range.contains(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_hash_keys_are_read_as_numbers_of_any_size() {
        let range = HashKeyRange::new(HashKey::MIN, HashKey::new(9)).unwrap();
        let inside = |text| explicit_is_inside(text, range);
        for text in ["0", "9", "009", "+9", "-0"] {
            assert_eq!(inside(text), Some(true), "{text}");
        }
        for text in ["10", "-1", "340282366920938463463374607431768211456"] {
            assert_eq!(inside(text), Some(false), "{text}");
        }
        for text in ["", "-", "+", "abc", "1.0", " 1", "--1", "١"] {
            assert_eq!(inside(text), None, "{text}");
        }
    }
}
