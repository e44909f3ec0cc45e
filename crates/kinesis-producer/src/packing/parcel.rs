//! A Kinesis record with the records in it.

use std::time::Instant;

use kinesis_core::{HashKeyRange, OutboundRecord, ShardId};
use kinesis_kpl::ToRecordRef as _;

use super::{Lane, Put};

/// A record as it was put, and what was tried with it so far.
#[derive(Debug)]
pub(crate) struct Load<P> {
    /// Its place in the order of admission.
    pub(crate) serial: u64,
    pub(crate) admitted: Instant,
    /// Calls that carried it in parcels before.
    pub(crate) attempts: u32,
    /// Whether one of them may have stored it without saying so.
    pub(crate) in_doubt: bool,
    pub(crate) put: P,
}

/// A Kinesis record on its way.
#[derive(Debug)]
pub(crate) struct Parcel<P> {
    /// What goes out.
    pub(crate) wire: OutboundRecord,
    pub(super) loads: Loads<P>,
    /// The lowest of its records, which is the oldest one: its place in the queue.
    pub(crate) serial: u64,
    pub(crate) admitted: Instant,
    /// Calls that carried it, one under way included.
    pub(crate) attempts: u32,
    /// Whether one of them may have stored it without saying so.
    pub(crate) in_doubt: bool,
    /// What the service counts: payload and key, in bytes.
    pub(crate) size: usize,
    /// Bytes that are kept besides the records.
    pub(crate) own_bytes: usize,
    pub(crate) lane: Lane,
    pub(crate) shard: Option<ShardId>,
    pub(crate) epoch: u64,
    /// Whether it is an aggregate whose records may have different hash keys.
    pub(crate) mixed: bool,
}

/// Mostly one, without an allocation.
#[derive(Debug)]
pub(super) enum Loads<P> {
    One(Load<P>),
    Many(Vec<Load<P>>),
}

impl<P: Put> Parcel<P> {
    pub(crate) fn loads(&self) -> &[Load<P>] {
        match &self.loads {
            Loads::One(load) => std::slice::from_ref(load),
            Loads::Many(loads) => loads,
        }
    }

    pub(crate) fn into_loads(self) -> impl Iterator<Item = Load<P>> {
        let (one, many) = match self.loads {
            Loads::One(load) => (Some(load), Vec::new()),
            Loads::Many(loads) => (None, loads),
        };
        one.into_iter().chain(many)
    }

    /// Taken apart, to be packed anew.
    pub(crate) fn unpack(self) -> impl Iterator<Item = Load<P>> {
        let (attempts, in_doubt) = (self.attempts, self.in_doubt);
        self.into_loads().map(move |load| Load {
            attempts: load.attempts + attempts,
            in_doubt: load.in_doubt || in_doubt,
            ..load
        })
    }

    /// Whether all its records belong to the range.
    pub(crate) fn is_at_home_in(&self, range: HashKeyRange) -> bool {
        let mut records = self.loads().iter().map(|load| load.put.record().to_record_ref());
        records.all(|record| range.contains(record.effective_hash_key()))
    }
}
