//! Replies of every shape, for tests of the formats.

use bytes::Bytes;

use crate::clock::Moment;
use crate::model::{
    Blob, ChildShard, GetRecordsOutput, HashKeyRange, PutRecordsOutput, PutResult, RecordOutput,
    SequenceText, SubscribeToShardEvent, Timestamp,
};

fn number(ordinal: u64) -> SequenceText {
    SequenceText::new(b"49", ordinal, (3, 10))
}

/// Records with data of many lengths, with and without keys, of several times.
fn records() -> Vec<RecordOutput> {
    let lengths = (0..30).chain([250, 255, 256, 70_000]);
    let record = |length: usize| {
        let key = match length % 4 {
            0 => None,
            1 => Some("plain key".to_owned()),
            2 => Some("a \"key\" \\ \u{1f980}\n\u{7f}".to_owned()),
            _ => Some("k".repeat(length.min(256))),
        };
        RecordOutput {
            sequence_number: number(length as u64),
            approximate_arrival_timestamp: Timestamp(Moment::from_millis(
                1_767_225_600_123 + length as u64 / 3,
            )),
            data: Blob(Bytes::from((0..length).map(|byte| byte as u8).collect::<Vec<_>>())),
            partition_key: key.map(Into::into),
            encryption_type: length.is_multiple_of(2).then_some("KMS"),
        }
    };
    lengths.map(record).collect()
}

fn children() -> Vec<ChildShard> {
    vec![ChildShard {
        shard_id: "shardId-000000000001".to_owned(),
        parent_shards: vec!["shardId-000000000000".to_owned()],
        hash_key_range: HashKeyRange { starting_hash_key: "0".to_owned(), ending_hash_key: "9".to_owned() },
    }]
}

pub(super) fn pages() -> Vec<GetRecordsOutput> {
    let page = |records, next_shard_iterator, child_shards| GetRecordsOutput {
        records,
        next_shard_iterator,
        millis_behind_latest: 17,
        child_shards,
    };
    vec![
        page(Vec::new(), Some("x/+==".to_owned()), None),
        page(records(), Some("x".to_owned()), None),
        page(records(), None, Some(children())),
        page(Vec::new(), None, Some(Vec::new())),
    ]
}

pub(super) fn events() -> Vec<SubscribeToShardEvent> {
    let event = |records, continuation_sequence_number, child_shards| SubscribeToShardEvent {
        records,
        continuation_sequence_number,
        millis_behind_latest: 70_000,
        child_shards,
    };
    vec![
        event(Vec::new(), Some(number(5)), None),
        event(records(), Some(number(u64::MAX)), None),
        event(records(), None, Some(children())),
    ]
}

pub(super) fn results() -> Vec<PutRecordsOutput> {
    let stored = PutResult {
        sequence_number: Some(number(9)),
        shard_id: Some("shardId-000000000003".into()),
        ..PutResult::default()
    };
    let refused = PutResult {
        error_code: Some("InternalFailure".to_owned()),
        error_message: Some("a \"reason\"".to_owned()),
        ..PutResult::default()
    };
    vec![
        PutRecordsOutput { failed_record_count: 0, records: vec![stored.clone()], encryption_type: None },
        PutRecordsOutput {
            failed_record_count: -1,
            records: vec![refused.clone(), stored, refused],
            encryption_type: Some("KMS"),
        },
    ]
}
