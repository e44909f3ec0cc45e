//! What the service should not send, or rarely sends: handled or reported, never a panic.

use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{RecordDistributionStrategy, StreamMode, StreamModeDetails};
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent, SourceRecord};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, TestKinesis};

/// Reads records whole.
async fn records(reader: &mut kinesis_efo::EfoReader, count: usize) -> Vec<SourceRecord> {
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
    let source = source(client, config());
    let read = records(&mut source.reader(OpenShard::new(shard, StartPosition::TrimHorizon)), 1).await;
    assert!(read[0].data.is_empty());
    assert_eq!(read[0].partition_key, None);
    assert!(read[0].arrived_at.is_some());
}

/// Records of the largest size that a stream can allow arrive whole, cut into whatever pieces.
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
    let pieces = Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Pieces(65_521));
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(pieces);
    let read = records(&mut reader(&kinesis, StartPosition::TrimHorizon), 2).await;
    for (record, byte) in read.iter().zip([b'a', b'b']) {
        assert_eq!(record.data.len(), SIZE);
        assert!(record.data.iter().all(|found| *found == byte));
    }
}

/// Frames in the smallest pieces, a missing initial response, events of a type that nobody knows.
#[tokio::test(start_paused = true)]
async fn odd_streams_are_read() {
    let faults = [
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Pieces(1)),
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Pieces(7)),
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::OmitInitialResponse),
        Fault::in_stream(
            StreamPoint::AfterEvents(0),
            StreamFault::UnknownEvent { kind: "NewEvent".to_owned() },
        ),
        Fault::in_stream(
            StreamPoint::AfterEvents(1),
            StreamFault::UnknownEvent { kind: "NewEvent".to_owned() },
        ),
    ];
    for fault in faults {
        let kinesis = with_stream(TestKinesis::builder().records_per_event(3).build(), 1);
        put(&kinesis, 0..30);
        kinesis.faults().next(Operation::SubscribeToShard, 1, fault.clone());
        let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
        let heard = read(&mut reader, 30).await;
        assert_eq!((heard.payloads, heard.others.len()), (expected(0..30), 0), "{fault:?}");
        assert_eq!(
            (kinesis.calls(Operation::SubscribeToShard), counted(&recorder)),
            (1, (0, 0)),
            "{fault:?}"
        );
    }
}

/// An event that nobody knows is a sign of life, though it is no progress.
#[tokio::test(start_paused = true)]
async fn an_unknown_event_is_a_sign_of_life() {
    let kinesis = with_stream(TestKinesis::builder().heartbeat_interval(Duration::from_secs(50)).build(), 1);
    let unknown = StreamFault::UnknownEvent { kind: "NewEvent".to_owned() };
    let fault = Fault::in_stream(StreamPoint::AfterTime(30 * SECOND), unknown);
    kinesis.faults().next(Operation::SubscribeToShard, 1, fault);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 60 * SECOND).await;
    assert_eq!((heard.progress, counted(&recorder)), (1, (0, 0)));
}
