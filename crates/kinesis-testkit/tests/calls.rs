//! The counters, the log of calls and the clocks.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::{Duration, SystemTime};

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{ShardFilter, ShardFilterType, ShardIteratorType};
use kinesis_testkit::{DEFAULT_START_SECONDS, Fault, Operation, Outcome, TestClock, TestKinesis};
use support::{SHARD_0, code, entry, oldest, read, time, with_stream};

#[tokio::test(start_paused = true)]
async fn the_log_tells_when_calls_came_and_what_they_asked() {
    let (kinesis, client) = with_stream(1);
    let stamp = time(kinesis.clock(), -1_000);
    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(SHARD_0)
        .shard_iterator_type(ShardIteratorType::AtTimestamp)
        .timestamp(stamp)
        .send()
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    kinesis.put("s", "k", "x").unwrap();
    client.get_records().set_shard_iterator(iterator.shard_iterator).limit(7).send().await.unwrap();

    let calls = kinesis.calls_log();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].operation, Operation::GetShardIterator);
    assert_eq!(calls[0].iterator_type.as_deref(), Some("AT_TIMESTAMP"));
    assert_eq!(calls[0].timestamp, Some(SystemTime::try_from(stamp).unwrap()));
    assert_eq!(calls[0].outcome, Outcome::Done { records: 0 });
    assert_eq!(calls[1].operation, Operation::GetRecords);
    assert_eq!(calls[1].stream.as_deref(), Some("s"));
    assert_eq!(calls[1].shard.as_deref(), Some(SHARD_0));
    assert_eq!(calls[1].limit, Some(7));
    assert_eq!(calls[1].outcome, Outcome::Done { records: 1 });
    assert_eq!(calls[1].elapsed - calls[0].elapsed, Duration::from_millis(250));
    assert_eq!(calls[1].at.duration_since(calls[0].at).unwrap(), Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn writes_and_lists_are_logged_with_their_sizes() {
    let (kinesis, client) = with_stream(2);
    let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s";
    let entries = vec![entry("key", "12345"), entry("k", "1")];
    client.put_records().stream_arn(arn).set_records(Some(entries)).send().await.unwrap();
    let filter = ShardFilter::builder().r#type(ShardFilterType::AtLatest).build().unwrap();
    let page =
        client.list_shards().stream_name("s").shard_filter(filter).max_results(1).send().await.unwrap();
    client.list_shards().set_next_token(page.next_token).send().await.unwrap();

    let calls = kinesis.calls_log();
    assert_eq!((calls[0].entries, calls[0].bytes), (2, 10));
    assert_eq!(calls[0].stream.as_deref(), Some("s"));
    assert!(calls[0].by_arn);
    assert_eq!(calls[1].shard_filter.as_deref(), Some("AT_LATEST"));
    assert_eq!(calls[1].limit, Some(1));
    assert!(!calls[1].follows_page && !calls[1].by_arn);
    assert!(calls[2].follows_page);
    assert_eq!(calls[2].stream.as_deref(), Some("s"));
}

#[tokio::test(start_paused = true)]
async fn refused_calls_count_and_helpers_do_not() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "x").unwrap();
    assert_eq!(kinesis.calls(Operation::PutRecord), 0);
    kinesis.faults().next(Operation::PutRecord, 1, Fault::Throttle);
    let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("x"));
    put.clone().send().await.unwrap_err();
    put.send().await.unwrap();
    assert_eq!(kinesis.calls(Operation::PutRecord), 2);
    let code = "ProvisionedThroughputExceededException".to_owned();
    assert_eq!(kinesis.calls_of(Operation::PutRecord)[0].outcome, Outcome::Refused { code });
    kinesis.clear_calls();
    assert_eq!(kinesis.calls(Operation::PutRecord), 0);
    assert!(kinesis.calls_log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_bear_the_clock_s_time() {
    let (kinesis, client) = with_stream(1);
    tokio::time::sleep(Duration::from_millis(1_250)).await;
    kinesis.put("s", "k", "x").unwrap();
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    let arrived = page.records()[0].approximate_arrival_timestamp().unwrap();
    assert_eq!(arrived.to_millis().unwrap(), DEFAULT_START_SECONDS as i64 * 1_000 + 1_250);
}

#[tokio::test(start_paused = true)]
async fn replies_bear_the_clock_s_date_and_a_request_id() {
    let (_kinesis, client) = with_stream(1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = client.describe_stream_summary().stream_name("t").send().await.unwrap_err();
    let headers = error.raw_response().unwrap().headers();
    assert_eq!(headers.get("date"), Some("Thu, 01 Jan 2026 00:01:01 GMT"));
    assert_eq!(headers.get("x-amzn-requestid").unwrap().len(), 36);
}

#[tokio::test]
async fn a_manual_clock_stands_still_until_it_is_advanced() {
    let clock = TestClock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000));
    let kinesis = TestKinesis::builder().clock(clock.clone()).build();
    kinesis.create_stream("s", 1).unwrap();
    kinesis.put("s", "k", "x").unwrap();
    let client = kinesis.client();
    let iterator = oldest(&client, "s", SHARD_0).await;
    for _ in 0..5 {
        read(&client, &iterator).await;
    }
    client.get_records().shard_iterator(&iterator).send().await.unwrap_err();
    clock.advance(Duration::from_millis(200));
    assert_eq!(read(&client, &iterator).await.records().len(), 1);
    clock.advance(Duration::from_secs(24 * 3_600));
    assert!(kinesis.records("s").unwrap().is_empty());
}

#[tokio::test]
async fn a_hang_under_a_manual_clock_ends_when_the_clock_has_moved() {
    let clock = TestClock::manual(SystemTime::UNIX_EPOCH);
    let kinesis = TestKinesis::builder().clock(clock.clone()).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    kinesis.faults().next(Operation::ListShards, 1, Fault::Hang(Duration::from_secs(10)));
    let call = tokio::spawn(async move { client.list_shards().stream_name("s").send().await });
    kinesis.wait_for_calls(Operation::ListShards, 1).await;
    clock.advance(Duration::from_secs(9));
    tokio::task::yield_now().await;
    assert_eq!(kinesis.calls_log()[0].outcome, Outcome::Pending);
    clock.advance(Duration::from_secs(1));
    assert_eq!(call.await.unwrap().unwrap().shards().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_following_clock_can_be_moved_ahead() {
    let kinesis = TestKinesis::new();
    let before = kinesis.clock().now();
    kinesis.clock().advance(Duration::from_secs(5));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(kinesis.clock().now().duration_since(before).unwrap(), Duration::from_secs(7));
    assert_eq!(kinesis.clock().elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_trial_run_is_refused_and_changes_nothing() {
    let (kinesis, client) = with_stream(1);
    let put = || client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).dry_run(true);
    assert_eq!(code(put().send().await), "DryRunOperationException");
    assert_eq!(code(put().stream_name("t").send().await), "ResourceNotFoundException");
    let many = client.put_records().stream_name("s").records(support::entry("k", "x")).dry_run(true);
    assert_eq!(code(many.send().await), "DryRunOperationException");
    assert_eq!(kinesis.record_count("s").unwrap(), 0);
    let iterator = support::oldest(&client, "s", support::SHARD_0).await;
    let read = client.get_records().shard_iterator(iterator).dry_run(true);
    assert_eq!(code(read.send().await), "DryRunOperationException");
    put().dry_run(false).send().await.unwrap();
    assert_eq!(kinesis.record_count("s").unwrap(), 1);
}
