//! ListShards: pages, filters and the shards that are no longer listed.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::list_shards::ListShardsOutput;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::{ShardFilter, ShardFilterType};
use kinesis_testkit::{Rule, TestClock, TestKinesis};
use support::{SHARD_0, SHARD_1, SHARD_2, code, time, with_stream};

fn numbers(page: &ListShardsOutput) -> Vec<u32> {
    page.shards().iter().map(|shard| shard.shard_id()["shardId-".len()..].parse().unwrap()).collect()
}

async fn list(client: &Client, kind: ShardFilterType) -> Vec<u32> {
    let filter = ShardFilter::builder().r#type(kind).build().unwrap();
    numbers(&client.list_shards().stream_name("s").shard_filter(filter).send().await.unwrap())
}

async fn list_at(client: &Client, kind: ShardFilterType, timestamp: DateTime) -> Vec<u32> {
    let filter = ShardFilter::builder().r#type(kind).timestamp(timestamp).build().unwrap();
    numbers(&client.list_shards().stream_name("s").shard_filter(filter).send().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn pages_follow_by_the_token_alone() {
    let (_kinesis, client) = with_stream(5);
    let first = client.list_shards().stream_name("s").max_results(2).send().await.unwrap();
    assert_eq!(numbers(&first), [0, 1]);
    let token = first.next_token().unwrap();
    let second = client.list_shards().next_token(token).max_results(2).send().await.unwrap();
    assert_eq!(numbers(&second), [2, 3]);
    let third = client.list_shards().next_token(second.next_token().unwrap()).send().await.unwrap();
    assert_eq!(numbers(&third), [4]);
    assert_eq!(third.next_token(), None);

    let both = client.list_shards().stream_name("s").next_token(token).send().await;
    assert_eq!(code(both), "InvalidArgumentException");
    assert_eq!(code(client.list_shards().next_token("nonsense").send().await), "InvalidArgumentException");
}

#[tokio::test(start_paused = true)]
async fn a_token_lives_for_five_minutes() {
    let (_kinesis, client) = with_stream(3);
    let first = client.list_shards().stream_name("s").max_results(1).send().await.unwrap();
    let token = first.next_token().unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    client.list_shards().next_token(token).send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(code(client.list_shards().next_token(token).send().await), "ExpiredNextTokenException");
}

#[tokio::test(start_paused = true)]
async fn a_filter_holds_on_the_following_pages() {
    let (kinesis, client) = with_stream(3);
    kinesis.split("s", SHARD_1).unwrap();
    let filter = ShardFilter::builder().r#type(ShardFilterType::AtLatest).build().unwrap();
    let first =
        client.list_shards().stream_name("s").shard_filter(filter).max_results(1).send().await.unwrap();
    assert_eq!(numbers(&first), [0]);
    let rest = client.list_shards().next_token(first.next_token().unwrap()).send().await.unwrap();
    assert_eq!(numbers(&rest), [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_by_time_holds_to_the_nanosecond() {
    let start = std::time::UNIX_EPOCH + Duration::new(1_767_225_600, 123_456_789);
    let kinesis = TestKinesis::builder().clock(TestClock::manual(start)).build();
    kinesis.create_stream("s", 3).unwrap();
    let client = kinesis.client();
    for kind in [ShardFilterType::AtTrimHorizon, ShardFilterType::FromTrimHorizon] {
        let filter = ShardFilter::builder().r#type(kind).build().unwrap();
        let first = client.list_shards().stream_name("s").shard_filter(filter).max_results(1).send();
        let first = first.await.unwrap();
        let rest = client.list_shards().next_token(first.next_token().unwrap()).send().await.unwrap();
        assert_eq!((numbers(&first), numbers(&rest)), (vec![0], vec![1, 2]));
    }
}

#[tokio::test(start_paused = true)]
async fn one_reply_has_at_most_a_thousand_shards() {
    let (_kinesis, client) = with_stream(1_001);
    let page = client.list_shards().stream_name("s").max_results(10_000).send().await.unwrap();
    assert_eq!(page.shards().len(), 1_000);
    assert!(page.next_token().is_some());
    let too_many = client.list_shards().stream_name("s").max_results(10_001).send().await;
    assert_eq!(code(too_many), "ValidationException");
    assert_eq!(
        code(client.list_shards().stream_name("s").max_results(0).send().await),
        "ValidationException"
    );
}

#[tokio::test(start_paused = true)]
async fn listing_starts_after_the_exclusive_start() {
    let (_kinesis, client) = with_stream(4);
    let page = client.list_shards().stream_name("s").exclusive_start_shard_id(SHARD_1).send().await.unwrap();
    assert_eq!(numbers(&page), [2, 3]);
}

/// The stream of the filter tests: 0 and 1 from the start, 0 split into 2 and 3 after an hour, 1 and 3 merged into 4
/// after two.
async fn history() -> (TestKinesis, Client) {
    let (kinesis, client) = with_stream(2);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    kinesis.split("s", SHARD_0).unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    kinesis.merge("s", "shardId-000000000003", SHARD_1).unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    (kinesis, client)
}

#[tokio::test(start_paused = true)]
async fn the_six_filters_select_by_time_and_number() {
    let (kinesis, client) = history().await;
    let clock = kinesis.clock();
    let hours_ago = |hours: i64| time(clock, -3_600_000 * hours + 60_000);
    assert_eq!(numbers(&client.list_shards().stream_name("s").send().await.unwrap()), [0, 1, 2, 3, 4]);
    assert_eq!(list(&client, ShardFilterType::AtLatest).await, [2, 4]);
    assert_eq!(list(&client, ShardFilterType::AtTrimHorizon).await, [0, 1]);
    assert_eq!(list(&client, ShardFilterType::FromTrimHorizon).await, [0, 1, 2, 3, 4]);
    assert_eq!(list_at(&client, ShardFilterType::AtTimestamp, hours_ago(3)).await, [0, 1]);
    assert_eq!(list_at(&client, ShardFilterType::AtTimestamp, hours_ago(2)).await, [1, 2, 3]);
    assert_eq!(list_at(&client, ShardFilterType::AtTimestamp, hours_ago(1)).await, [2, 4]);
    assert_eq!(list_at(&client, ShardFilterType::FromTimestamp, hours_ago(3)).await, [0, 1, 2, 3, 4]);
    assert_eq!(list_at(&client, ShardFilterType::FromTimestamp, hours_ago(2)).await, [1, 2, 3, 4]);
    assert_eq!(list_at(&client, ShardFilterType::FromTimestamp, hours_ago(1)).await, [2, 4]);
    let after =
        ShardFilter::builder().r#type(ShardFilterType::AfterShardId).shard_id(SHARD_2).build().unwrap();
    let page = client.list_shards().stream_name("s").shard_filter(after).send().await.unwrap();
    assert_eq!(numbers(&page), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_without_what_it_needs_is_refused() {
    let (_kinesis, client) = with_stream(1);
    for kind in [ShardFilterType::AfterShardId, ShardFilterType::AtTimestamp, ShardFilterType::from("NEW")] {
        let filter = ShardFilter::builder().r#type(kind).build().unwrap();
        let page = client.list_shards().stream_name("s").shard_filter(filter).send().await;
        assert_eq!(code(page), "ValidationException");
    }
}

#[tokio::test(start_paused = true)]
async fn closed_shards_disappear_after_the_retention_period() {
    let (_kinesis, client) = history().await;
    // 0 was closed two hours ago, 1 and 3 one hour ago.
    tokio::time::sleep(Duration::from_secs(22 * 3_600 - 1)).await;
    assert_eq!(numbers(&client.list_shards().stream_name("s").send().await.unwrap()), [0, 1, 2, 3, 4]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(numbers(&client.list_shards().stream_name("s").send().await.unwrap()), [1, 2, 3, 4]);
    assert_eq!(list(&client, ShardFilterType::AtTrimHorizon).await, [1, 2, 3]);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(numbers(&client.list_shards().stream_name("s").send().await.unwrap()), [2, 4]);
    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id(SHARD_0)
        .shard_iterator_type(aws_sdk_kinesis::types::ShardIteratorType::TrimHorizon)
        .send()
        .await;
    assert_eq!(code(iterator), "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn without_retention_closed_shards_stay() {
    let kinesis = TestKinesis::builder().without(Rule::Retention).build();
    kinesis.create_stream("s", 1).unwrap();
    kinesis.split("s", SHARD_0).unwrap();
    tokio::time::sleep(Duration::from_secs(1_000 * 3_600)).await;
    let page = kinesis.client().list_shards().stream_name("s").send().await.unwrap();
    assert_eq!(numbers(&page), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_told_from_its_namesake_by_its_creation() {
    let (kinesis, client) = with_stream(1);
    let created = time(kinesis.clock(), 0);
    let list = client.list_shards().stream_name("s");
    list.clone().stream_creation_timestamp(created).send().await.unwrap();
    let other = list.stream_creation_timestamp(time(kinesis.clock(), 5)).send().await;
    assert_eq!(code(other), "ResourceNotFoundException");
}
