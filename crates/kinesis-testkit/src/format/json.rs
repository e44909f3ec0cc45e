//! Records in JSON, written by hand: they are nearly all of the traffic, and each byte is touched only once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::model::{GetRecordsOutput, PutRecordsOutput, PutResult, RecordOutput, SubscribeToShardEvent};

/// Bytes of a record's JSON apart from its data and key.
const RECORD_OVERHEAD: usize = 200;
/// Bytes of the rest of a reply.
const REPLY_OVERHEAD: usize = 1_024;
/// Bytes of the result of a record that was stored.
const RESULT_SIZE: usize = 128;

pub(super) fn get_records(output: &GetRecordsOutput) -> Vec<u8> {
    let mut out = begin(&output.records);
    member(&mut out, ",\"MillisBehindLatest\":", &output.millis_behind_latest);
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
    member(&mut out, ",\"MillisBehindLatest\":", &event.millis_behind_latest);
    if let Some(continuation) = &event.continuation_sequence_number {
        member(&mut out, ",\"ContinuationSequenceNumber\":", continuation);
    }
    if let Some(children) = &event.child_shards {
        member(&mut out, ",\"ChildShards\":", children);
    }
    out.push(b'}');
    out
}

pub(super) fn put_records(output: &PutRecordsOutput) -> Vec<u8> {
    let mut out = Vec::with_capacity(output.records.len() * RESULT_SIZE + REPLY_OVERHEAD);
    member(&mut out, "{\"FailedRecordCount\":", &output.failed_record_count);
    out.extend_from_slice(b",\"Records\":[");
    for (index, result) in output.records.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match result {
            PutResult { sequence_number: Some(number), shard_id: Some(shard), .. } => {
                out.extend_from_slice(b"{\"SequenceNumber\":\"");
                // Neither digits nor shard ids have anything to escape.
                out.extend_from_slice(number.as_bytes());
                out.extend_from_slice(b"\",\"ShardId\":\"");
                out.extend_from_slice(shard.as_bytes());
                out.extend_from_slice(b"\"}");
            }
            refused => member(&mut out, "", refused),
        }
    }
    out.push(b']');
    if let Some(kind) = output.encryption_type {
        member(&mut out, ",\"EncryptionType\":", kind);
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
    let mut times = Times::default();
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_record(&mut out, &mut times, record);
    }
    out.push(b']');
    out
}

/// The last time as text: neighbours mostly share theirs.
#[derive(Default)]
struct Times {
    millis: Option<u64>,
    text: Vec<u8>,
}

impl Times {
    fn text(&mut self, record: &RecordOutput) -> &[u8] {
        let time = &record.approximate_arrival_timestamp;
        let millis = time.0.millis();
        if self.millis != Some(millis) {
            self.millis = Some(millis);
            self.text.clear();
            member(&mut self.text, "", time);
        }
        &self.text
    }
}

fn write_record(out: &mut Vec<u8>, times: &mut Times, record: &RecordOutput) {
    out.extend_from_slice(b"{\"SequenceNumber\":\"");
    // Digits only: nothing to escape.
    out.extend_from_slice(record.sequence_number.as_bytes());
    out.extend_from_slice(b"\",\"ApproximateArrivalTimestamp\":");
    out.extend_from_slice(times.text(record));
    out.extend_from_slice(b",\"Data\":\"");
    let data = &record.data.0;
    let start = out.len();
    out.resize(start + data.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(data, &mut out[start..]).expect("the length of padded base64");
    out.truncate(start + written);
    out.push(b'"');
    if let Some(key) = &record.partition_key {
        out.extend_from_slice(b",\"PartitionKey\":");
        text(out, key);
    }
    if let Some(kind) = record.encryption_type {
        member(out, ",\"EncryptionType\":", kind);
    }
    out.push(b'}');
}

/// A text, copied as it is where nothing in it needs an escape.
fn text(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        member(out, "", text);
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &(impl serde::Serialize + ?Sized)) {
    out.extend_from_slice(name.as_bytes());
    serde_json::to_writer(out, value).expect("strings, numbers and plain structures");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::samples;

    fn value(json: &[u8]) -> serde_json::Value {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn the_text_is_that_of_the_derived_form() {
        for output in samples::pages() {
            assert_eq!(value(&get_records(&output)), serde_json::to_value(&output).unwrap());
        }
        for pushed in samples::events() {
            assert_eq!(value(&event(&pushed)), serde_json::to_value(&pushed).unwrap());
        }
        for results in samples::results() {
            assert_eq!(value(&put_records(&results)), serde_json::to_value(&results).unwrap());
        }
    }
}
