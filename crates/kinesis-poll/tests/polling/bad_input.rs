//! What the service should not send, or rarely sends: handled or reported, never a panic.

use std::sync::Mutex;

use crate::support::*;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{RecordDistributionStrategy, StreamMode, StreamModeDetails};
use aws_smithy_types::body::SdkBody;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent, SourceRecord};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_poll::{PollConfig, PollReader, PollSource};
use kinesis_testkit::{Operation, TestKinesis};

fn sources(client: &Client) -> Vec<PollSource> {
    decoders(client, PollConfig::default())
}

/// Reads records whole.
async fn records(reader: &mut PollReader, count: usize) -> Vec<SourceRecord> {
    let mut all = Vec::new();
    while all.len() < count {
        if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
            all.extend(batch.records);
        }
    }
    all
}

/// Records without a partition key, of streams that distribute records by themselves, and without data.
#[tokio::test(start_paused = true)]
async fn records_without_key_or_data_are_records() {
    let kinesis = TestKinesis::new();
    let client = kinesis.client();
    let on_demand = StreamModeDetails::builder().stream_mode(StreamMode::OnDemand).build().unwrap();
    let create = client.create_stream().stream_name(STREAM).stream_mode_details(on_demand);
    create.record_distribution_strategy(RecordDistributionStrategy::Auto).send().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let put = client.put_record().stream_name(STREAM).data(Blob::new("")).send().await.unwrap();
    let shard = ShardRef::new(STREAM.parse().unwrap(), put.shard_id.parse().unwrap());
    for source in sources(&client) {
        let request = OpenShard::new(shard.clone(), StartPosition::TrimHorizon);
        let read = records(&mut source.reader(request), 1).await;
        assert!(read[0].data.is_empty());
        assert_eq!(read[0].partition_key, None);
        assert!(read[0].arrived_at.is_some());
    }
}

/// Records of the largest size that a stream can allow arrive whole, also with a smaller buffer.
#[tokio::test(start_paused = true)]
async fn records_of_ten_mebibytes_arrive_whole() {
    const SIZE: usize = 10 * 1024 * 1024 - 3;
    let kinesis = service(1);
    let update = kinesis.client().update_max_record_size().stream_arn(kinesis.stream_arn(STREAM));
    update.max_record_size_in_kib(10_240).send().await.unwrap();
    tokio::time::sleep(SECOND).await;
    for byte in [b'a', b'b'] {
        kinesis.put(STREAM, "key", vec![byte; SIZE]).unwrap();
    }
    for source in sources(&kinesis.client()) {
        let request = OpenShard::new(shard(0), StartPosition::TrimHorizon).buffer_bytes(1_000_000);
        let read = records(&mut source.reader(request), 2).await;
        for (record, byte) in read.iter().zip([b'a', b'b']) {
            assert_eq!(record.data.len(), SIZE);
            assert!(record.data.iter().all(|found| *found == byte));
        }
    }
}

/// Puts these bodies in the place of the first answers of GetRecords.
fn answered(kinesis: &TestKinesis, bodies: &[&str]) -> Client {
    let bodies = Mutex::new(bodies.iter().rev().map(|body| (*body).to_owned()).collect::<Vec<_>>());
    with_bodies(&kinesis.client(), move |_| bodies.lock().unwrap().pop().map(SdkBody::from))
}

/// F-17: an empty iterator is neither used nor taken for the end of the shard: a new one goes on behind the last record.
#[tokio::test(start_paused = true)]
async fn an_empty_iterator_is_no_end() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..6);
    let record = |n: usize| {
        let number = &numbers[n];
        format!(r#"{{"SequenceNumber":"{number}","Data":"{}","PartitionKey":"key"}}"#, ["MA==", "MQ=="][n])
    };
    let page = format!(
        r#"{{"Records":[{},{}],"NextShardIterator":"","MillisBehindLatest":9}}"#,
        record(0),
        record(1)
    );
    let empty = r#"{"Records":[],"NextShardIterator":"","MillisBehindLatest":9}"#;
    for decoder in 0..sources(&kinesis.client()).len() {
        kinesis.clear_calls();
        let source = sources(&answered(&kinesis, &[&page, empty])).swap_remove(decoder);
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        let heard = read(&mut reader, 6).await;
        assert_eq!((heard.payloads, heard.others.len()), (expected(0..6), 0));
        let starts: Vec<_> = kinesis
            .calls_of(Operation::GetShardIterator)
            .into_iter()
            .map(|call| (call.iterator_type.unwrap(), call.sequence_number))
            .collect();
        let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[1].clone()));
        assert_eq!(starts, [("TRIM_HORIZON".to_owned(), None), after.clone(), after]);
    }
}

/// F-17: with children it is the end.
#[tokio::test(start_paused = true)]
async fn an_empty_iterator_with_children_is_the_end() {
    let kinesis = service(1);
    let child = r#"{"ShardId":"shardId-000000000001","ParentShards":["shardId-000000000000"],
        "HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"}}"#;
    let last =
        format!(r#"{{"Records":[],"NextShardIterator":"","MillisBehindLatest":0,"ChildShards":[{child}]}}"#);
    let client = answered(&kinesis, &[&last]);
    let source = sources(&client).pop().unwrap();
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let SourceEvent::Ended { children } = reader.next().await.unwrap() else { panic!("the end") };
    assert_eq!(children.len(), 1);
}

/// Answers that make no sense are failures: reported when they last, tried again, and without the payload in any text.
#[tokio::test(start_paused = true)]
async fn answers_that_make_no_sense_are_tried_again() {
    let good = r#"{"SequenceNumber":"49","Data":"c2VjcmV0","PartitionKey":"secret"}"#;
    let page = |record: &str| {
        format!(r#"{{"Records":[{good},{record}],"NextShardIterator":"next","MillisBehindLatest":9}}"#)
    };
    for record in [
        r#"{"SequenceNumber":"secret","Data":"c2VjcmV0","PartitionKey":"secret"}"#,
        r#"{"SequenceNumber":"","Data":"c2VjcmV0","PartitionKey":"secret"}"#,
        r#"{"SequenceNumber":"-7","Data":"c2VjcmV0","PartitionKey":"secret"}"#,
        r#"{"SequenceNumber":"50","Data":"*secret*","PartitionKey":"secret"}"#,
        r#"{"SequenceNumber":"50","Data":"c2VjcmV0","PartitionKey":["secret"]}"#,
        "7",
        "}{",
    ] {
        let kinesis = service(1);
        put(&kinesis, 0..3);
        let body = page(record);
        let bodies = [body.as_str(); 12];
        for source in sources(&answered(&kinesis, &bodies)) {
            let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
            let heard = read(&mut reader, 3).await;
            assert_eq!(heard.payloads, expected(0..3), "{record}");
            let text = format!("{:?}", heard.others);
            assert!(!text.contains("secret") && !text.contains("c2VjcmV0"), "{record}: {text}");
        }
    }
}
