//! The shards of a stream, by number.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use super::shard::Shard;
use crate::clock::Moment;

/// Shards in the order of their numbers, which are never given twice. Those that have expired are gone.
#[derive(Default)]
pub(crate) struct Shards {
    by_number: BTreeMap<usize, Shard>,
    /// Shards that ever were.
    made: usize,
}

impl Shards {
    /// The number of the shard that is made next.
    pub(crate) fn next_number(&self) -> usize {
        self.made
    }

    /// Adds the shard with the next number.
    pub(crate) fn push(&mut self, shard: Shard) {
        debug_assert_eq!(shard.number, self.made);
        self.made += 1;
        self.by_number.insert(shard.number, shard);
    }

    /// None for a number that was never given, and for a shard that has expired.
    pub(crate) fn get(&self, number: usize) -> Option<&Shard> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Shard> {
        self.by_number.get_mut(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.by_number.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.by_number.values_mut()
    }

    /// The shards with this number and higher ones.
    pub(crate) fn from(&self, number: usize) -> impl Iterator<Item = &Shard> {
        self.by_number.range(number..).map(|(_, shard)| shard)
    }

    /// Forgets what is older than `horizon`: records, and shards that closed before it.
    pub(crate) fn forget(&mut self, horizon: Moment) {
        self.by_number.retain(|_, shard| {
            shard.trim(horizon);
            !shard.is_expired(horizon)
        });
    }
}

impl Index<usize> for Shards {
    type Output = Shard;

    /// Only for shards that are known to be there: open ones, and those that a check has just found.
    fn index(&self, number: usize) -> &Shard {
        &self.by_number[&number]
    }
}

impl IndexMut<usize> for Shards {
    fn index_mut(&mut self, number: usize) -> &mut Shard {
        self.by_number.get_mut(&number).expect("a shard that is known to be there")
    }
}
