//! What goes out, byte by byte.

use std::time::Instant;

use bytes::Bytes;
use kinesis_core::payload::{EncodeError, PayloadEncoder};
use kinesis_core::{HashKey, OutboundRecord};
use kinesis_kpl::{
    Aggregator, AggregatorConfig, Deaggregated, OuterKey, Refusal, ToRecordRef as _, deaggregate,
};
use proptest::prelude::*;

use super::*;
use crate::ProducerConfig;
use crate::aggregation::Aggregation;
use crate::encoding::Encoding;

#[derive(Debug)]
struct Plain(OutboundRecord, Option<Bytes>);

impl Put for Plain {
    fn record(&self) -> &OutboundRecord {
        &self.0
    }

    fn encoded(&self) -> Option<&Bytes> {
        self.1.as_ref()
    }
}

/// Drops what is in the middle of long payloads, and fails for those that ask for it.
#[derive(Debug)]
struct Cutter;

impl PayloadEncoder for Cutter {
    fn name(&self) -> &'static str {
        "cutter"
    }

    fn encode(&self, payload: &Bytes) -> Result<Bytes, EncodeError> {
        if payload.ends_with(b"broken") {
            return Err(EncodeError::new("cutter", "it broke"));
        }
        Ok(if payload.len() > 8 { Bytes::copy_from_slice(&payload[..4]) } else { payload.clone() })
    }
}

fn config(aggregation: Aggregation, aggregate_bytes: usize) -> ProducerConfig {
    ProducerConfig { aggregation, aggregate_bytes, ..ProducerConfig::default() }
}

fn load(serial: usize, put: Plain) -> Load<Plain> {
    Load { serial: serial as u64, admitted: Instant::now(), attempts: 0, in_doubt: false, put }
}

/// All parcels of these records, packed as one group.
fn parcels(packer: &mut Packer<Plain>, puts: Vec<Plain>) -> Vec<Parcel<Plain>> {
    let mut out = Vec::new();
    for (serial, put) in puts.into_iter().enumerate() {
        let address = Address { group: Group::All, lane: Lane::All, shard: None, epoch: 0 };
        packer.push(load(serial, put), address, &mut out);
    }
    packer.close_through(u64::MAX, &mut out);
    assert_eq!((packer.open_bytes(), packer.oldest()), (0, None));
    out
}

fn plain(records: &[OutboundRecord]) -> Vec<Plain> {
    records.iter().map(|record| Plain(record.clone(), None)).collect()
}

fn contents(parcel: &Parcel<Plain>) -> Vec<(String, Option<HashKey>, Bytes)> {
    match deaggregate(parcel.wire.data.clone()) {
        Deaggregated::Records(aggregate) => aggregate
            .into_records()
            .map(|record| {
                let explicit = record.explicit_hash_key.and_then(|key| key.hash_key());
                (record.partition_key.as_str().to_owned(), explicit, record.data)
            })
            .collect(),
        _ => vec![as_put(&parcel.wire)],
    }
}

fn as_put(record: &OutboundRecord) -> (String, Option<HashKey>, Bytes) {
    (record.partition_key.as_str().to_owned(), record.explicit_hash_key, record.data.clone())
}

fn records() -> impl Strategy<Value = Vec<OutboundRecord>> {
    let record = (0_usize..2_000, "[a-zäß]{1,20}", prop::option::of(any::<u128>()), 0_usize..4).prop_map(
        |(len, key, explicit, same)| {
            let key = if same == 0 { key } else { "same".to_owned() };
            let mut record = OutboundRecord::new(key.as_str(), vec![b'x'; len]);
            record.explicit_hash_key = explicit.filter(|_| same == 1).map(HashKey::new);
            record
        },
    );
    prop::collection::vec(record, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// S-127, F-31, F-44: an aggregate with its key is never larger than the limit, and is closed only when the next
    /// record would make it so; a record that does not fit goes alone; all come out as they went in.
    #[test]
    fn aggregates_are_as_full_as_the_limit_allows(records in records(), limit in 64_usize..4_000) {
        let config = config(Aggregation::FirstKey, limit);
        let parcels = parcels(&mut Packer::new(&config, None), plain(&records));
        let unpacked: Vec<_> = parcels.iter().flat_map(contents).collect();
        prop_assert_eq!(unpacked, records.iter().map(as_put).collect::<Vec<_>>());

        let mut checker = Aggregator::new(AggregatorConfig::default().max_bytes(limit)).unwrap();
        let mut next = 0;
        for parcel in &parcels {
            prop_assert_eq!(parcel.size, parcel.wire.wire_len());
            prop_assert_eq!(&parcel.wire.partition_key, &records[next].partition_key);
            checker.clear();
            let mut alone = false;
            for record in &records[next..next + parcel.loads().len()] {
                let pushed = checker.try_push(record.to_record_ref());
                alone |= pushed.is_err_and(|refused| refused.why == Refusal::SendAlone);
            }
            next += parcel.loads().len();
            prop_assert!(parcel.size <= limit || (alone && parcel.loads().len() == 1));
            if let Some(more) = records.get(next).filter(|_| !alone) {
                prop_assert!(checker.try_push(more.to_record_ref()).is_err(), "the next one would have fitted");
            }
        }
        prop_assert_eq!(next, records.len());
    }
}

/// S-127: with the limit at 1 MB, records fill an aggregate to the last byte, and one byte more starts the next one.
#[test]
fn a_megabyte_is_filled_to_the_last_byte() {
    const LIMIT: usize = 1024 * 1024;
    let records = |last: usize| {
        let mut records = vec![OutboundRecord::new("key", vec![0; 1_000]); 1_000];
        records.push(OutboundRecord::new("key", vec![0; last]));
        records
    };
    let pack = |last| {
        let packer = &mut Packer::new(&config(Aggregation::ByKey, LIMIT), None);
        let parcels = parcels(packer, plain(&records(last)));
        parcels.iter().map(|parcel| (parcel.size, parcel.loads().len())).collect::<Vec<_>>()
    };
    let room = LIMIT - pack(20_000)[0].0;
    assert_eq!(pack(20_000 + room), [(LIMIT, 1_001)]);
    assert_eq!(pack(20_000 + room + 1)[0].1, 1_000);
}

/// S-128: the outer key is the first record's, or the KPL's with the hash key of the first record, which is the same
/// place.
#[test]
fn the_outer_key_is_a_choice() {
    let records = [OutboundRecord::new("first", "1"), OutboundRecord::new("second", "2")];
    let outer = |outer_key| {
        let config = ProducerConfig { outer_key, ..config(Aggregation::FirstKey, 51_200) };
        let wire = parcels(&mut Packer::new(&config, None), plain(&records)).remove(0).wire;
        let hash = wire.to_record_ref().effective_hash_key();
        (wire.partition_key.as_str().to_owned(), hash)
    };
    assert_eq!(outer(OuterKey::First), ("first".to_owned(), kinesis_kpl::hash_key("first")));
    assert_eq!(outer(OuterKey::Kpl), ("a".to_owned(), kinesis_kpl::hash_key("first")));
}

/// S-130: the aggregate is made first and encoded as a whole; a lone record is encoded too.
#[test]
fn an_aggregate_is_encoded_as_a_whole() {
    let records = [OutboundRecord::new("key", "the first"), OutboundRecord::new("key", "the second")];
    let config = config(Aggregation::ByKey, 51_200);
    let packer = &mut Packer::new(&config, Some(Encoding::new(Cutter)));
    let wire = parcels(packer, plain(&records)).remove(0).wire;
    assert_eq!(wire.data, kinesis_kpl::MAGIC.as_slice(), "the beginning of an aggregate");
    let parcel = parcels(packer, plain(&records[..1])).remove(0);
    assert_eq!((parcel.wire.data, parcel.size, parcel.own_bytes), ("the ".into(), 4 + 3, 4));
}

/// F-44: what the encoder leaves alone or fails for goes out as it is.
#[test]
fn what_is_not_encoded_goes_out_as_it_is() {
    let config = config(Aggregation::ByKey, 51_200);
    let packer = &mut Packer::new(&config, Some(Encoding::new(Cutter)));
    for payload in ["short", "long, but broken"] {
        let parcel = parcels(packer, plain(&[OutboundRecord::new("key", payload)])).remove(0);
        assert_eq!((parcel.wire.data, parcel.own_bytes), (payload.into(), 0));
    }
}

/// F-44: a record that fits only when it is encoded is encoded once, and goes alone.
#[test]
fn what_is_encoded_already_goes_alone() {
    let config = config(Aggregation::ByKey, 51_200);
    let packer = &mut Packer::new(&config, Some(Encoding::new(Cutter)));
    let small = || Plain(OutboundRecord::new("key", "tiny"), None);
    let large = Plain(OutboundRecord::new("key", "large in the beginning"), Some("encoded and long".into()));
    let parcels = parcels(packer, vec![small(), large, small(), small()]);
    let sizes: Vec<_> = parcels.iter().map(|parcel| parcel.loads().len()).collect();
    assert_eq!((sizes, &parcels[1].wire.data[..]), (vec![1, 1, 2], b"encoded and long".as_slice()));
}

/// More open aggregates than are kept close the oldest.
#[test]
fn open_aggregates_are_limited() {
    let mut packer = Packer::new(&config(Aggregation::ByKey, 51_200), None);
    let mut out = Vec::new();
    for serial in 0..10_003 {
        let record = OutboundRecord::new(serial.to_string(), "x");
        let address = Address::of_key(&record, 0);
        packer.push(load(serial, Plain(record, None)), address, &mut out);
    }
    let closed: Vec<_> = out.iter().map(|parcel| parcel.serial).collect();
    assert_eq!((closed, packer.oldest().map(|(serial, _)| serial)), (vec![0, 1, 2], Some(3)));
}
