//! A key table in the making: encoded entries in order of first use, found by text.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use kinesis_core::HashKey;

use crate::wire::{put_varint, varint_len};

/// The distinct keys of an aggregate. Emptied and reused: it allocates only while it grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyTable {
    /// The entries as they are written: field key, length, text.
    encoded: Vec<u8>,
    entries: Vec<KeyEntry>,
    /// Places in `entries`.
    lookup: HashTable<u32>,
    /// Keyed by chance, because keys may come from strangers.
    hasher: RandomState,
    /// The entry found or added last: neighbours often have the same key.
    last: u32,
}

#[derive(Debug, Clone)]
struct KeyEntry {
    start: usize,
    end: usize,
    hash_key: Option<HashKey>,
}

/// Where a key is, or would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// At this index.
    Known(u32),
    /// Not there; it would get this index.
    New(u32),
}

impl Slot {
    pub(crate) fn index(self) -> u32 {
        match self {
            Self::Known(index) | Self::New(index) => index,
        }
    }
}

impl KeyTable {
    /// The bytes of all entries.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Where `text` is or would go.
    #[inline]
    pub(crate) fn find(&self, text: &[u8]) -> Slot {
        if self
            .entries
            .get(self.last as usize)
            .is_some_and(|entry| &self.encoded[entry.start..entry.end] == text)
        {
            return Slot::Known(self.last);
        }
        let found = self.lookup.find(self.hasher.hash_one(text), |&at| self.text(at) == text);
        found.map_or(Slot::New(self.entries.len() as u32), |&at| Slot::Known(at))
    }

    /// How many bytes the table grows by when `text` goes to `slot`.
    pub(crate) fn growth(slot: Slot, text: &[u8]) -> usize {
        match slot {
            Slot::Known(_) => 0,
            Slot::New(_) => 1 + varint_len(text.len() as u64) + text.len(),
        }
    }

    /// Uses what [`find`](Self::find) returned for `text`, writing the entry if it is new.
    #[inline]
    pub(crate) fn take(&mut self, slot: Slot, field_key: u8, text: &[u8]) {
        self.last = slot.index();
        if slot == Slot::New(self.last) {
            self.encoded.push(field_key);
            put_varint(&mut self.encoded, text.len() as u64);
            let start = self.encoded.len();
            self.encoded.extend_from_slice(text);
            self.entries.push(KeyEntry { start, end: self.encoded.len(), hash_key: None });
            let Self { encoded, entries, lookup, hasher, last } = self;
            lookup.insert_unique(hasher.hash_one(text), *last, |&at| {
                let entry = &entries[at as usize];
                hasher.hash_one(&encoded[entry.start..entry.end])
            });
        }
    }

    /// The text of an entry.
    pub(crate) fn text(&self, index: u32) -> &[u8] {
        let entry = &self.entries[index as usize];
        &self.encoded[entry.start..entry.end]
    }

    /// The MD5 hash key of a partition key, computed once for each entry.
    pub(crate) fn hash_key(&mut self, index: u32, partition_key: &str) -> HashKey {
        *self.entries[index as usize].hash_key.get_or_insert_with(|| crate::hash_key(partition_key))
    }

    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.entries.clear();
        self.lookup.clear();
        self.last = 0;
    }
}
