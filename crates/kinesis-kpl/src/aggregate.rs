//! A validated aggregate: checked once, iterated as often as wanted.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::{PartitionKey, Tag};

use crate::index::{Entry, Index, TagEntry};
use crate::record::ExplicitHashKey;
use crate::wire::DIGEST_LEN;
use crate::{Checksum, Reason, UserRecord};

/// Says that the index already checked what is read again.
const CHECKED: &str = "checked when the aggregate was parsed";

/// An aggregate whose digest, protobuf, keys and indices were all checked, over the bytes of its Kinesis record.
///
/// `B` holds those bytes: with `&[u8]` this is a borrowed view, with [`Bytes`] it can also give
/// [owned records](Aggregate::into_records). The index costs 16 bytes a record; iterating allocates nothing.
///
/// ```
/// # use kinesis_kpl::{Aggregate, Aggregator, AggregatorConfig, RecordRef};
/// # let mut aggregator = Aggregator::new(AggregatorConfig::default())?;
/// # aggregator.try_push(RecordRef::new("LHR", b"BA117")).unwrap();
/// # aggregator.try_push(RecordRef::new("CDG", b"AF006")).unwrap();
/// # let bytes = aggregator.finish().unwrap().into_data();
/// let aggregate = Aggregate::parse(&bytes[..]).expect("a good aggregate");
/// let keys: Vec<&str> = aggregate.iter().map(|record| record.partition_key()).collect();
/// assert_eq!(keys, ["LHR", "CDG"]);
/// # Ok::<(), kinesis_kpl::InvalidConfig>(())
/// ```
#[derive(Clone)]
pub struct Aggregate<B = Bytes> {
    bytes: B,
    index: Index,
}

impl<B: AsRef<[u8]>> Aggregate<B> {
    /// Checks a Kinesis record's data and indexes its user records: all of them or none.
    ///
    /// # Errors
    /// The [`Reason`] why it is not an aggregate or not a good one.
    pub fn parse(bytes: B) -> Result<Self, Reason> {
        Self::parse_with(bytes, Checksum::Verify)
    }

    /// Like [`parse`](Self::parse), with the choice to trust the digest.
    ///
    /// # Errors
    /// The [`Reason`] why it is not an aggregate or not a good one.
    pub fn parse_with(bytes: B, checksum: Checksum) -> Result<Self, Reason> {
        match checksum {
            Checksum::Verify => Self::read(bytes, |body, digest| crate::md5::digest(body) == *digest),
            Checksum::Skip => Self::read(bytes, |_, _| true),
        }
    }

    /// Parses with `verify`, which gets the message and the digest at its end.
    pub(crate) fn read(
        bytes: B,
        verify: impl FnOnce(&[u8], &[u8; DIGEST_LEN]) -> bool,
    ) -> Result<Self, Reason> {
        let index = Index::read(bytes.as_ref(), verify)?;
        Ok(Self { bytes, index })
    }

    /// The user records, in order.
    pub fn iter(&self) -> Records<'_> {
        Records { bytes: self.bytes.as_ref(), index: &self.index, at: 0, left: self.index.len() }
    }

    /// How many user records there are; a filter's removals are not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no user record. An aggregate may legally hold none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many user records the aggregate came with.
    #[must_use]
    pub fn count(&self) -> usize {
        self.index.records().len()
    }

    /// The whole Kinesis record's data.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The whole Kinesis record's data, in what held it.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.bytes
    }

    pub(crate) fn index_mut(&mut self) -> (&[u8], &mut Index) {
        (self.bytes.as_ref(), &mut self.index)
    }
}

impl Aggregate<Bytes> {
    /// Owned records, made one by one: data are slices of this buffer, and each key is made once and shared.
    #[must_use]
    pub fn into_records(self) -> IntoRecords {
        IntoRecords {
            keys: vec![None; self.index.keys.len()],
            hashes: vec![None; self.index.hashes.len()],
            left: self.len(),
            at: 0,
            // A clone is a shared handle already, and cheaper to clone than what the buffer came in.
            bytes: self.bytes.clone(),
            index: self.index,
        }
    }
}

impl IntoIterator for Aggregate<Bytes> {
    type Item = UserRecord;
    type IntoIter = IntoRecords;

    fn into_iter(self) -> IntoRecords {
        self.into_records()
    }
}

impl<'a, B: AsRef<[u8]>> IntoIterator for &'a Aggregate<B> {
    type Item = RecordView<'a>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Aggregate<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aggregate({} records, {} bytes)", self.len(), self.as_bytes().len())
    }
}

/// Borrowed user records of an [`Aggregate`].
#[derive(Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    index: &'a Index,
    at: usize,
    left: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordView<'a>;

    #[inline]
    fn next(&mut self) -> Option<RecordView<'a>> {
        loop {
            let entry = self.index.records().get(self.at)?;
            self.at += 1;
            if !entry.is_removed() {
                self.left -= 1;
                return Some(RecordView {
                    bytes: self.bytes,
                    index: self.index,
                    entry: *entry,
                    position: self.at - 1,
                });
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Records<'_> {}
impl FusedIterator for Records<'_> {}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} left)", self.left)
    }
}

/// One user record, borrowed from its [`Aggregate`]. Small and `Copy`; parts are looked up when asked for.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    index: &'a Index,
    entry: Entry,
    position: usize,
}

impl<'a> RecordView<'a> {
    /// The payload.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.entry.data().range()]
    }

    /// The partition key; the format allows an empty one.
    #[must_use]
    pub fn partition_key(&self) -> &'a str {
        text(self.partition_key_bytes())
    }

    /// The partition key as bytes, which are UTF-8: cheaper where they are only compared or copied.
    #[inline]
    #[must_use]
    pub fn partition_key_bytes(&self) -> &'a [u8] {
        &self.bytes[self.index.keys[self.entry.key()].range()]
    }

    /// The explicit hash key, if the record has one: the format carries any text.
    #[must_use]
    pub fn explicit_hash_key(&self) -> Option<&'a str> {
        let span = self.index.hashes[self.entry.hash()?];
        Some(text(&self.bytes[span.range()]))
    }

    /// The place in the aggregate, from 0: the sub-sequence number.
    #[must_use]
    pub const fn sub_sequence(&self) -> u64 {
        self.position as u64
    }

    /// The tags, mostly none.
    #[must_use]
    pub fn tags(&self) -> Tags<'a> {
        Tags { bytes: self.bytes, entries: self.index.tags_of(self.position).iter() }
    }

    /// Which of the aggregate's used partition keys this record has.
    pub(crate) fn key_place(&self) -> usize {
        self.entry.key()
    }
}

impl fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordView({} of {} bytes)", self.position, self.data().len())
    }
}

/// The tags of one record.
#[derive(Clone)]
pub struct Tags<'a> {
    bytes: &'a [u8],
    entries: std::slice::Iter<'a, TagEntry>,
}

impl<'a> Iterator for Tags<'a> {
    type Item = TagView<'a>;

    fn next(&mut self) -> Option<TagView<'a>> {
        let entry = self.entries.next()?;
        let part = |span: crate::index::Span| text(&self.bytes[span.range()]);
        Some(TagView { key: part(entry.key()), value: entry.value().map(part) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Tags<'_> {}
impl FusedIterator for Tags<'_> {}

impl fmt::Debug for Tags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tags({} left)", self.len())
    }
}

/// One tag of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagView<'a> {
    /// The key.
    pub key: &'a str,
    /// The value, where the tag has one.
    pub value: Option<&'a str>,
}

/// Owned user records of an [`Aggregate`], made one by one.
#[derive(Clone)]
pub struct IntoRecords {
    bytes: Bytes,
    index: Index,
    /// The handles made so far, one for each used key.
    keys: Vec<Option<PartitionKey>>,
    hashes: Vec<Option<ExplicitHashKey>>,
    at: usize,
    left: usize,
}

impl Iterator for IntoRecords {
    type Item = UserRecord;

    #[inline]
    fn next(&mut self) -> Option<UserRecord> {
        let Self { bytes, index, .. } = self;
        let (position, entry) = loop {
            let entry = index.records().get(self.at)?;
            self.at += 1;
            if !entry.is_removed() {
                break (self.at - 1, entry);
            }
        };
        self.left -= 1;
        let place = entry.key();
        let partition_key = self.keys[place]
            .get_or_insert_with(|| PartitionKey::from(text(&bytes[index.keys[place].range()])))
            .clone();
        let explicit_hash_key = entry.hash().map(|place| {
            self.hashes[place]
                .get_or_insert_with(|| ExplicitHashKey::new(text(&bytes[index.hashes[place].range()])))
                .clone()
        });
        Some(UserRecord {
            data: bytes.slice(entry.data().range()),
            partition_key,
            explicit_hash_key,
            tags: if index.has_tags() { owned_tags(bytes, index.tags_of(position)) } else { None },
            sub_sequence: position as u64,
            count: index.records().len() as u64,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for IntoRecords {}
impl FusedIterator for IntoRecords {}

impl fmt::Debug for IntoRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntoRecords({} left)", self.left)
    }
}

fn owned_tags(bytes: &[u8], entries: &[TagEntry]) -> Option<Arc<[Tag]>> {
    if entries.is_empty() {
        return None;
    }
    let tags = Tags { bytes, entries: entries.iter() };
    Some(tags.map(|tag| Tag { key: tag.key.to_owned(), value: tag.value.map(str::to_owned) }).collect())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect(CHECKED)
}
