//! Open aggregates, and how they are closed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use bytes::Bytes;
use kinesis_core::OutboundRecord;
use kinesis_kpl::{Aggregator, AggregatorConfig, RecordRef, Refusal};

use super::parcel::{Load, Loads, Parcel};
use super::{Address, Group, Put};
use crate::ProducerConfig;
use crate::aggregation::Aggregation;
use crate::encoding::Encoding;

/// The most aggregates that grow at a time; one more closes the oldest. There are more shards in few streams, and more
/// keys only where keys hardly repeat.
const MAX_OPEN: usize = 10_000;

/// What an open aggregate counts of the byte budget besides its records.
const OPEN_OVERHEAD: usize = 1_024;

/// Aggregators that are kept to be used again, with their buffers.
const MAX_SPARE: usize = 64;

/// Packs records. Every record given to it is in an open aggregate or has left in a parcel.
#[derive(Debug)]
pub(crate) struct Packer<P> {
    /// `None` where nothing is aggregated.
    template: Option<Aggregator>,
    /// Compresses what leaves.
    encoding: Option<Encoding>,
    max_record_bytes: usize,
    open: HashMap<Group, Open<P>>,
    /// The open aggregates by their first records.
    order: BTreeMap<u64, Group>,
    open_bytes: usize,
    spare: Vec<Aggregator>,
}

#[derive(Debug)]
struct Open<P> {
    aggregator: Aggregator,
    loads: Vec<Load<P>>,
    address: Address,
}

impl<P> Open<P> {
    fn bytes(&self) -> usize {
        OPEN_OVERHEAD + self.aggregator.encoded_len()
    }
}

impl<P: Put> Packer<P> {
    /// Where records are compressed one by one, that has happened before.
    pub(crate) fn new(config: &ProducerConfig, encoding: Option<Encoding>) -> Self {
        Self {
            template: aggregator(config),
            encoding: encoding.filter(|_| !config.encodes_each()),
            max_record_bytes: config.max_record_bytes,
            open: HashMap::new(),
            order: BTreeMap::new(),
            open_bytes: 0,
            spare: Vec::new(),
        }
    }

    /// What the open aggregates count of the byte budget, besides their records.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// The oldest record in an open aggregate, with its serial.
    pub(crate) fn oldest(&self) -> Option<(u64, Instant)> {
        let (serial, group) = self.order.first_key_value()?;
        self.open.get(group)?.loads.first().map(|load| (*serial, load.admitted))
    }

    /// Packs a record; what leaves goes to `out`.
    pub(crate) fn push(&mut self, load: Load<P>, address: Address, out: &mut Vec<Parcel<P>>) {
        let Some(template) = &self.template else {
            return out.push(self.lone(load, address));
        };
        // Compressed already, because it would not fit otherwise: it must not be compressed again with others.
        if self.encoding.is_some() && load.put.encoded().is_some() {
            self.close(&address.group, out);
            return out.push(self.lone(load, address));
        }
        let open = match self.open.entry(address.group.clone()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let aggregator = self.spare.pop().unwrap_or_else(|| template.clone());
                place.insert(Open { aggregator, loads: Vec::new(), address: address.clone() })
            }
        };
        let before = open.bytes();
        let first = open.loads.is_empty();
        match open.aggregator.try_push(record_ref(&load)).map_err(|refused| refused.why) {
            Ok(()) => {
                if first {
                    self.order.insert(load.serial, address.group);
                    self.open_bytes += OPEN_OVERHEAD;
                }
                self.open_bytes += open.bytes() - before;
                open.loads.push(load);
                if self.open.len() > MAX_OPEN {
                    self.close_oldest(out);
                }
            }
            Err(Refusal::Full) if !first => {
                self.close(&address.group, out);
                self.push(load, address, out);
            }
            Err(_) => {
                self.close(&address.group, out);
                out.push(self.lone(load, address));
            }
        }
    }

    /// Closes the aggregates whose first record is not above `serial`, oldest first.
    pub(crate) fn close_through(&mut self, serial: u64, out: &mut Vec<Parcel<P>>) {
        while self.order.first_key_value().is_some_and(|(first, _)| *first <= serial) {
            self.close_oldest(out);
        }
    }

    fn close_oldest(&mut self, out: &mut Vec<Parcel<P>>) {
        if let Some((_, group)) = self.order.first_key_value() {
            let group = group.clone();
            self.close(&group, out);
        }
    }

    fn close(&mut self, group: &Group, out: &mut Vec<Parcel<P>>) {
        let Some(mut open) = self.remove(group) else { return };
        if let Some(packed) = open.aggregator.finish() {
            let framed = packed.is_framed();
            let loads = match (open.loads.len(), open.loads.pop()) {
                (1, Some(load)) => Loads::One(load),
                (_, last) => {
                    open.loads.extend(last);
                    Loads::Many(open.loads)
                }
            };
            out.push(self.parcel(packed.into(), loads, open.address, framed));
        }
        if self.spare.len() < MAX_SPARE {
            self.spare.push(open.aggregator);
        }
    }

    fn remove(&mut self, group: &Group) -> Option<Open<P>> {
        let open = self.open.remove(group)?;
        if let Some(first) = open.loads.first() {
            self.order.remove(&first.serial);
            self.open_bytes -= open.bytes();
        }
        Some(open)
    }

    /// Takes the records out of all open aggregates, in no particular order.
    pub(crate) fn take_all(&mut self) -> Vec<Load<P>> {
        self.order.clear();
        self.open_bytes = 0;
        self.open.drain().flat_map(|(_, open)| open.loads).collect()
    }

    fn lone(&self, load: Load<P>, address: Address) -> Parcel<P> {
        let record = load.put.record();
        let mut wire = OutboundRecord::new(record.partition_key.clone(), load.put.payload().clone());
        wire.explicit_hash_key = record.explicit_hash_key;
        self.parcel(wire, Loads::One(load), address, false)
    }

    fn parcel(&self, mut wire: OutboundRecord, loads: Loads<P>, address: Address, framed: bool) -> Parcel<P> {
        let mut own_bytes = if framed { wire.data.len() } else { 0 };
        if let Some(encoded) = self.encode(&wire, &loads) {
            own_bytes = encoded.len();
            wire.data = encoded;
        }
        let first = match &loads {
            Loads::One(load) => Some(load),
            // Records that are packed anew may come behind younger ones.
            Loads::Many(loads) => loads.iter().min_by_key(|load| load.serial),
        };
        let (serial, admitted) =
            first.map(|load| (load.serial, load.admitted)).expect("a parcel has at least one record");
        Parcel {
            size: wire.wire_len(),
            wire,
            loads,
            serial,
            admitted,
            attempts: 0,
            in_doubt: false,
            own_bytes,
            mixed: framed && !matches!(address.group, Group::Key(..)),
            lane: address.lane,
            shard: address.shard,
            epoch: address.epoch,
        }
    }

    /// The payload compressed, where that is to be and fits.
    fn encode(&self, wire: &OutboundRecord, loads: &Loads<P>) -> Option<Bytes> {
        let encoding = self.encoding.as_ref()?;
        if let Loads::One(load) = loads
            && load.put.encoded().is_some()
        {
            return None;
        }
        let key_len = wire.partition_key.byte_len();
        encoding.encode(&wire.data).filter(|encoded| encoded.len() + key_len <= self.max_record_bytes)
    }
}

/// The aggregator that a checked configuration asks for.
fn aggregator(config: &ProducerConfig) -> Option<Aggregator> {
    let settings = AggregatorConfig::default()
        .max_bytes(config.aggregate_bytes)
        .max_records(config.aggregate_records)
        .outer_key(config.outer_key);
    let make = || Aggregator::new(settings).expect("the configuration was checked");
    (config.aggregation != Aggregation::Off).then(make)
}

fn record_ref<P: Put>(load: &Load<P>) -> RecordRef<'_> {
    let record = load.put.record();
    RecordRef::new(record.partition_key.as_str(), load.put.payload())
        .explicit_hash_key(record.explicit_hash_key)
}
