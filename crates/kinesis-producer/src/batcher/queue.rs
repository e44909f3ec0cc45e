//! Kinesis records that wait for a call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use crate::config::DEFAULT_MAX_RECORD_BYTES;
use crate::packing::{Lane, Parcel, Put};

/// Larger records go alone: the stream may have a lower limit than the producer, and the service then refuses the
/// whole call. Every stream takes records of this size.
const SHARES_CALL_UP_TO: usize = DEFAULT_MAX_RECORD_BYTES;

/// A lane with records in a call under way.
#[derive(Debug)]
struct Busy<P> {
    in_flight: usize,
    /// Further records of the lane: they wait for the call. One key is at home in one shard, whose limits are below what
    /// one call at a time carries.
    parked: Vec<Parcel<P>>,
}

/// Records that wait: ready ones in the order of admission, ones whose lane is in flight, and ones that are to be
/// repeated later.
#[derive(Debug)]
pub(super) struct Queue<P> {
    /// Ascending serials; no lane is in `lanes`.
    ready: VecDeque<Parcel<P>>,
    ready_bytes: usize,
    lanes: HashMap<Lane, Busy<P>>,
    parked: usize,
    retries: BTreeMap<(Instant, u64), Parcel<P>>,
}

impl<P: Put> Queue<P> {
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
    pub(super) fn front(&self) -> Option<&Parcel<P>> {
        self.ready.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Parcel<P>> {
        let item = self.ready.pop_front()?;
        self.ready_bytes -= item.size;
        Some(item)
    }

    /// Adds a record in its place.
    pub(super) fn push(&mut self, item: Parcel<P>) {
        if let Some(lane) = self.lanes.get_mut(&item.lane) {
            lane.parked.push(item);
            self.parked += 1;
            return;
        }
        self.ready_bytes += item.size;
        // Mostly at the end; an aggregate closes behind younger records.
        if self.ready.back().is_none_or(|last| last.serial < item.serial) {
            self.ready.push_back(item);
        } else {
            let place = self.ready.partition_point(|other| other.serial < item.serial);
            self.ready.insert(place, item);
        }
    }

    /// Takes all records out that match, in no particular order; none of them is in flight.
    pub(super) fn take_if(&mut self, matches: impl Fn(&Parcel<P>) -> bool) -> Vec<Parcel<P>> {
        let mut taken = Vec::new();
        let ready = std::mem::take(&mut self.ready);
        self.ready_bytes = 0;
        for item in ready {
            if matches(&item) {
                taken.push(item);
            } else {
                self.ready_bytes += item.size;
                self.ready.push_back(item);
            }
        }
        for lane in self.lanes.values_mut() {
            let out = lane.parked.extract_if(.., |item| matches(item));
            taken.extend(out);
        }
        self.parked = self.lanes.values().map(|lane| lane.parked.len()).sum();
        taken.extend(self.retries.extract_if(.., |_, item| matches(item)).map(|(_, item)| item));
        taken
    }

    /// Keeps a record until `due`.
    pub(super) fn push_retry(&mut self, due: Instant, item: Parcel<P>) {
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

    /// Takes the records of the next call: the oldest ones of one epoch, as many as the limits allow. Their lanes are in
    /// flight from now on.
    pub(super) fn take_batch(&mut self, most_records: usize, most_bytes: usize) -> Vec<Parcel<P>> {
        let mut batch = Vec::with_capacity(self.ready.len().min(most_records));
        let mut bytes = 0;
        let epoch = self.ready.front().map(|front| front.epoch);
        while let Some(front) = self.ready.front() {
            let alone = front.size > SHARES_CALL_UP_TO;
            let full = batch.len() == most_records || bytes + front.size > most_bytes;
            // The first one always fits: records are checked against the limits when they are put.
            if !batch.is_empty() && (full || alone || Some(front.epoch) != epoch) {
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
            let lane = self.lanes.entry(item.lane.clone());
            lane.or_insert_with(|| Busy { in_flight: 0, parked: Vec::new() }).in_flight += 1;
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
    pub(super) fn release_lanes(&mut self, items: &[Parcel<P>]) {
        let mut unparked = false;
        for item in items {
            let Some(lane) = self.lanes.get_mut(&item.lane) else { continue };
            lane.in_flight -= 1;
            if lane.in_flight == 0
                && let Some(lane) = self.lanes.remove(&item.lane)
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
    pub(super) fn take_all(&mut self) -> Vec<Parcel<P>> {
        let Self { ready, lanes, retries, .. } = std::mem::replace(self, Self::new());
        let parked = lanes.into_values().flat_map(|lane| lane.parked);
        ready.into_iter().chain(parked).chain(retries.into_values()).collect()
    }

    fn restore_order(&mut self) {
        // Made of sorted runs, for which a stable sort takes linear time.
        self.ready.make_contiguous().sort_by_key(|item| item.serial);
    }
}
