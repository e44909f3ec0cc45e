//! The validated index of an aggregate: where each record's key, hash key, data and tags are in its bytes.

use crate::Reason;
use crate::wire::{self, Cursor, DIGEST_LEN, FRAME_LEN, MAGIC, Malformed};

/// A part of the aggregate, by its place in the whole Kinesis record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// No place: an optional part that is not there.
    const NONE: Self = Self { start: u32::MAX, end: u32::MAX };

    fn new((start, end): (usize, usize)) -> Self {
        // `split_frame` refuses bodies above `i32::MAX` bytes, so nothing is cut off.
        Self { start: start as u32, end: end as u32 }
    }

    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    fn get(self) -> Option<Self> {
        (self.start != u32::MAX).then_some(self)
    }
}

/// `Entry::hash` of a record without an explicit hash key, and `Entry::key` before it was read.
const ABSENT: u32 = u32::MAX;
/// `Entry::key` of a record that a filter removed.
const REMOVED: u32 = u32::MAX - 1;

/// One user record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    data: Span,
    key: u32,
    hash: u32,
}

impl Entry {
    pub(crate) fn data(&self) -> Span {
        self.data
    }

    /// Which of [`Index::keys`] is its partition key.
    pub(crate) fn key(&self) -> usize {
        self.key as usize
    }

    /// Which of [`Index::hashes`] is its explicit hash key.
    pub(crate) fn hash(&self) -> Option<usize> {
        (self.hash != ABSENT).then_some(self.hash as usize)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.key == REMOVED
    }
}

/// One tag of one record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagEntry {
    record: u32,
    key: Span,
    value: Span,
}

impl TagEntry {
    pub(crate) fn key(&self) -> Span {
        self.key
    }

    pub(crate) fn value(&self) -> Option<Span> {
        self.value.get()
    }
}

/// Everything about an aggregate that iterating needs, found and checked in one walk.
///
/// Its size is bounded by what the aggregate really holds, whatever lengths and indices it declares: 16 bytes a
/// record (at least 6 bytes on the wire), 4 a table entry (at least 2) while reading, 20 a tag (at least 4).
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// The partition keys that records use, in order of first use; valid UTF-8.
    pub(crate) keys: Vec<Span>,
    /// The explicit hash keys that records use, in order of first use; valid UTF-8.
    pub(crate) hashes: Vec<Span>,
    records: Vec<Entry>,
    tags: Vec<TagEntry>,
    removed: usize,
}

impl Index {
    /// Reads and validates a whole Kinesis record.
    pub(crate) fn read(
        bytes: &[u8],
        verify: impl FnOnce(&[u8], &[u8; DIGEST_LEN]) -> bool,
    ) -> Result<Self, Reason> {
        let (body, digest) = split_frame(bytes)?;
        if !verify(body, digest) {
            return Err(Reason::BadDigest);
        }
        let mut reader = Reader { bytes: &bytes[..bytes.len() - DIGEST_LEN], ..Reader::default() };
        reader.walk()?;
        reader.resolve()
    }

    /// All records, also those that a filter removed.
    pub(crate) fn records(&self) -> &[Entry] {
        &self.records
    }

    /// How many records are left.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.removed
    }

    /// Whether any record has tags.
    #[inline]
    pub(crate) fn has_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    /// The tags of the record at `position`.
    pub(crate) fn tags_of(&self, position: usize) -> &[TagEntry] {
        let position = position as u32;
        let start = self.tags.partition_point(|tag| tag.record < position);
        let len = self.tags[start..].partition_point(|tag| tag.record == position);
        &self.tags[start..start + len]
    }

    /// Removes the record at `position`; the others keep their places.
    pub(crate) fn remove(&mut self, position: usize) {
        let entry = &mut self.records[position];
        if !entry.is_removed() {
            entry.key = REMOVED;
            self.removed += 1;
        }
    }
}

/// The protobuf message and the digest in a Kinesis record. The KCL asks for more than a digest after the magic, so
/// an aggregate of nothing is too short.
pub(crate) fn split_frame(bytes: &[u8]) -> Result<(&[u8], &[u8; DIGEST_LEN]), Reason> {
    let framed = bytes.strip_prefix(&MAGIC).ok_or(Reason::NotAggregated)?;
    match framed.split_last_chunk() {
        None | Some(([], _)) => Err(Reason::TooShort),
        // Above protobuf's own limit; places are kept in 32 bits.
        Some((body, _)) if i32::try_from(body.len() + FRAME_LEN).is_err() => Err(Reason::BadProtobuf),
        Some((body, digest)) => Ok((body, digest)),
    }
}

#[derive(Default)]
struct Reader<'a> {
    /// Magic and message, without the digest.
    bytes: &'a [u8],
    /// Where the length of each table entry is, until a record uses it; then its place in `Index::keys`.
    key_table: Vec<u32>,
    hash_table: Vec<u32>,
    index: Index,
}

impl<'a> Reader<'a> {
    /// Finds all fields. Tables may come after the records that use them, so indices are resolved later; until
    /// then [`Entry`] holds them as they are, and one that does not fit is out of every range anyway.
    fn walk(&mut self) -> Result<(), Reason> {
        let mut cursor = Cursor::new(self.bytes, MAGIC.len());
        while !cursor.is_done() {
            let key = cursor.varint()?;
            if key == u64::from(wire::TOP_RECORD) {
                let (start, end) = cursor.length_delimited()?;
                self.record(start, end)?;
                if self.index.records.len() == 1 {
                    // Others are likely as long. The guess is bounded by the bytes that are there, and by two pages.
                    let guess = (self.bytes.len() - end) / (end - start + 2);
                    self.index.records.reserve(guess.min(4096 / size_of::<Entry>() * 2));
                }
            } else if key == u64::from(wire::TOP_PARTITION_KEY) {
                self.key_table.push(cursor.at() as u32);
                cursor.length_delimited()?;
            } else if key == u64::from(wire::TOP_HASH_KEY) {
                self.hash_table.push(cursor.at() as u32);
                cursor.length_delimited()?;
            } else {
                cursor.skip(key, 0)?;
            }
        }
        Ok(())
    }

    /// Reads the record message between two places: at once if it has the fields that every writer gives, in their
    /// order and with small indices, else field by field.
    #[inline(always)]
    fn record(&mut self, start: usize, end: usize) -> Result<(), Reason> {
        match plain_record(&self.bytes[start..end], start) {
            Some(entry) => {
                self.index.records.push(entry);
                Ok(())
            }
            None => self.any_record(Cursor::new(&self.bytes[..end], start)),
        }
    }

    #[inline(never)]
    fn any_record(&mut self, mut cursor: Cursor<'a>) -> Result<(), Reason> {
        let mut entry = Entry { data: Span::NONE, key: ABSENT, hash: ABSENT };
        while !cursor.is_done() {
            let key = cursor.varint()?;
            if key == u64::from(wire::RECORD_PARTITION_KEY_INDEX) {
                entry.key = clamp(cursor.varint()?);
            } else if key == u64::from(wire::RECORD_DATA) {
                entry.data = Span::new(cursor.length_delimited()?);
            } else if key == u64::from(wire::RECORD_HASH_KEY_INDEX) {
                entry.hash = clamp(cursor.varint()?);
            } else if key == u64::from(wire::RECORD_TAG) {
                let (start, end) = cursor.length_delimited()?;
                self.tag(Cursor::new(&self.bytes[..end], start))?;
            } else {
                cursor.skip(key, 1)?;
            }
        }
        if entry.key == ABSENT || entry.data == Span::NONE {
            return Err(Reason::MissingField);
        }
        self.index.records.push(entry);
        Ok(())
    }

    #[cold]
    fn tag(&mut self, mut cursor: Cursor<'a>) -> Result<(), Reason> {
        let mut tag =
            TagEntry { record: self.index.records.len() as u32, key: Span::NONE, value: Span::NONE };
        while !cursor.is_done() {
            let key = cursor.varint()?;
            if key == u64::from(wire::TAG_KEY) {
                tag.key = Span::new(cursor.length_delimited()?);
            } else if key == u64::from(wire::TAG_VALUE) {
                tag.value = Span::new(cursor.length_delimited()?);
            } else {
                cursor.skip(key, 2)?;
            }
        }
        if tag.key == Span::NONE {
            return Err(Reason::MissingField);
        }
        self.index.tags.push(tag);
        Ok(())
    }

    /// Turns table indices into places in the lists of used keys, and checks their text.
    fn resolve(mut self) -> Result<Index, Reason> {
        for entry in &mut self.index.records {
            entry.key = use_entry(self.bytes, &mut self.key_table, &mut self.index.keys, entry.key)?;
            if entry.hash != ABSENT {
                entry.hash = use_entry(self.bytes, &mut self.hash_table, &mut self.index.hashes, entry.hash)?;
            }
        }
        for tag in &self.index.tags {
            check_utf8(self.bytes, tag.key)?;
            if let Some(value) = tag.value() {
                check_utf8(self.bytes, value)?;
            }
        }
        Ok(self.index)
    }
}

/// A record of an index below 128 and data, or of both indices below 128 and data, and nothing else.
#[inline(always)]
fn plain_record(message: &[u8], start: usize) -> Option<Entry> {
    let (key, hash, fields_len) = match *message {
        [wire::RECORD_PARTITION_KEY_INDEX, key @ 0..0x80, wire::RECORD_DATA, ..] => (key, ABSENT, 3),
        [
            wire::RECORD_PARTITION_KEY_INDEX,
            key @ 0..0x80,
            wire::RECORD_HASH_KEY_INDEX,
            hash @ 0..0x80,
            wire::RECORD_DATA,
            ..,
        ] => (key, u32::from(hash), 5),
        _ => return None,
    };
    let mut cursor = Cursor::new(message, fields_len);
    let (data_start, data_end) = cursor.length_delimited().ok()?;
    let data = Span::new((start + data_start, start + data_end));
    cursor.is_done().then_some(Entry { data, key: u32::from(key), hash })
}

/// Set in a table entry that a record already used. Places and counts stay below 2^31.
const USED: u32 = 1 << 31;

#[inline]
fn use_entry(bytes: &[u8], table: &mut [u32], used: &mut Vec<Span>, index: u32) -> Result<u32, Reason> {
    let entry = table.get_mut(index as usize).ok_or(Reason::IndexOutOfRange)?;
    if *entry & USED == 0 {
        let span = Span::new(Cursor::new(bytes, *entry as usize).length_delimited()?);
        check_utf8(bytes, span)?;
        *entry = USED | used.len() as u32;
        used.push(span);
    }
    Ok(*entry & !USED)
}

fn check_utf8(bytes: &[u8], span: Span) -> Result<(), Reason> {
    std::str::from_utf8(&bytes[span.range()]).map(|_| ()).map_err(|_| Reason::BadUtf8)
}

/// An index as it is, or one that no table can have. Below `ABSENT`, so that it counts as present.
fn clamp(index: u64) -> u32 {
    index.min(u64::from(REMOVED)) as u32
}

impl From<Malformed> for Reason {
    fn from(Malformed: Malformed) -> Self {
        Self::BadProtobuf
    }
}
