//! Streams come, go and change their settings.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{StreamMode, StreamModeDetails, StreamStatus};
use kinesis_testkit::{Rule, TestKinesis};
use support::{SHARD_0, code, oldest, read, texts, with_stream};

async fn status(client: &aws_sdk_kinesis::Client, name: &str) -> StreamStatus {
    let summary = client.describe_stream_summary().stream_name(name).send().await.unwrap();
    summary.stream_description_summary.unwrap().stream_status
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_creating_until_its_delay_is_over() {
    let kinesis = TestKinesis::builder().create_stream_delay(Duration::from_secs(10)).build();
    let client = kinesis.client();
    client.create_stream().stream_name("s").shard_count(3).send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(9_999)).await;
    assert_eq!(status(&client, "s").await, StreamStatus::Creating);
    let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("x"));
    assert_eq!(code(put.clone().send().await), "ResourceNotFoundException");
    assert_eq!(code(client.list_shards().stream_name("s").send().await), "ResourceInUseException");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(status(&client, "s").await, StreamStatus::Active);
    put.send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_created_once_and_at_most_five_at_a_time() {
    let kinesis = TestKinesis::builder().without(Rule::ControlCallRate).build();
    let client = kinesis.client();
    let create = |name: &str| client.create_stream().stream_name(name).shard_count(1).send();
    create("s0").await.unwrap();
    assert_eq!(code(create("s0").await), "ResourceInUseException");
    for name in ["s1", "s2", "s3", "s4"] {
        create(name).await.unwrap();
    }
    assert_eq!(code(create("s5").await), "LimitExceededException");
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    create("s5").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_shard_quota_of_the_account_holds() {
    let kinesis = TestKinesis::builder().shard_quota(5).build();
    let client = kinesis.client();
    client.create_stream().stream_name("a").shard_count(3).send().await.unwrap();
    assert_eq!(
        code(client.create_stream().stream_name("b").shard_count(3).send().await),
        "LimitExceededException"
    );
    client.create_stream().stream_name("b").shard_count(2).send().await.unwrap();
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    assert_eq!(kinesis.split("a", SHARD_0).unwrap_err().code(), "LimitExceededException");
}

#[tokio::test(start_paused = true)]
async fn an_on_demand_stream_starts_with_four_shards_and_cannot_be_split() {
    let kinesis = TestKinesis::new();
    let client = kinesis.client();
    let on_demand = StreamModeDetails::builder().stream_mode(StreamMode::OnDemand).build().unwrap();
    client.create_stream().stream_name("s").stream_mode_details(on_demand).send().await.unwrap();
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    let summary = client.describe_stream_summary().stream_name("s").send().await.unwrap();
    let summary = summary.stream_description_summary.unwrap();
    assert_eq!(summary.open_shard_count, 4);
    assert_eq!(summary.stream_mode_details.unwrap().stream_mode, StreamMode::OnDemand);
    assert_eq!(kinesis.split("s", SHARD_0).unwrap_err().code(), "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn a_summary_tells_the_stream_s_settings() {
    let kinesis = TestKinesis::builder().region("eu-north-1").account_id("111122223333").build();
    kinesis.create_stream("s", 3).unwrap();
    let client = kinesis.client();
    let summary = client.describe_stream_summary().stream_name("s").send().await.unwrap();
    let summary = summary.stream_description_summary.unwrap();
    assert_eq!(summary.stream_arn, "arn:aws:kinesis:eu-north-1:111122223333:stream/s");
    assert_eq!(summary.retention_period_hours, 24);
    assert_eq!(summary.open_shard_count, 3);
    assert_eq!(summary.max_record_size_in_kib, Some(1_024));
    assert_eq!(summary.stream_creation_timestamp.secs(), kinesis_testkit::DEFAULT_START_SECONDS as i64);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_addressed_by_its_arn_as_well() {
    let (kinesis, client) = with_stream(1);
    let arn = kinesis.stream_arn("s");
    assert_eq!(arn, "arn:aws:kinesis:us-east-1:123456789012:stream/s");
    client.put_record().stream_arn(&arn).partition_key("k").data(Blob::new("x")).send().await.unwrap();
    assert_eq!(kinesis.records("s").unwrap().len(), 1);
    client.list_shards().stream_arn(arn).send().await.unwrap();
    for other in [
        "arn:aws:kinesis:eu-north-1:123456789012:stream/s",
        "arn:aws:kinesis:us-east-1:999999999999:stream/s",
        "arn:aws:kinesis:us-east-1:123456789012:stream/t",
    ] {
        let describe = client.describe_stream_summary().stream_arn(other);
        assert_eq!(code(describe.send().await), "ResourceNotFoundException", "{other}");
    }
    assert_eq!(code(client.describe_stream_summary().send().await), "InvalidArgumentException");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_stream_serves_until_its_delay_is_over() {
    let kinesis = TestKinesis::builder().delete_stream_delay(Duration::from_secs(10)).build();
    kinesis.create_stream("s", 1).unwrap();
    kinesis.put("s", "k", "old").unwrap();
    let client = kinesis.client();
    let iterator = oldest(&client, "s", SHARD_0).await;
    client.delete_stream().stream_name("s").send().await.unwrap();
    assert_eq!(status(&client, "s").await, StreamStatus::Deleting);
    assert_eq!(texts(&read(&client, &iterator).await), ["old"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let gone = client.describe_stream_summary().stream_name("s").send().await;
    assert_eq!(code(gone), "ResourceNotFoundException");

    // A new stream of the same name has nothing of the old one, not even its iterators.
    kinesis.create_stream("s", 1).unwrap();
    let old = client.get_records().shard_iterator(&iterator).send().await;
    assert_eq!(code(old), "ResourceNotFoundException");
    assert!(kinesis.records("s").unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn retention_grows_and_shrinks_within_its_limits() {
    let (_kinesis, client) = with_stream(1);
    let grow = |hours| {
        client.increase_stream_retention_period().stream_name("s").retention_period_hours(hours).send()
    };
    let shrink = |hours| {
        client.decrease_stream_retention_period().stream_name("s").retention_period_hours(hours).send()
    };
    grow(48).await.unwrap();
    assert_eq!(code(grow(47).await), "InvalidArgumentException");
    assert_eq!(code(grow(8_761).await), "InvalidArgumentException");
    assert_eq!(code(shrink(49).await), "InvalidArgumentException");
    assert_eq!(code(shrink(23).await), "InvalidArgumentException");
    shrink(24).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn streams_are_listed_in_pages() {
    let kinesis = TestKinesis::new();
    for name in ["c", "a", "b"] {
        kinesis.create_stream(name, 1).unwrap();
    }
    let client = kinesis.client();
    let first = client.list_streams().limit(2).send().await.unwrap();
    assert_eq!(first.stream_names(), ["a", "b"]);
    assert!(first.has_more_streams());
    let second = client.list_streams().set_next_token(first.next_token).send().await.unwrap();
    assert_eq!(second.stream_names(), ["c"]);
    assert!(!second.has_more_streams());
    assert_eq!(second.next_token(), None);
    assert_eq!(second.stream_summaries()[0].stream_status(), &StreamStatus::Active);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_described_with_its_shards_in_pages() {
    let (_kinesis, client) = with_stream(3);
    let first = client.describe_stream().stream_name("s").limit(2).send().await.unwrap();
    let first = first.stream_description.unwrap();
    assert_eq!(first.shards().len(), 2);
    assert!(first.has_more_shards());
    let second = client
        .describe_stream()
        .stream_name("s")
        .exclusive_start_shard_id(first.shards()[1].shard_id())
        .send()
        .await
        .unwrap();
    let second = second.stream_description.unwrap();
    assert_eq!(second.shards().len(), 1);
    assert_eq!(second.shards()[0].shard_id(), support::SHARD_2);
    assert!(!second.has_more_shards());
}

#[tokio::test(start_paused = true)]
async fn tags_are_taken() {
    let (_kinesis, client) = with_stream(1);
    client.add_tags_to_stream().stream_name("s").tags("team", "data").send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bad_names_and_numbers_are_refused() {
    let kinesis = TestKinesis::builder().without(Rule::ControlCallRate).build();
    let client = kinesis.client();
    let create = |name: &str, shards| client.create_stream().stream_name(name).shard_count(shards).send();
    assert_eq!(code(create("", 1).await), "ValidationException");
    assert_eq!(code(create("a b", 1).await), "ValidationException");
    assert_eq!(code(create(&"x".repeat(129), 1).await), "ValidationException");
    assert_eq!(code(create("s", 0).await), "ValidationException");
    assert_eq!(code(create("s", -1).await), "ValidationException");
    assert_eq!(code(client.create_stream().stream_name("s").send().await), "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn a_stream_made_anew_is_another_one() {
    let (kinesis, client) = with_stream(2);
    let old = kinesis.put("s", "k", "old").unwrap();
    let consumer = kinesis.register_consumer("s", "app").unwrap();
    let iterator = support::oldest(&client, "s", &old.shard_id).await;
    let page = client.list_shards().stream_name("s").max_results(1).send().await.unwrap();
    client.delete_stream().stream_name("s").send().await.unwrap();
    kinesis.wait_for_no_stream("s", std::time::Duration::from_secs(5)).await.unwrap();
    kinesis.create_stream("s", 2).unwrap();

    assert_eq!(kinesis.record_count("s").unwrap(), 0);
    let read = client.get_records().shard_iterator(iterator).send().await;
    assert_eq!(code(read), "ResourceNotFoundException");
    let list = client.list_shards().set_next_token(page.next_token).send().await;
    assert_eq!(code(list), "ResourceNotFoundException");
    let start = client.get_shard_iterator().stream_name("s").shard_id(&old.shard_id);
    let start = start.shard_iterator_type(aws_sdk_kinesis::types::ShardIteratorType::AfterSequenceNumber);
    let start = start.starting_sequence_number(old.sequence_number).send().await;
    assert_eq!(code(start), "InvalidArgumentException");
    let described = client.describe_stream_consumer().consumer_arn(consumer).send().await;
    assert_eq!(code(described), "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn a_read_may_name_its_stream_and_then_must_name_the_right_one() {
    let (kinesis, client) = with_stream(1);
    kinesis.create_stream("t", 1).unwrap();
    let iterator = support::oldest(&client, "s", support::SHARD_0).await;
    let read = |stream: &str| {
        client.get_records().shard_iterator(&iterator).stream_arn(kinesis.stream_arn(stream)).send()
    };
    read("s").await.unwrap();
    assert_eq!(code(read("t").await), "InvalidArgumentException");
}
