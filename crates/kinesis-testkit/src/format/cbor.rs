//! Records in CBOR, written by hand like those in JSON.

use serde::Serialize;

use crate::model::{GetRecordsOutput, RecordOutput, SubscribeToShardEvent};

/// Bytes of a record's CBOR apart from its data and key.
const RECORD_OVERHEAD: usize = 160;
/// Bytes of the rest of a reply.
const REPLY_OVERHEAD: usize = 1_024;

// Major types (RFC 8949, section 3.1), in the upper three bits.
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const UNSIGNED: u8 = 0;
/// The tag 1, a time since the epoch.
const EPOCH_TAG: u8 = (6 << 5) | 1;

pub(super) fn get_records(output: &GetRecordsOutput) -> Vec<u8> {
    let optional = [output.next_shard_iterator.is_some(), output.child_shards.is_some()];
    let mut out = begin(&output.records, members(2, optional), output.millis_behind_latest);
    if let Some(iterator) = &output.next_shard_iterator {
        text(&mut out, "NextShardIterator");
        text(&mut out, iterator);
    }
    if let Some(children) = &output.child_shards {
        text(&mut out, "ChildShards");
        derived(&mut out, children);
    }
    out
}

pub(super) fn event(event: &SubscribeToShardEvent) -> Vec<u8> {
    let optional = [event.continuation_sequence_number.is_some(), event.child_shards.is_some()];
    let mut out = begin(&event.records, members(2, optional), event.millis_behind_latest);
    if let Some(continuation) = &event.continuation_sequence_number {
        text(&mut out, "ContinuationSequenceNumber");
        text(&mut out, continuation.as_str());
    }
    if let Some(children) = &event.child_shards {
        text(&mut out, "ChildShards");
        derived(&mut out, children);
    }
    out
}

/// How many members a map has.
fn members(always: u64, optional: [bool; 2]) -> u64 {
    always + optional.iter().map(|given| u64::from(*given)).sum::<u64>()
}

/// A map that has its records and its lag so far.
fn begin(records: &[RecordOutput], members: u64, millis_behind: u64) -> Vec<u8> {
    let size = |record: &RecordOutput| {
        record.data.0.len() + record.partition_key.as_ref().map_or(0, |key| key.len()) + RECORD_OVERHEAD
    };
    let mut out = Vec::with_capacity(records.iter().map(size).sum::<usize>() + REPLY_OVERHEAD);
    head(&mut out, MAP, members);
    text(&mut out, "MillisBehindLatest");
    head(&mut out, UNSIGNED, millis_behind);
    text(&mut out, "Records");
    head(&mut out, ARRAY, records.len() as u64);
    for record in records {
        write_record(&mut out, record);
    }
    out
}

fn write_record(out: &mut Vec<u8>, record: &RecordOutput) {
    head(out, MAP, members(3, [record.partition_key.is_some(), record.encryption_type.is_some()]));
    text(out, "SequenceNumber");
    string(out, TEXT, record.sequence_number.as_bytes());
    text(out, "ApproximateArrivalTimestamp");
    out.push(EPOCH_TAG);
    head(out, UNSIGNED, record.approximate_arrival_timestamp.0.millis());
    text(out, "Data");
    string(out, BYTES, &record.data.0);
    if let Some(key) = &record.partition_key {
        text(out, "PartitionKey");
        text(out, key);
    }
    if let Some(kind) = record.encryption_type {
        text(out, "EncryptionType");
        text(out, kind);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    string(out, TEXT, text.as_bytes());
}

fn string(out: &mut Vec<u8>, major: u8, bytes: &[u8]) {
    head(out, major, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The head of an item: its major type and its number, in the shortest form.
fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    let bytes = number.to_be_bytes();
    match number {
        0..=23 => out.push(major | number as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, bytes[7]]),
        0x100..=0xffff => out.extend_from_slice(&[major | 25, bytes[6], bytes[7]]),
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}

fn derived(out: &mut Vec<u8>, value: &impl Serialize) {
    ciborium::into_writer(value, out).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use ciborium::Value;

    use super::*;
    use crate::format::samples;

    /// The members of every map in the order of their names, because the order says nothing.
    fn sorted(value: Value) -> Value {
        match value {
            Value::Map(members) => {
                let mut members: Vec<_> =
                    members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
                members.sort_by_key(|(name, _)| name.as_text().unwrap().to_owned());
                Value::Map(members)
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            other => other,
        }
    }

    fn value(cbor: &[u8]) -> Value {
        sorted(ciborium::from_reader(cbor).unwrap())
    }

    fn by_derive(output: &impl Serialize) -> Value {
        let mut cbor = Vec::new();
        derived(&mut cbor, output);
        value(&cbor)
    }

    #[test]
    fn the_bytes_are_those_of_the_derived_form() {
        for output in samples::pages() {
            assert_eq!(value(&get_records(&output)), by_derive(&output));
        }
        for pushed in samples::events() {
            assert_eq!(value(&event(&pushed)), by_derive(&pushed));
        }
    }

    #[test]
    fn heads_are_in_the_shortest_form() {
        for (number, length) in [(0, 1), (23, 1), (24, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 5)] {
            let mut out = Vec::new();
            head(&mut out, UNSIGNED, number);
            assert_eq!(out.len(), length);
            assert_eq!(ciborium::from_reader::<u64, _>(&out[..]).unwrap(), number);
        }
        let mut out = Vec::new();
        head(&mut out, UNSIGNED, u64::MAX);
        assert_eq!((out.len(), ciborium::from_reader::<u64, _>(&out[..]).unwrap()), (9, u64::MAX));
    }
}
