//! GetShardIterator and GetRecords: positions, pages, lag and the end of a shard.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::get_shard_iterator::GetShardIteratorError;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::ShardIteratorType;
use kinesis_testkit::{Rule, TestKinesis};
use support::{SHARD_0, SHARD_1, code, message, oldest, read, texts, time, with_stream};

type IteratorResult = Result<String, aws_sdk_kinesis::error::SdkError<GetShardIteratorError>>;

async fn at_time(client: &Client, timestamp: DateTime) -> IteratorResult {
    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(SHARD_0)
        .shard_iterator_type(ShardIteratorType::AtTimestamp)
        .timestamp(timestamp);
    Ok(iterator.send().await?.shard_iterator.unwrap())
}

async fn at_sequence(
    client: &Client,
    shard: &str,
    kind: ShardIteratorType,
    sequence: &str,
) -> IteratorResult {
    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(shard)
        .shard_iterator_type(kind)
        .starting_sequence_number(sequence);
    Ok(iterator.send().await?.shard_iterator.unwrap())
}

async fn latest(client: &Client) -> String {
    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(SHARD_0)
        .shard_iterator_type(ShardIteratorType::Latest);
    iterator.send().await.unwrap().shard_iterator.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_five_iterator_types_start_where_they_say() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "a").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let b = kinesis.put("s", "k", "b").unwrap().sequence_number;
    let b_time = time(kinesis.clock(), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    kinesis.put("s", "k", "c").unwrap();

    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["a", "b", "c"]);
    let at = at_sequence(&client, SHARD_0, ShardIteratorType::AtSequenceNumber, &b).await.unwrap();
    assert_eq!(texts(&read(&client, &at).await), ["b", "c"]);
    let after = at_sequence(&client, SHARD_0, ShardIteratorType::AfterSequenceNumber, &b).await.unwrap();
    assert_eq!(texts(&read(&client, &after).await), ["c"]);
    let at_time = at_time(&client, b_time).await.unwrap();
    assert_eq!(texts(&read(&client, &at_time).await), ["b", "c"]);

    let latest = latest(&client).await;
    // One second later, so that the five calls before do not count.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = read(&client, &latest).await;
    assert!(page.records().is_empty());
    kinesis.put("s", "k", "d").unwrap();
    assert_eq!(texts(&read(&client, &latest).await), ["d"]);
    assert_eq!(texts(&read(&client, page.next_shard_iterator().unwrap()).await), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn a_timestamp_in_the_future_is_refused() {
    let (kinesis, client) = with_stream(1);
    at_time(&client, time(kinesis.clock(), 0)).await.unwrap();
    let refused = at_time(&client, time(kinesis.clock(), 1)).await;
    assert_eq!(code(refused), "InvalidArgumentException");
    let refused = at_time(&client, time(kinesis.clock(), 1)).await;
    assert!(message(refused).contains("cannot be greater than the currentTimestampInMillis"));
}

#[tokio::test(start_paused = true)]
async fn without_its_rule_a_timestamp_in_the_future_reads_what_comes_later() {
    let kinesis = TestKinesis::builder().without(Rule::FutureTimestamp).build();
    kinesis.create_stream("s", 1).unwrap();
    let iterator = at_time(&kinesis.client(), time(kinesis.clock(), 1_000)).await.unwrap();
    kinesis.put("s", "k", "a").unwrap();
    assert_eq!(texts(&read(&kinesis.client(), &iterator).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_sequence_number_must_be_one_of_the_shard() {
    let kinesis = TestKinesis::builder().without_throughput_limits().build();
    kinesis.create_stream("s", 2).unwrap();
    kinesis.create_stream("t", 1).unwrap();
    let client = kinesis.client();
    let own = kinesis.put_at("s", 0, "k", "a").unwrap().sequence_number;
    let sibling = kinesis.put_at("s", u128::MAX, "k", "b").unwrap().sequence_number;
    let foreign = kinesis.put("t", "k", "c").unwrap().sequence_number;
    let unborn = format!("{}{:026}{:010}", &own[..20], u64::MAX / 2, 0);

    let after = async |sequence: String| {
        at_sequence(&client, SHARD_0, ShardIteratorType::AfterSequenceNumber, &sequence).await
    };
    after(own.clone()).await.unwrap();
    assert!(message(after(sibling).await).contains("It encodes shardId-000000000001"));
    assert!(message(after(foreign).await).contains("did not come from this stream"));
    assert!(message(after(unborn).await).contains("has not been handed out"));
    assert_eq!(code(after(String::new()).await), "ValidationException");
    assert_eq!(code(after("abc".to_owned()).await), "ValidationException");

    let none = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(SHARD_0)
        .shard_iterator_type(ShardIteratorType::AtSequenceNumber)
        .send()
        .await;
    assert_eq!(code(none), "InvalidArgumentException");
}

#[tokio::test(start_paused = true)]
async fn unknown_streams_shards_and_types_are_refused() {
    let (_kinesis, client) = with_stream(1);
    let iterator = |stream: &str, shard: &str, kind: ShardIteratorType| {
        client.get_shard_iterator().stream_name(stream).shard_id(shard).shard_iterator_type(kind).send()
    };
    let horizon = ShardIteratorType::TrimHorizon;
    assert_eq!(code(iterator("t", SHARD_0, horizon.clone()).await), "ResourceNotFoundException");
    assert_eq!(code(iterator("s", SHARD_1, horizon.clone()).await), "ResourceNotFoundException");
    assert_eq!(code(iterator("s", "no shard", horizon).await), "ValidationException");
    assert_eq!(code(iterator("s", SHARD_0, "NEW".into()).await), "ValidationException");
    let no_time = iterator("s", SHARD_0, ShardIteratorType::AtTimestamp).await;
    assert_eq!(code(no_time), "InvalidArgumentException");
    for bad in ["", "x", "AAAAAAAAAAE="] {
        assert_eq!(code(client.get_records().shard_iterator(bad).send().await), "InvalidArgumentException");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_a_trimmed_record_starts_at_the_oldest_that_is_left() {
    let (kinesis, client) = with_stream(1);
    let a = kinesis.put("s", "k", "a").unwrap().sequence_number;
    let b = kinesis.put("s", "k", "b").unwrap().sequence_number;
    kinesis.put("s", "k", "c").unwrap();
    assert_eq!(kinesis.trim("s", SHARD_0, &b).unwrap(), 2);
    for kind in [ShardIteratorType::AtSequenceNumber, ShardIteratorType::AfterSequenceNumber] {
        let iterator = at_sequence(&client, SHARD_0, kind, &a).await.unwrap();
        assert_eq!(texts(&read(&client, &iterator).await), ["c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn records_age_out_after_the_retention_period() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "old").unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    kinesis.put("s", "k", "new").unwrap();
    tokio::time::sleep(Duration::from_secs(23 * 3_600 - 1)).await;
    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["old", "new"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["new"]);
    assert_eq!(kinesis.records("s").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_longer_retention_period_keeps_records_longer() {
    let (kinesis, client) = with_stream(1);
    client
        .increase_stream_retention_period()
        .stream_name("s")
        .retention_period_hours(48)
        .send()
        .await
        .unwrap();
    kinesis.put("s", "k", "a").unwrap();
    tokio::time::sleep(Duration::from_secs(48 * 3_600 - 1)).await;
    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["a"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(read(&client, &oldest(&client, "s", SHARD_0).await).await.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_retention_records_stay() {
    let kinesis = TestKinesis::builder().without(Rule::Retention).build();
    kinesis.create_stream("s", 1).unwrap();
    kinesis.put("s", "k", "a").unwrap();
    tokio::time::sleep(Duration::from_secs(1_000 * 3_600)).await;
    let client = kinesis.client();
    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_iterator_lives_for_five_minutes() {
    let (kinesis, client) = with_stream(1);
    let iterator = oldest(&client, "s", SHARD_0).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    read(&client, &iterator).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let expired = client.get_records().shard_iterator(&iterator).send().await;
    assert_eq!(code(expired), "ExpiredIteratorException");
    drop(kinesis);

    let kinesis = TestKinesis::builder().without(Rule::IteratorLife).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    let iterator = oldest(&client, "s", SHARD_0).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    read(&client, &iterator).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_has_at_most_the_limit_and_the_next_goes_on() {
    let (kinesis, client) = with_stream(1);
    for n in 0..5 {
        kinesis.put("s", "k", n.to_string()).unwrap();
    }
    let iterator = oldest(&client, "s", SHARD_0).await;
    let first = client.get_records().shard_iterator(iterator).limit(2).send().await.unwrap();
    assert_eq!(texts(&first), ["0", "1"]);
    let second = read(&client, first.next_shard_iterator().unwrap()).await;
    assert_eq!(texts(&second), ["2", "3", "4"]);
    for limit in [0, -1, 10_001] {
        let iterator = second.next_shard_iterator().unwrap();
        let refused = client.get_records().shard_iterator(iterator).limit(limit).send().await;
        assert_eq!(code(refused), "ValidationException");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_has_at_most_ten_thousand_records() {
    let (kinesis, client) = with_stream(1);
    for _ in 0..10_001 {
        kinesis.put("s", "k", "x").unwrap();
    }
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(page.records().len(), 10_000);
    assert_eq!(read(&client, page.next_shard_iterator().unwrap()).await.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_has_at_most_ten_mebibytes() {
    let kinesis = TestKinesis::builder().without(Rule::ReadByteRate).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    // With its key each record has 2^20 bytes, so that ten fill a page exactly.
    for _ in 0..11 {
        kinesis.put("s", "k", vec![0; (1 << 20) - 1]).unwrap();
    }
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(page.records().len(), 10);
    assert_eq!(read(&client, page.next_shard_iterator().unwrap()).await.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_lag_is_the_age_of_the_last_record_read() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "a").unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    kinesis.put("s", "k", "b").unwrap();
    kinesis.put("s", "k", "c").unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let page = |iterator: String| client.get_records().shard_iterator(iterator).limit(1).send();
    let first = page(oldest(&client, "s", SHARD_0).await).await.unwrap();
    assert_eq!(first.millis_behind_latest(), Some(15_000));
    let second = page(first.next_shard_iterator.unwrap()).await.unwrap();
    assert_eq!(second.millis_behind_latest(), Some(5_000));
    let third = page(second.next_shard_iterator.unwrap()).await.unwrap();
    assert_eq!(texts(&third), ["c"]);
    assert_eq!(third.millis_behind_latest(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_behind_within_the_millisecond_is_told_so() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "a").unwrap();
    kinesis.put("s", "k", "b").unwrap();
    let iterator = oldest(&client, "s", SHARD_0).await;
    let page = client.get_records().shard_iterator(iterator).limit(1).send().await.unwrap();
    assert_eq!(page.millis_behind_latest(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_closed_shard_ends_with_its_children_and_no_iterator() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "a").unwrap();
    kinesis.put("s", "k", "b").unwrap();
    let iterator = oldest(&client, "s", SHARD_0).await;
    kinesis.split("s", SHARD_0).unwrap();
    let first = client.get_records().shard_iterator(&iterator).limit(1).send().await.unwrap();
    assert!(first.next_shard_iterator().is_some());
    assert_eq!(first.child_shards, None);
    let last = read(&client, first.next_shard_iterator().unwrap()).await;
    assert_eq!(texts(&last), ["b"]);
    assert_eq!(last.next_shard_iterator(), None);
    assert_eq!(last.millis_behind_latest(), Some(0));
    let children: Vec<_> = last.child_shards().iter().map(|child| child.shard_id()).collect();
    assert_eq!(children, ["shardId-000000000001", "shardId-000000000002"]);
    assert!(last.child_shards().iter().all(|child| child.parent_shards() == [SHARD_0]));
    let range = last.child_shards()[1].hash_key_range().unwrap();
    assert_eq!(range.starting_hash_key(), (1_u128 << 127).to_string());
    assert_eq!(range.ending_hash_key(), u128::MAX.to_string());
}

#[tokio::test(start_paused = true)]
async fn the_child_of_a_merge_names_both_parents() {
    let (kinesis, client) = with_stream(2);
    let iterator = oldest(&client, "s", SHARD_1).await;
    kinesis.merge("s", SHARD_0, SHARD_1).unwrap();
    let end = read(&client, &iterator).await;
    assert_eq!(end.next_shard_iterator(), None);
    assert_eq!(end.child_shards().len(), 1);
    assert_eq!(end.child_shards()[0].parent_shards(), [SHARD_0, SHARD_1]);
}

#[tokio::test(start_paused = true)]
async fn an_open_shard_never_ends() {
    let (kinesis, client) = with_stream(1);
    kinesis.put("s", "k", "a").unwrap();
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(page.child_shards, None);
    let empty = read(&client, page.next_shard_iterator().unwrap()).await;
    assert!(empty.records().is_empty());
    assert!(empty.next_shard_iterator().is_some());
}
