//! SubscribeToShard: what a subscription sends, and when it ends.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::types::{ShardIteratorType, StartingPosition};
use kinesis_testkit::{Operation, Rule, TestKinesis};
use support::efo::{
    Subscribed, after_number, fan_out, fan_out_without, from_oldest, from_tip, subscribe, texts,
};
use support::{ARN, SHARD_0, SHARD_1, after, code, time, with_stream};
use tokio::time::Instant;

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn records_are_pushed_when_they_are_written() {
    let fan_out = fan_out(1);
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let begun = Instant::now();
    let kinesis = fan_out.kinesis.clone();
    let writer = tokio::spawn(async move {
        after(70).await;
        kinesis.put("s", "k", "a").unwrap()
    });
    let event = stream.event().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(70));
    assert_eq!(texts(&event), ["a"]);
    assert_eq!(event.records()[0].partition_key(), Some("k"));
    assert_eq!(event.continuation_sequence_number, writer.await.unwrap().sequence_number);
    assert_eq!(event.millis_behind_latest, 0);
    assert!(event.child_shards().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_start_finds_its_record() {
    let fan_out = fan_out(1);
    let first = fan_out.kinesis.put("s", "k", "a").unwrap().sequence_number;
    after(1_000).await;
    let second = fan_out.kinesis.put("s", "k", "b").unwrap().sequence_number;
    let start = |kind: ShardIteratorType| StartingPosition::builder().r#type(kind);
    let at = start(ShardIteratorType::AtSequenceNumber).sequence_number(&first).build().unwrap();
    let by_time = start(ShardIteratorType::AtTimestamp).timestamp(time(fan_out.kinesis.clock(), -500));
    for (start, wanted) in [
        (from_oldest(), vec!["a", "b"]),
        (at, vec!["a", "b"]),
        (after_number(&first), vec!["b"]),
        (by_time.build().unwrap(), vec!["b"]),
        (after_number(&second), vec![]),
        (from_tip(), vec![]),
    ] {
        after(5_000).await;
        let mut stream = fan_out.subscribe(SHARD_0, start.clone()).await.unwrap();
        assert_eq!(texts(&stream.event().await.unwrap()), wanted, "{:?}", start.r#type);
    }
}

#[tokio::test(start_paused = true)]
async fn bad_starts_shards_and_consumers_are_refused() {
    let fan_out = fan_out(2);
    let kinesis = &fan_out.kinesis;
    let foreign = kinesis.put_at("s", 0, "k", "x").unwrap().sequence_number;
    for (start, wanted) in [
        (after_number(""), "ValidationException"),
        (after_number("12"), "InvalidArgumentException"),
        (after_number(&foreign), "InvalidArgumentException"),
        (
            StartingPosition::builder().r#type(ShardIteratorType::AtTimestamp).build().unwrap(),
            "InvalidArgumentException",
        ),
        (StartingPosition::builder().r#type("SOMEWHERE".into()).build().unwrap(), "ValidationException"),
    ] {
        assert_eq!(code(fan_out.subscribe(SHARD_1, start).await), wanted);
    }
    assert_eq!(
        code(fan_out.subscribe("shardId-000000000009", from_tip()).await),
        "ResourceNotFoundException"
    );
    let unknown = subscribe(&fan_out.client, &format!("{ARN}/consumer/no:1"), SHARD_0, from_tip()).await;
    assert_eq!(code(unknown), "ResourceNotFoundException");
    let reply = fan_out.client.register_stream_consumer().stream_arn(ARN).consumer_name("new").send();
    let arn = reply.await.unwrap().consumer.unwrap().consumer_arn;
    assert_eq!(
        code(subscribe(&fan_out.client, &arn, SHARD_0, from_tip()).await),
        "ResourceInUseException",
        "it is still CREATING"
    );
    after(500).await;
    subscribe(&fan_out.client, &arn, SHARD_0, from_tip()).await.unwrap();
}

/// F-06: an idle subscription gets events without records, each with a newer continuation point.
#[tokio::test(start_paused = true)]
async fn an_idle_subscription_gets_heartbeats_that_lose_nothing() {
    let fan_out = fan_out(1);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let begun = Instant::now();
    let mut last = String::new();
    for beat in 1..=3 {
        let event = stream.event().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(5 * beat));
        assert!(event.records().is_empty());
        assert!(event.continuation_sequence_number > last);
        last = event.continuation_sequence_number;
    }
    drop(stream);
    fan_out.kinesis.put("s", "k", "in the gap").unwrap();
    for kind in [ShardIteratorType::AfterSequenceNumber, ShardIteratorType::AtSequenceNumber] {
        after(5_000).await;
        let start = StartingPosition::builder().r#type(kind).sequence_number(&last).build().unwrap();
        let mut stream = fan_out.subscribe(SHARD_0, start).await.unwrap();
        assert_eq!(texts(&stream.event().await.unwrap()), ["in the gap"]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_heartbeats_an_idle_subscription_is_silent() {
    let fan_out = fan_out_without(Rule::Heartbeats);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(60), stream.event()).await.is_err());
}

/// F-17: the last event of a shard names its children and has no continuation point.
#[tokio::test(start_paused = true)]
async fn a_closed_shard_ends_with_its_children_and_no_continuation() {
    let fan_out = fan_out(1);
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    fan_out.kinesis.put("s", "k", "last").unwrap();
    assert_eq!(texts(&stream.event().await.unwrap()), ["last"]);
    fan_out.kinesis.split("s", SHARD_0).unwrap();
    let end = stream.event().await.unwrap();
    assert!(end.records().is_empty());
    assert_eq!(end.continuation_sequence_number, "");
    let children: Vec<_> = end.child_shards().iter().map(|child| child.shard_id.as_str()).collect();
    assert_eq!(children, ["shardId-000000000001", "shardId-000000000002"]);
    assert_eq!(end.child_shards()[0].parent_shards, [SHARD_0]);
    assert!(stream.event().await.is_none(), "the stream ends in order");

    // Read from the start the records and the end come in one event.
    after(5_000).await;
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let end = stream.event().await.unwrap();
    assert_eq!(texts(&end), ["last"]);
    assert_eq!((end.child_shards().len(), end.continuation_sequence_number.as_str()), (2, ""));
    assert!(stream.event().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reshard_by_request_reaches_a_waiting_subscription_when_it_is_due() {
    let fan_out = fan_out_without(Rule::Heartbeats);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let split = fan_out.client.split_shard().stream_name("s").shard_to_split(SHARD_0);
    split.new_starting_hash_key((1u128 << 127).to_string()).send().await.unwrap();
    let begun = Instant::now();
    assert_eq!(stream.event().await.unwrap().child_shards().len(), 2);
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_lives_five_minutes() {
    let fan_out = fan_out(1);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let begun = Instant::now();
    let mut events = 0;
    while stream.event().await.is_some() {
        events += 1;
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(300));
    assert_eq!(events, 59);
    assert_eq!(fan_out.kinesis.subscriptions("s").unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn without_subscription_life_it_goes_on() {
    let fan_out = fan_out_without(Rule::SubscriptionLife);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    for _ in 0..100 {
        assert!(stream.event().await.is_some());
    }
}

/// Calls twice within a second; the code of the second.
async fn twice_at_once(fan_out: &support::efo::FanOut) -> Result<Subscribed, String> {
    let first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    after(100).await;
    let second = fan_out.subscribe(SHARD_0, from_tip()).await;
    drop(first);
    second.map_err(|error| code::<(), _>(Err(error)))
}

/// F-05: one call per second, consumer and shard.
#[tokio::test(start_paused = true)]
async fn a_second_call_within_a_second_is_too_fast() {
    let fan_out = fan_out(2);
    assert_eq!(twice_at_once(&fan_out).await.unwrap_err(), "LimitExceededException");
    // Another shard and another consumer have their own.
    fan_out.subscribe(SHARD_1, from_tip()).await.unwrap();
    let other = fan_out.kinesis.register_consumer("s", "other").unwrap();
    subscribe(&fan_out.client, &other, SHARD_0, from_tip()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_subscribe_call_rate_it_is_the_next_rule_that_refuses() {
    let refused = twice_at_once(&fan_out_without(Rule::SubscribeCallRate)).await;
    assert_eq!(refused.unwrap_err(), "ResourceInUseException");
}

/// S-246, F-05: within 5 seconds of a success a shard is in use, although the first stream has gone.
#[tokio::test(start_paused = true)]
async fn a_shard_is_in_use_for_five_seconds_after_a_success() {
    let fan_out = fan_out(1);
    drop(fan_out.subscribe(SHARD_0, from_tip()).await.unwrap());
    for _ in 0..4 {
        after(1_000).await;
        assert_eq!(code(fan_out.subscribe(SHARD_0, from_tip()).await), "ResourceInUseException");
    }
    // Refused calls did not prolong it.
    after(1_000).await;
    fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_subscribe_in_use_a_second_later_is_enough() {
    let fan_out = fan_out_without(Rule::SubscribeInUse);
    let _first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    after(1_000).await;
    fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
}

/// S-246: a later subscription takes over, and the one before ends with an error in the stream.
#[tokio::test(start_paused = true)]
async fn a_later_subscription_takes_over() {
    let fan_out = fan_out(1);
    let mut first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let waiting = tokio::spawn(async move { first.error().await });
    after(5_000).await;
    let mut second = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    assert_eq!(waiting.await.unwrap(), "ResourceInUseException");
    fan_out.kinesis.put("s", "k", "a").unwrap();
    assert_eq!(texts(&second.event().await.unwrap()), ["a"]);
    assert_eq!(fan_out.kinesis.subscriptions("s").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_take_over_both_go_on() {
    let fan_out = fan_out_without(Rule::TakeOver);
    let mut first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    after(5_000).await;
    let mut second = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    fan_out.kinesis.put("s", "k", "a").unwrap();
    assert_eq!(texts(&first.event().await.unwrap()), ["a"]);
    assert_eq!(texts(&second.event().await.unwrap()), ["a"]);
}

/// How long ten mebibytes take.
async fn time_of_ten_mebibytes(fan_out: &support::efo::FanOut) -> Duration {
    for _ in 0..20 {
        fan_out.kinesis.put("s", "k", vec![0; MIB / 2 - 1]).unwrap();
    }
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let begun = Instant::now();
    let mut records = 0;
    while records < 20 {
        records += stream.event().await.unwrap().records().len();
    }
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn two_mebibytes_a_second_are_pushed() {
    // Two mebibytes at once, the other eight at their pace.
    assert_eq!(time_of_ten_mebibytes(&fan_out(1)).await, Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn without_subscription_byte_rate_bytes_are_pushed_at_once() {
    let fan_out = fan_out_without(Rule::SubscriptionByteRate);
    assert_eq!(time_of_ten_mebibytes(&fan_out).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_lags_says_by_how_much() {
    let fan_out = fan_out(1);
    for _ in 0..3 {
        fan_out.kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
        after(1_000).await;
    }
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let mut behind = Vec::new();
    for _ in 0..3 {
        behind.push(stream.event().await.unwrap().millis_behind_latest);
    }
    assert_eq!(behind, [3_000, 2_000, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_is_noticed() {
    let fan_out = fan_out(2);
    let first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let second = fan_out.subscribe(SHARD_1, from_tip()).await.unwrap();
    let shards = |kinesis: &TestKinesis| -> Vec<String> {
        kinesis.subscriptions("s").unwrap().into_iter().map(|living| living.shard_id).collect()
    };
    assert_eq!(shards(&fan_out.kinesis), [SHARD_0, SHARD_1]);
    drop(first);
    assert_eq!(shards(&fan_out.kinesis), [SHARD_1]);
    drop(second);
    assert!(shards(&fan_out.kinesis).is_empty());
}

#[tokio::test(start_paused = true)]
async fn deregistering_and_deleting_end_subscriptions() {
    let fan_out = fan_out(2);
    let mut first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    fan_out.client.deregister_stream_consumer().consumer_arn(&fan_out.arn).send().await.unwrap();
    assert_eq!(first.error().await, "ResourceNotFoundException");

    let other = fan_out.kinesis.register_consumer("s", "other").unwrap();
    let mut second = Subscribed(subscribe(&fan_out.client, &other, SHARD_0, from_tip()).await.unwrap());
    fan_out.kinesis.delete_stream("s").unwrap();
    fan_out.kinesis.create_stream("s", 2).unwrap();
    assert_eq!(second.error().await, "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_what_a_subscription_asked_for() {
    let fan_out = fan_out(1);
    let number = fan_out.kinesis.put("s", "k", "a").unwrap().sequence_number;
    let _stream = fan_out.subscribe(SHARD_0, after_number(&number)).await.unwrap();
    let call = fan_out.kinesis.calls_of(Operation::SubscribeToShard).remove(0);
    assert_eq!(call.stream.as_deref(), Some("s"));
    assert_eq!(call.consumer.as_deref(), Some("app"));
    assert_eq!(call.shard.as_deref(), Some(SHARD_0));
    assert_eq!(call.iterator_type.as_deref(), Some("AFTER_SEQUENCE_NUMBER"));
    assert_eq!(call.sequence_number.as_deref(), Some(number.as_str()));
    assert!(call.by_arn);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_ten_mebibytes_is_one_event() {
    let fan_out = fan_out(1);
    let resize = fan_out.client.update_max_record_size().stream_arn(ARN).max_record_size_in_kib(10_240);
    resize.send().await.unwrap();
    fan_out.kinesis.put("s", "k", vec![7; 10 * MIB - 1]).unwrap();
    fan_out.kinesis.put("s", "k", "next").unwrap();
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let begun = Instant::now();
    assert_eq!(stream.event().await.unwrap().records()[0].data().as_ref().len(), 10 * MIB - 1);
    assert_eq!(texts(&stream.event().await.unwrap()), ["next"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(5), "it was pushed on credit");
}

#[tokio::test(start_paused = true)]
async fn a_service_without_the_consumer_s_stream_knows_no_subscriptions() {
    let (kinesis, _client) = with_stream(1);
    assert_eq!(kinesis.subscriptions("t").unwrap_err().code(), "ResourceNotFoundException");
}
