//! From user records to an aggregate.

use std::fmt;

use bytes::Bytes;
use kinesis_core::{HashKey, PartitionKey, Tag};

use crate::key_table::{KeyTable, Slot};
use crate::wire::{self, FRAME_LEN, MAGIC, put_varint, varint_len};
use crate::{
    AggregatorConfig, InvalidConfig, KeyMode, Lone, OuterKey, Packed, RecordRef, SizeRule, ToRecordRef,
};

/// The partition key of every aggregate that the KPL writes.
const KPL_KEY: &str = "a";

/// Why a record was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The aggregate is full: [`finish`](Aggregator::finish) it and offer the record again. It fits an empty one.
    Full,
    /// The record with its frame exceeds the size limit even alone. Send it as a plain record, or reject it where
    /// it exceeds the stream's limit too.
    SendAlone,
    /// The aggregate has another partition key and [`KeyMode::Same`] is set. An empty one takes the record.
    OtherPartitionKey,
    /// The record belongs to another shard than [`AggregatorConfig::range`].
    OutsideRange,
}

/// A record that was not taken, given back. The aggregate is as before.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused<R> {
    /// The record.
    pub record: R,
    /// Why it was not taken.
    pub why: Refusal,
}

impl<R> fmt::Debug for Refused<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({:?})", self.why)
    }
}

/// Packs user records into one Kinesis record, in KPL format.
///
/// The size is exact at every moment, so nothing is refused later for being a few bytes too large. The bytes are
/// the canonical ones: key tables in order of first use, each key once, then the records.
///
/// One aggregator makes one aggregate after the other and keeps its buffers. Where readers check hash ranges, as the
/// KCL does, use one per shard with [`AggregatorConfig::range`], or [`KeyMode::Same`].
///
/// ```
/// use kinesis_kpl::{Aggregator, AggregatorConfig, RecordRef, Refusal};
///
/// let mut aggregator = Aggregator::new(AggregatorConfig::default().max_bytes(100))?;
/// let mut packed = Vec::new();
/// for text in ["one", "two", "a somewhat longer record", "and a last one, longer still"] {
///     let record = RecordRef::new("key", text.as_bytes());
///     if let Err(refused) = aggregator.try_push(record) {
///         assert_eq!(refused.why, Refusal::Full);
///         packed.extend(aggregator.finish());
///         aggregator.try_push(refused.record).expect("it fits an empty aggregate");
///     }
/// }
/// packed.extend(aggregator.finish());
/// assert_eq!(packed.iter().map(|aggregate| aggregate.records()).collect::<Vec<_>>(), [3, 1]);
/// # Ok::<(), kinesis_kpl::InvalidConfig>(())
/// ```
#[derive(Clone)]
pub struct Aggregator {
    config: AggregatorConfig,
    keys: KeyTable,
    hashes: KeyTable,
    /// The encoded records, after both tables in the message.
    records: Vec<u8>,
    count: usize,
    first: First,
}

/// What is needed of the first record at the end.
#[derive(Clone, Default)]
struct First {
    explicit_hash_key: Option<HashKey>,
    /// Where its data is in the encoded records.
    data: (usize, usize),
    has_tags: bool,
}

/// The size of one record in an aggregate, and where its keys go.
struct Plan {
    key: Slot,
    hash: Option<Slot>,
    tags_len: usize,
    /// The record message without its field key and length.
    record_len: usize,
    /// By how much the whole aggregate grows.
    growth: usize,
}

impl Aggregator {
    /// An empty aggregator.
    ///
    /// # Errors
    /// [`InvalidConfig`] that names the first field out of its range.
    pub fn new(config: AggregatorConfig) -> Result<Self, InvalidConfig> {
        config.validate()?;
        Ok(Self {
            config,
            keys: KeyTable::default(),
            hashes: KeyTable::default(),
            records: Vec::new(),
            count: 0,
            first: First::default(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &AggregatorConfig {
        &self.config
    }

    /// Sets the range of the shard for the next aggregates; `None` checks nothing. The records already in stay.
    pub fn set_range(&mut self, range: Option<kinesis_core::HashKeyRange>) {
        self.config.range = range;
    }

    /// Adds a record, or gives it back with the reason.
    ///
    /// # Errors
    /// [`Refused`] with the record; the aggregate is unchanged.
    #[inline]
    pub fn try_push<R: ToRecordRef>(&mut self, record: R) -> Result<(), Refused<R>> {
        match self.push(record.to_record_ref()) {
            Ok(()) => Ok(()),
            Err(why) => Err(Refused { record, why }),
        }
    }

    fn push(&mut self, record: RecordRef<'_>) -> Result<(), Refusal> {
        let mut digits = [0; HASH_KEY_DIGITS];
        let hash_text = record.explicit_hash_key.map(|key| decimal(key, &mut digits));
        let plan = self.plan(&record, hash_text);
        self.admit(&record, &plan, hash_text)?;

        self.keys.take(plan.key, wire::TOP_PARTITION_KEY, record.partition_key.as_bytes());
        let out = &mut self.records;
        out.reserve(1 + 10 + plan.record_len);
        out.push(wire::TOP_RECORD);
        put_varint(out, plan.record_len as u64);
        out.push(wire::RECORD_PARTITION_KEY_INDEX);
        put_varint(out, u64::from(plan.key.index()));
        if let (Some(slot), Some(text)) = (plan.hash, hash_text) {
            self.hashes.take(slot, wire::TOP_HASH_KEY, text);
            out.push(wire::RECORD_HASH_KEY_INDEX);
            put_varint(out, u64::from(slot.index()));
        }
        out.push(wire::RECORD_DATA);
        put_varint(out, record.data.len() as u64);
        let start = out.len();
        out.extend_from_slice(record.data);
        if self.count == 0 {
            self.first = First {
                explicit_hash_key: record.explicit_hash_key,
                data: (start, out.len()),
                has_tags: !record.tags.is_empty(),
            };
        }
        for tag in record.tags {
            put_tag(out, tag);
        }
        self.count += 1;
        Ok(())
    }

    fn plan(&self, record: &RecordRef<'_>, hash_text: Option<&[u8]>) -> Plan {
        let key = self.keys.find(record.partition_key.as_bytes());
        let hash = hash_text.map(|text| self.hashes.find(text));
        let tags_len = if record.tags.is_empty() { 0 } else { record.tags.iter().map(framed_tag_len).sum() };
        let record_len = record_len(key.index(), hash.map(Slot::index), record.data.len(), tags_len);
        let growth = 1
            + varint_len(record_len as u64)
            + record_len
            + KeyTable::growth(key, record.partition_key.as_bytes())
            + hash.zip(hash_text).map_or(0, |(slot, text)| KeyTable::growth(slot, text));
        Plan { key, hash, tags_len, record_len, growth }
    }

    /// Whether the record may come in. `Full` and `OtherPartitionKey` promise that an empty aggregate takes it.
    fn admit(
        &mut self,
        record: &RecordRef<'_>,
        plan: &Plan,
        hash_text: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let Some(why) = self.objection(record, plan) else { return Ok(()) };
        // Alone it may be larger than in here, where its key may be known and another's counts as the outer one.
        let too_large = || self.alone_len(record, plan.tags_len, hash_text) > self.config.max_bytes;
        match why {
            Refusal::Full | Refusal::OtherPartitionKey if too_large() => Err(Refusal::SendAlone),
            why => Err(why),
        }
    }

    fn objection(&mut self, record: &RecordRef<'_>, plan: &Plan) -> Option<Refusal> {
        let key_len =
            if self.count == 0 { self.outer_key_len(record.partition_key.len()) } else { self.key_len() };
        if self.framed_len() + plan.growth + key_len > self.config.max_bytes
            || self.count >= self.config.max_records
        {
            return Some(Refusal::Full);
        }
        if self.config.key_mode == KeyMode::Same && self.count > 0 && plan.key != Slot::Known(0) {
            return Some(Refusal::OtherPartitionKey);
        }
        let range = self.config.range.filter(|range| !range.is_full())?;
        let key = match (record.explicit_hash_key, plan.key) {
            (Some(key), _) => key,
            (None, Slot::Known(index)) => self.keys.hash_key(index, record.partition_key),
            (None, Slot::New(_)) => crate::hash_key(record.partition_key),
        };
        (!range.contains(key)).then_some(Refusal::OutsideRange)
    }

    /// The size of an aggregate with only this record, by the size rule.
    fn alone_len(&self, record: &RecordRef<'_>, tags_len: usize, hash_text: Option<&[u8]>) -> usize {
        let record_len = record_len(0, hash_text.map(|_| 0), record.data.len(), tags_len);
        FRAME_LEN
            + KeyTable::growth(Slot::New(0), record.partition_key.as_bytes())
            + hash_text.map_or(0, |text| KeyTable::growth(Slot::New(0), text))
            + 1
            + varint_len(record_len as u64)
            + record_len
            + self.outer_key_len(record.partition_key.len())
    }

    fn framed_len(&self) -> usize {
        FRAME_LEN + self.keys.encoded().len() + self.hashes.encoded().len() + self.records.len()
    }

    fn outer_key_len(&self, first_key_len: usize) -> usize {
        match (self.config.size_rule, self.config.outer_key) {
            (SizeRule::PayloadOnly, _) => 0,
            (SizeRule::WithPartitionKey, OuterKey::First) => first_key_len,
            (SizeRule::WithPartitionKey, OuterKey::Kpl) => KPL_KEY.len(),
        }
    }

    fn key_len(&self) -> usize {
        self.outer_key_len(self.keys.text(0).len())
    }

    fn is_unframed(&self) -> bool {
        self.count == 1 && self.config.lone == Lone::Unframed && !self.first.has_tags
    }

    /// How many records are in.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The exact length in bytes of what [`finish`](Self::finish) would give now; 0 when nothing is in.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self.count {
            0 => 0,
            _ if self.is_unframed() => self.first.data.1 - self.first.data.0,
            _ => self.framed_len(),
        }
    }

    /// Makes the aggregate and starts over with an empty one; `None` when nothing is in.
    ///
    /// The buffers are kept: the only allocations are those of the result.
    pub fn finish(&mut self) -> Option<Packed> {
        if self.count == 0 {
            return None;
        }
        let first_key = std::str::from_utf8(self.keys.text(0)).expect("keys come as text");
        let first_key = PartitionKey::from(first_key);
        let unframed = self.is_unframed();
        let data = if unframed {
            Bytes::copy_from_slice(&self.records[self.first.data.0..self.first.data.1])
        } else {
            self.encode()
        };
        let (partition_key, explicit_hash_key) = match self.config.outer_key {
            OuterKey::Kpl if !unframed => {
                let explicit = self.first.explicit_hash_key;
                let hash_key = explicit.unwrap_or_else(|| self.keys.hash_key(0, first_key.as_str()));
                (PartitionKey::from(KPL_KEY), Some(hash_key))
            }
            OuterKey::Kpl | OuterKey::First => (first_key, self.first.explicit_hash_key),
        };
        let packed =
            Packed { data, partition_key, explicit_hash_key, records: self.count, framed: !unframed };
        self.clear();
        Some(packed)
    }

    /// Throws away what is in.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.hashes.clear();
        self.records.clear();
        self.count = 0;
    }

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.framed_len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(self.keys.encoded());
        out.extend_from_slice(self.hashes.encoded());
        out.extend_from_slice(&self.records);
        let digest = crate::md5::digest(&out[MAGIC.len()..]);
        out.extend_from_slice(&digest);
        Bytes::from(out)
    }
}

impl fmt::Debug for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregator")
            .field("config", &self.config)
            .field("records", &self.count)
            .field("encoded_len", &self.encoded_len())
            .finish_non_exhaustive()
    }
}

fn record_len(key: u32, hash: Option<u32>, data_len: usize, tags_len: usize) -> usize {
    1 + varint_len(u64::from(key))
        + hash.map_or(0, |hash| 1 + varint_len(u64::from(hash)))
        + 1
        + varint_len(data_len as u64)
        + data_len
        + tags_len
}

fn text_len(text: &str) -> usize {
    1 + varint_len(text.len() as u64) + text.len()
}

fn tag_len(tag: &Tag) -> usize {
    text_len(&tag.key) + tag.value.as_deref().map_or(0, text_len)
}

fn framed_tag_len(tag: &Tag) -> usize {
    let len = tag_len(tag);
    1 + varint_len(len as u64) + len
}

fn put_tag(out: &mut Vec<u8>, tag: &Tag) {
    out.push(wire::RECORD_TAG);
    put_varint(out, tag_len(tag) as u64);
    for (field_key, text) in [(wire::TAG_KEY, Some(&tag.key)), (wire::TAG_VALUE, tag.value.as_ref())] {
        if let Some(text) = text {
            out.push(field_key);
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// The most digits of a hash key.
const HASH_KEY_DIGITS: usize = 39;

/// The hash key in decimal digits, without an allocation. Divides once by 10^19, as 128-bit division is slow.
fn decimal(key: HashKey, buffer: &mut [u8; HASH_KEY_DIGITS]) -> &[u8] {
    const GROUP: u128 = 10_u128.pow(19);
    let mut high = key.get();
    let mut at = buffer.len();
    loop {
        let mut group = (high % GROUP) as u64;
        high /= GROUP;
        let stop = if high == 0 { 0 } else { at - 19 };
        loop {
            at -= 1;
            buffer[at] = b'0' + (group % 10) as u8;
            group /= 10;
            if group == 0 && (stop == 0 || at == stop) {
                break;
            }
        }
        if high == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_keys_are_written_in_decimal() {
        let group = 10_u128.pow(19);
        for key in
            [0, 1, 9, 10, group - 1, group, group + 1, group * 5, group * group - 1, group * group, u128::MAX]
        {
            let mut buffer = [0; HASH_KEY_DIGITS];
            let text = decimal(HashKey::new(key), &mut buffer);
            assert_eq!(std::str::from_utf8(text).unwrap(), key.to_string());
        }
    }
}
