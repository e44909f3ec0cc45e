//! Answers decoded without the SDK say what the SDK says.

use std::sync::Arc;

use crate::support::*;
use bytes::Bytes;
use kinesis_core::StartPosition;
use kinesis_core::metrics::Recorder;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent, SourceRecord};
use kinesis_poll::{PollConfig, PollSource};
use kinesis_testkit::{Fault, Operation, TestKinesis};

/// Everything that a reader of the first shard says until its end.
async fn story(kinesis: &TestKinesis, fast: bool) -> (Vec<SourceRecord>, Vec<String>) {
    let source = PollSource::new(kinesis.client(), PollConfig::default().max_records(7)).unwrap().seed(1);
    let source = if fast { source.fast_decode() } else { source };
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let (mut records, mut others) = (Vec::new(), Vec::new());
    loop {
        match reader.next().await.unwrap() {
            SourceEvent::Records(batch) => {
                others.push(format!("{batch:?}"));
                records.extend(batch.records);
            }
            SourceEvent::Ended { children } => {
                others.push(format!("{children:?}"));
                return (records, others);
            }
            other => others.push(format!("{other:?}")),
        }
    }
}

/// Both decoders give the same records, lags, children and ends, whatever fails in between.
#[tokio::test(start_paused = true)]
async fn both_decoders_say_the_same() {
    let kinesis = service(1);
    for n in 0..40_usize {
        let payload: Vec<u8> = (0..n * n).map(|i| u8::try_from(i % 256).unwrap()).collect();
        kinesis.put(STREAM, &format!("k\u{e9}y \"{n}\" \\ \u{1f600}"), Bytes::from(payload)).unwrap();
        tokio::time::sleep(137 * MS).await;
    }
    kinesis.split(STREAM, SHARD).unwrap();
    let mut stories = Vec::new();
    for fast in [false, true] {
        kinesis.faults().on(Operation::GetRecords).every(3).times(2).inject(Fault::ExpireIterator);
        kinesis.faults().on(Operation::GetRecords).skip(3).times(1).inject(Fault::Throttle);
        stories.push(story(&kinesis, fast).await);
        kinesis.faults().clear();
    }
    let fields = |record: &SourceRecord| {
        let key = record.partition_key.as_ref().map(|key| key.as_str().to_owned());
        (record.sequence.clone(), key, record.data.clone(), record.arrived_at, record.encryption)
    };
    let [sdk, fast] = &stories[..] else { panic!("two stories") };
    assert_eq!(sdk.0.len(), 40);
    assert_eq!(sdk.0.iter().map(fields).collect::<Vec<_>>(), fast.0.iter().map(fields).collect::<Vec<_>>());
    assert_eq!(sdk.1.last(), fast.1.last(), "the children");
}

/// Empty pages, failures and retries of the SDK itself are what they were.
#[tokio::test(start_paused = true)]
async fn pages_without_records_and_failures_stay_what_they_are() {
    let kinesis = service(1);
    let recorder = Recorder::new();
    let source = PollSource::new(kinesis.client(), PollConfig::default()).unwrap().fast_decode();
    let source = source.metrics(Arc::new(recorder.clone()));
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    assert!(matches!(reader.next().await.unwrap(), SourceEvent::Progress { .. }));
    kinesis.faults().next(Operation::GetRecords, 2, Fault::InternalFailure);
    put(&kinesis, 0..3);
    assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
    assert_eq!((recorder.total("empty_polls_total"), recorder.total("fetch_errors_total")), (1, 2));
    kinesis.delete_stream(STREAM).unwrap();
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, kinesis_core::source::SourceError::NotFound { .. }), "{error}");
}
