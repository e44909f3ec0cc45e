//! Records that wait for a call.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use kinesis_core::{OutboundRecord, PartitionKey};

use crate::config::DEFAULT_MAX_RECORD_BYTES;

/// Larger records go alone: the stream may have a lower limit than the producer, and the service then refuses the
/// whole call. Every stream takes records of this size.
const SHARES_CALL_UP_TO: usize = DEFAULT_MAX_RECORD_BYTES;

/// A record on its way.
#[derive(Debug)]
pub(super) struct Item<P> {
    /// Its place in the order of admission.
    pub(super) serial: u64,
    /// What the service counts: payload and key, in bytes.
    pub(super) size: usize,
    pub(super) admitted: Instant,
    /// Calls that carried it, one under way included.
    pub(super) attempts: u32,
    /// Whether one of them may have stored it without saying so.
    pub(super) in_doubt: bool,
    pub(super) pending: P,
}

impl<P: Borrow<OutboundRecord>> Item<P> {
    pub(super) fn record(&self) -> &OutboundRecord {
        self.pending.borrow()
    }

    fn key(&self) -> &PartitionKey {
        &self.record().partition_key
    }
}

/// A key with records in a call under way.
#[derive(Debug)]
struct Lane<P> {
    in_flight: usize,
    /// Further records of the key: they wait for the call, so that calls cannot overtake each other within a key.
    /// One key is at home in one shard, whose limits are below what one call at a time carries.
    parked: Vec<Item<P>>,
}

/// Records that wait: ready ones in the order of admission, ones whose key is in flight, and ones that are to be
/// repeated later.
#[derive(Debug)]
pub(super) struct Queue<P> {
    /// Ascending serials; no key is in `lanes`.
    ready: VecDeque<Item<P>>,
    ready_bytes: usize,
    lanes: HashMap<PartitionKey, Lane<P>>,
    parked: usize,
    retries: BTreeMap<(Instant, u64), Item<P>>,
}

impl<P: Borrow<OutboundRecord>> Queue<P> {
    pub(super) fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            ready_bytes: 0,
            lanes: HashMap::new(),
            parked: 0,
            retries: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.parked + self.retries.len()
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// The oldest of the records that could go into a call.
    pub(super) fn front(&self) -> Option<&Item<P>> {
        self.ready.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Item<P>> {
        let item = self.ready.pop_front()?;
        self.ready_bytes -= item.size;
        Some(item)
    }

    /// Adds a record; its serial is the highest so far.
    pub(super) fn push(&mut self, item: Item<P>) {
        if let Some(lane) = self.lanes.get_mut(item.key()) {
            lane.parked.push(item);
            self.parked += 1;
        } else {
            self.ready_bytes += item.size;
            self.ready.push_back(item);
        }
    }

    /// Keeps a record until `due`.
    pub(super) fn push_retry(&mut self, due: Instant, item: Item<P>) {
        self.retries.insert((due, item.serial), item);
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.first_key_value().map(|((due, _), _)| *due)
    }

    /// Puts the records to be repeated by now back in their order; the highest of their serials, if there were any.
    pub(super) fn take_due_retries(&mut self, now: Instant) -> Option<u64> {
        let mut last = None;
        while let Some(entry) = self.retries.first_entry()
            && entry.key().0 <= now
        {
            let item = entry.remove();
            last = last.max(Some(item.serial));
            self.push(item);
        }
        if last.is_some() {
            self.restore_order();
        }
        last
    }

    /// Takes the records of the next call: the oldest ones, as many as the limits allow. Their keys are in flight
    /// from now on.
    pub(super) fn take_batch(&mut self, most_records: usize, most_bytes: usize) -> Vec<Item<P>> {
        let mut batch = Vec::with_capacity(self.ready.len().min(most_records));
        let mut bytes = 0;
        while let Some(front) = self.ready.front() {
            let alone = front.size > SHARES_CALL_UP_TO;
            let full = batch.len() == most_records || bytes + front.size > most_bytes;
            // The first one always fits: records are checked against the limits when they are put.
            if !batch.is_empty() && (full || alone) {
                break;
            }
            let item = self.pop_front().expect("there is a front");
            bytes += item.size;
            batch.push(item);
            if alone {
                break;
            }
        }
        for item in &batch {
            let lane = self.lanes.entry(item.key().clone());
            lane.or_insert_with(|| Lane { in_flight: 0, parked: Vec::new() }).in_flight += 1;
        }
        if !self.ready.is_empty() {
            self.ready_bytes = 0;
            for item in std::mem::take(&mut self.ready) {
                self.push(item);
            }
        }
        batch
    }

    /// The call that carried these records ended.
    pub(super) fn release_keys(&mut self, items: &[Item<P>]) {
        let mut unparked = false;
        for item in items {
            let Some(lane) = self.lanes.get_mut(item.key()) else { continue };
            lane.in_flight -= 1;
            if lane.in_flight == 0
                && let Some(lane) = self.lanes.remove(item.key())
            {
                unparked |= !lane.parked.is_empty();
                self.parked -= lane.parked.len();
                self.ready_bytes += lane.parked.iter().map(|item| item.size).sum::<usize>();
                self.ready.extend(lane.parked);
            }
        }
        if unparked {
            self.restore_order();
        }
    }

    /// Takes everything, in no particular order. Nothing is in flight any more.
    pub(super) fn take_all(&mut self) -> Vec<Item<P>> {
        let Self { ready, lanes, retries, .. } = std::mem::replace(self, Self::new());
        let parked = lanes.into_values().flat_map(|lane| lane.parked);
        ready.into_iter().chain(parked).chain(retries.into_values()).collect()
    }

    fn restore_order(&mut self) {
        // Made of sorted runs, for which a stable sort takes linear time.
        self.ready.make_contiguous().sort_by_key(|item| item.serial);
    }
}
