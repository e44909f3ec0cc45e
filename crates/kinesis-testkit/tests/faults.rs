//! Scripted faults, as the SDK's client meets them.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::timeout::TimeoutConfig;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::primitives::Blob;
use kinesis_testkit::{Fault, Operation, Outcome, TestKinesis};
use support::{SHARD_0, SHARD_1, code, entry, message, oldest, read, with_stream};
use tokio::time::Instant;

type PutResult = Result<
    aws_sdk_kinesis::operation::put_record::PutRecordOutput,
    SdkError<aws_sdk_kinesis::operation::put_record::PutRecordError>,
>;

async fn put(client: &Client) -> PutResult {
    client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).send().await
}

fn stored(kinesis: &TestKinesis) -> usize {
    kinesis.records("s").unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_throttle_hits_the_next_calls_of_its_operation_in_order() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 2, Fault::Throttle);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::error("KMSThrottlingException"));
    kinesis.faults().next(Operation::ListShards, 1, Fault::Throttle);
    assert_eq!(kinesis.faults().pending(), 3);
    assert_eq!(code(put(&client).await), "ProvisionedThroughputExceededException");
    assert_eq!(code(put(&client).await), "ProvisionedThroughputExceededException");
    assert_eq!(code(put(&client).await), "KMSThrottlingException");
    put(&client).await.unwrap();
    assert_eq!(code(client.list_shards().stream_name("s").send().await), "LimitExceededException");
    assert_eq!(kinesis.faults().pending(), 0);
    assert_eq!(stored(&kinesis), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_have_their_code_status_and_message() {
    let (kinesis, client) = with_stream(1);
    let fault =
        Fault::Error { code: "ServiceUnavailable".to_owned(), status: 503, message: "later".to_owned() };
    kinesis.faults().next(Operation::PutRecord, 2, fault);
    let error = put(&client).await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 503);
    assert_eq!(message(put(&client).await), "later");

    kinesis.faults().next(Operation::PutRecord, 1, Fault::AccessDenied);
    assert!(message(put(&client).await).contains("kinesis:PutRecord"));
    kinesis.faults().next(Operation::PutRecord, 1, Fault::InternalFailure);
    let error = put(&client).await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_hang_delays_the_call_and_its_reply() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::Hang(Duration::from_secs(30)));
    let begun = Instant::now();
    put(&client).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    let begun = Instant::now();
    put(&client).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_that_is_given_up_is_never_carried_out() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::Hang(Duration::MAX));
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(3)).build();
    let config = client.config().to_builder().timeout_config(timeouts).build();
    let begun = Instant::now();
    let error = put(&Client::from_conf(config)).await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)));
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(stored(&kinesis), 0);
    assert_eq!(kinesis.calls_of(Operation::PutRecord)[0].outcome, Outcome::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_hang_for_ever_does_not_move_a_paused_clock() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::Hang(Duration::MAX));
    let begun = Instant::now();
    let hung = tokio::spawn(async move { put(&client).await.map(drop) });
    kinesis.wait_for_calls(Operation::PutRecord, 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert!(!hung.is_finished());
    hung.abort();
}

#[tokio::test(start_paused = true)]
async fn the_sdk_s_read_timeout_ends_a_hang() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::Hang(Duration::from_secs(60)));
    let timeouts = TimeoutConfig::builder().read_timeout(Duration::from_secs(2)).build();
    let config = client.config().to_builder().timeout_config(timeouts).build();
    let begun = Instant::now();
    let error = put(&Client::from_conf(config)).await.unwrap_err();
    assert!(matches!(&error, SdkError::DispatchFailure(failure) if failure.is_timeout()));
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_was_carried_out_at_once() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::LateReply(Duration::from_secs(30)));
    let given_up = tokio::time::timeout(Duration::from_secs(1), put(&client)).await;
    assert!(given_up.is_err());
    assert_eq!(stored(&kinesis), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_was_carried_out_and_a_disconnected_call_was_not() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::DropReply);
    let error = put(&client).await.unwrap_err();
    assert!(matches!(&error, SdkError::DispatchFailure(failure) if failure.is_io()));
    assert_eq!(stored(&kinesis), 1);

    kinesis.faults().next(Operation::PutRecord, 1, Fault::Disconnect);
    let error = put(&client).await.unwrap_err();
    assert!(matches!(&error, SdkError::DispatchFailure(failure) if failure.is_io()));
    assert_eq!(stored(&kinesis), 1);
    let outcomes: Vec<_> = kinesis.calls_log().into_iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Done { records: 1 }, Outcome::Disconnected]);
}

#[tokio::test(start_paused = true)]
async fn an_iterator_expires_by_script() {
    let (kinesis, client) = with_stream(1);
    let iterator = oldest(&client, "s", SHARD_0).await;
    kinesis.faults().next(Operation::GetRecords, 1, Fault::ExpireIterator);
    let expired = client.get_records().shard_iterator(&iterator).send().await;
    assert_eq!(code(expired), "ExpiredIteratorException");
    read(&client, &iterator).await;
}

#[tokio::test(start_paused = true)]
async fn some_entries_of_a_call_are_refused() {
    let (kinesis, client) = with_stream(1);
    let throttled = "ProvisionedThroughputExceededException";
    kinesis.faults().next(
        Operation::PutRecords,
        1,
        Fault::All(vec![Fault::partial_failure(7, throttled), Fault::partial_failure(11, "InternalFailure")]),
    );
    let entries = (1..=22).map(|n| entry("k", n.to_string())).collect();
    let reply = client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    assert_eq!(reply.failed_record_count(), Some(5));
    let refused: Vec<_> = reply
        .records()
        .iter()
        .enumerate()
        .filter_map(|(index, result)| Some((index + 1, result.error_code()?)))
        .collect();
    assert_eq!(
        refused,
        [(7, throttled), (11, "InternalFailure"), (14, throttled), (21, throttled), (22, "InternalFailure")]
    );
    let kept: Vec<_> = kinesis.records("s").unwrap().into_iter().map(|record| record.data).collect();
    assert_eq!(kept.len(), 17);
    assert!(!kept.iter().any(|data| data == "7" || data == "22"));
}

#[tokio::test(start_paused = true)]
async fn the_count_of_failures_may_lie() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::FailedRecordCount(9));
    let reply = client.put_records().stream_name("s").records(entry("k", "x")).send().await.unwrap();
    assert_eq!(reply.failed_record_count(), Some(9));
    assert_eq!(reply.records()[0].error_code(), None);
}

#[tokio::test(start_paused = true)]
async fn a_rule_may_be_for_one_shard_or_stream() {
    let (kinesis, client) = with_stream(2);
    kinesis.create_stream("t", 1).unwrap();
    let (iterator, other) = (oldest(&client, "s", SHARD_0).await, oldest(&client, "s", SHARD_1).await);
    let elsewhere = oldest(&client, "t", SHARD_0).await;
    kinesis.faults().on(Operation::GetRecords).stream("s").shard(SHARD_0).always().inject(Fault::Throttle);
    for _ in 0..3 {
        let refused = client.get_records().shard_iterator(&iterator).send().await;
        assert_eq!(code(refused), "ProvisionedThroughputExceededException");
    }
    read(&client, &other).await;
    read(&client, &elsewhere).await;
    kinesis.faults().clear();
    read(&client, &iterator).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_may_skip_calls_and_hit_every_third() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().on(Operation::PutRecord).skip(2).every(3).times(2).inject(Fault::Throttle);
    let mut refused = Vec::new();
    for call in 1..=12 {
        if put(&client).await.is_err() {
            refused.push(call);
        }
    }
    assert_eq!(refused, [5, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_no_call_is_no_rule() {
    let (kinesis, client) = with_stream(1);
    kinesis.faults().next(Operation::PutRecord, 0, Fault::Throttle);
    assert_eq!(kinesis.faults().pending(), 0);
    put(&client).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn faults_combine() {
    let (kinesis, client) = with_stream(1);
    let fault = Fault::All(vec![Fault::Hang(Duration::from_secs(5)), Fault::Throttle]);
    kinesis.faults().next(Operation::PutRecord, 1, fault);
    let begun = Instant::now();
    assert_eq!(code(put(&client).await), "ProvisionedThroughputExceededException");
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}
