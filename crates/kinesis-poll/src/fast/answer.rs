//! The JSON of a GetRecords answer: records, and the rest as it came.

use std::borrow::Cow;

use aws_sdk_kinesis::primitives::DateTime;
use bytes::Bytes;
use kinesis_core::aws::timestamp;
use kinesis_core::source::SourceRecord;
use kinesis_core::{Encryption, PartitionKey};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer<'a> {
    #[serde(borrow)]
    records: Vec<Record<'a>>,
    #[serde(borrow)]
    next_shard_iterator: Option<&'a RawValue>,
    #[serde(borrow)]
    millis_behind_latest: Option<&'a RawValue>,
    #[serde(borrow)]
    child_shards: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record<'a> {
    #[serde(borrow)]
    sequence_number: Cow<'a, str>,
    #[serde(borrow)]
    data: Cow<'a, str>,
    #[serde(borrow)]
    partition_key: Option<Text<'a>>,
    approximate_arrival_timestamp: Option<f64>,
    #[serde(borrow)]
    encryption_type: Option<Text<'a>>,
}

/// `Option<Cow<str>>` alone would be copied.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The records and an answer without them; `None` for what the SDK had better look at.
pub(super) fn decode(body: &[u8]) -> Option<(Vec<SourceRecord>, Bytes)> {
    let answer: Answer<'_> = serde_json::from_slice(body).ok()?;
    // One buffer for all payloads, which the records share.
    let most = answer.records.iter().map(|record| record.data.len() / 4 * 3 + 3).sum();
    let mut buffer = Vec::with_capacity(most);
    let mut ends = Vec::with_capacity(answer.records.len());
    for record in &answer.records {
        base64_simd::STANDARD.decode_append(record.data.as_bytes(), &mut buffer).ok()?;
        ends.push(buffer.len());
    }
    let buffer = Bytes::from(buffer);
    let mut start = 0;
    let mut records = Vec::with_capacity(ends.len());
    for (record, end) in answer.records.iter().zip(ends) {
        let key = record.partition_key.as_ref().map(|key| PartitionKey::from(&*key.0));
        let mut taken =
            SourceRecord::new(record.sequence_number.parse().ok()?, key, buffer.slice(start..end));
        let arrived = record.approximate_arrival_timestamp;
        taken.arrived_at = arrived.map(|seconds| timestamp(&DateTime::from_secs_f64(seconds)));
        if record.encryption_type.as_ref().is_some_and(|kind| kind.0 == "KMS") {
            taken.encryption = Encryption::Kms;
        }
        records.push(taken);
        start = end;
    }
    Some((records, rest(&answer)))
}

fn rest(answer: &Answer<'_>) -> Bytes {
    let mut text = String::from(r#"{"Records":[]"#);
    let fields = [
        ("NextShardIterator", answer.next_shard_iterator),
        ("MillisBehindLatest", answer.millis_behind_latest),
        ("ChildShards", answer.child_shards),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            text.extend([",\"", name, "\":", value.get()]);
        }
    }
    text.push('}');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(body: &str) -> (Vec<SourceRecord>, String) {
        let (records, rest) = decode(body.as_bytes()).unwrap();
        (records, String::from_utf8(rest.to_vec()).unwrap())
    }

    #[test]
    fn records_are_taken_out_and_the_rest_stays() {
        let (records, rest) = decoded(
            r#" {"MillisBehindLatest": 7, "New":{"a":[1]}, "NextShardIterator":"A\"\u0041\/", "Records":[
            {"ApproximateArrivalTimestamp":1.7E9,"Data":"aGVsbG8=","PartitionKey":"k\u00e9y\"","SequenceNumber":"12"},
            {"Data":"","SequenceNumber":"13","EncryptionType":"KMS","PartitionKey":null},
            {"Data":"\/\/8=","SequenceNumber":"14","EncryptionType":"NONE"}],"ChildShards":[{"ShardId":"s"}]} "#,
        );
        assert_eq!(
            rest,
            r#"{"Records":[],"NextShardIterator":"A\"\u0041\/","MillisBehindLatest":7,"ChildShards":[{"ShardId":"s"}]}"#
        );
        let payloads: Vec<_> = records.iter().map(|record| record.data.to_vec()).collect();
        assert_eq!(payloads, [b"hello".to_vec(), Vec::new(), vec![255, 255]]);
        assert_eq!(records[0].partition_key.as_ref().unwrap().as_str(), "k\u{e9}y\"");
        assert!(records[1].partition_key.is_none() && records[1].arrived_at.is_none());
        assert_eq!(records[0].arrived_at.unwrap().as_millis(), 1_700_000_000_000);
        let kms: Vec<_> = records.iter().map(|record| record.encryption == Encryption::Kms).collect();
        assert_eq!(kms, [false, true, false]);
        assert_eq!(records[2].sequence, 14.into());
    }

    #[test]
    fn what_is_not_understood_is_left_to_the_sdk() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"Records":null}"#,
            r#"{"Records":[{"SequenceNumber":"1"}]}"#,
            r#"{"Records":[{"SequenceNumber":"x","Data":""}]}"#,
            r#"{"Records":[{"SequenceNumber":"1","Data":"%%"}]}"#,
            r#"{"Records":[{"SequenceNumber":"1","Data":"aGVsbG8"#,
        ] {
            assert!(decode(body.as_bytes()).is_none(), "{body}");
        }
    }
}
