//! Records in JSON, written by hand: they are nearly all of the traffic, and each byte is touched only once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::model::{GetRecordsOutput, RecordOutput, SubscribeToShardEvent};

/// Bytes of a record's JSON apart from its data and key.
const RECORD_OVERHEAD: usize = 200;
/// Bytes of the rest of a reply.
const REPLY_OVERHEAD: usize = 1_024;

pub(super) fn get_records(output: &GetRecordsOutput) -> Vec<u8> {
    let mut out = begin(&output.records);
    number(&mut out, ",\"MillisBehindLatest\":", output.millis_behind_latest);
    if let Some(iterator) = &output.next_shard_iterator {
        member(&mut out, ",\"NextShardIterator\":", iterator);
    }
    if let Some(children) = &output.child_shards {
        member(&mut out, ",\"ChildShards\":", children);
    }
    out.push(b'}');
    out
}

pub(super) fn event(event: &SubscribeToShardEvent) -> Vec<u8> {
    let mut out = begin(&event.records);
    number(&mut out, ",\"MillisBehindLatest\":", event.millis_behind_latest);
    if let Some(continuation) = &event.continuation_sequence_number {
        member(&mut out, ",\"ContinuationSequenceNumber\":", continuation);
    }
    if let Some(children) = &event.child_shards {
        member(&mut out, ",\"ChildShards\":", children);
    }
    out.push(b'}');
    out
}

/// An object that has its records so far.
fn begin(records: &[RecordOutput]) -> Vec<u8> {
    let size = |record: &RecordOutput| {
        let key = record.partition_key.as_ref().map_or(0, |key| key.len());
        record.data.0.len().div_ceil(3) * 4 + key + RECORD_OVERHEAD
    };
    let mut out = Vec::with_capacity(records.iter().map(size).sum::<usize>() + REPLY_OVERHEAD);
    out.extend_from_slice(b"{\"Records\":[");
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_record(&mut out, record);
    }
    out.push(b']');
    out
}

fn write_record(out: &mut Vec<u8>, record: &RecordOutput) {
    out.extend_from_slice(b"{\"SequenceNumber\":\"");
    // Digits only: nothing to escape.
    out.extend_from_slice(record.sequence_number.as_bytes());
    member(out, "\",\"ApproximateArrivalTimestamp\":", &record.approximate_arrival_timestamp);
    out.extend_from_slice(b",\"Data\":\"");
    let data = &record.data.0;
    let start = out.len();
    out.resize(start + data.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(data, &mut out[start..]).expect("the length of padded base64");
    out.truncate(start + written);
    out.push(b'"');
    if let Some(key) = &record.partition_key {
        member(out, ",\"PartitionKey\":", key.as_ref());
    }
    if let Some(kind) = record.encryption_type {
        member(out, ",\"EncryptionType\":", kind);
    }
    out.push(b'}');
}

fn member(out: &mut Vec<u8>, name: &str, value: &(impl serde::Serialize + ?Sized)) {
    out.extend_from_slice(name.as_bytes());
    serde_json::to_writer(out, value).expect("strings, numbers and plain structures");
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    member(out, name, &value);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::clock::Moment;
    use crate::model::{Blob, ChildShard, HashKeyRange, Timestamp};

    fn record(length: usize, key: Option<&str>) -> RecordOutput {
        RecordOutput {
            sequence_number: "49".repeat(28),
            approximate_arrival_timestamp: Timestamp(Moment::from_millis(1_767_225_600_123)),
            data: Blob(Bytes::from((0..length).map(|byte| byte as u8).collect::<Vec<_>>())),
            partition_key: key.map(Into::into),
            encryption_type: key.map(|_| "KMS"),
        }
    }

    fn value(json: &[u8]) -> serde_json::Value {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn the_text_is_that_of_the_derived_form() {
        let records: Vec<_> = (0..8)
            .map(|length| record(length, Some("a \"key\" \u{1f980}\n").filter(|_| length % 2 == 0)))
            .collect();
        let child = ChildShard {
            shard_id: "shardId-000000000001".to_owned(),
            parent_shards: vec!["shardId-000000000000".to_owned()],
            hash_key_range: HashKeyRange {
                starting_hash_key: "0".to_owned(),
                ending_hash_key: "9".to_owned(),
            },
        };
        for records in [Vec::new(), records] {
            for (text, children) in [(Some("x/+==".to_owned()), None), (None, Some(vec![child.clone()]))] {
                let output = GetRecordsOutput {
                    records: records.clone(),
                    next_shard_iterator: text.clone(),
                    millis_behind_latest: 17,
                    child_shards: children.clone(),
                };
                assert_eq!(value(&get_records(&output)), serde_json::to_value(&output).unwrap());
                let pushed = SubscribeToShardEvent {
                    records: records.clone(),
                    continuation_sequence_number: text,
                    millis_behind_latest: 0,
                    child_shards: children,
                };
                assert_eq!(value(&event(&pushed)), serde_json::to_value(&pushed).unwrap());
            }
        }
    }
}
