//! Every rule bites while it is on and does not while it is off.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{ScalingType, ShardIteratorType, StreamMode, StreamModeDetails, StreamStatus};
use kinesis_testkit::{Builder, KeyState, Rule, TestKinesis};
use support::efo::{FanOut, fan_out_of, from_oldest, from_tip};
use support::{ARN, SHARD_0, after, entry, oldest, time};

const MIB: usize = 1 << 20;

/// A service as the rules' probes want it: everything takes time, and new shards are listed late.
fn builder() -> Builder {
    TestKinesis::builder()
        .register_consumer_delay(Duration::from_secs(60))
        .create_stream_delay(Duration::from_secs(60))
        .shard_list_lag(Duration::from_secs(2))
}

async fn calls_in_a_row(fan_out: &FanOut, count: usize) -> usize {
    let mut refused = 0;
    let iterator = oldest(&fan_out.client, "s", SHARD_0).await;
    for _ in 0..count {
        refused += usize::from(fan_out.client.get_records().shard_iterator(&iterator).send().await.is_err());
    }
    refused
}

async fn put(fan_out: &FanOut, size: usize) -> bool {
    let put = fan_out.client.put_record().stream_name("s").partition_key("k");
    put.data(Blob::new(vec![0; size])).send().await.is_ok()
}

async fn put_batch(fan_out: &FanOut, count: usize) -> i32 {
    let entries = (0..count).map(|n| entry("k", n.to_string())).collect();
    let put = fan_out.client.put_records().stream_name("s").set_records(Some(entries));
    put.send().await.unwrap().failed_record_count().unwrap()
}

/// Whether the throughput rule `rule` is seen.
async fn throughput_bites(rule: Rule, fan_out: &FanOut) -> bool {
    let FanOut { kinesis, client, .. } = fan_out;
    match rule {
        Rule::ReadCallRate => calls_in_a_row(fan_out, 6).await == 1,
        Rule::ReadByteRate => {
            for _ in 0..4 {
                kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
            }
            calls_in_a_row(fan_out, 2).await == 1
        }
        Rule::IteratorCallRate => {
            let iterator = client.get_shard_iterator().stream_name("s").shard_id(SHARD_0);
            let iterator = iterator.shard_iterator_type(ShardIteratorType::Latest);
            for _ in 0..5 {
                iterator.clone().send().await.unwrap();
            }
            iterator.send().await.is_err()
        }
        Rule::WriteByteRate => {
            put(fan_out, MIB - 1).await;
            !put(fan_out, 1).await
        }
        Rule::WriteRecordRate => {
            put_batch(fan_out, 500).await + put_batch(fan_out, 500).await + put_batch(fan_out, 1).await == 1
        }
        Rule::ControlCallRate => {
            let list = client.list_streams();
            for _ in 0..5 {
                list.clone().send().await.unwrap();
            }
            list.send().await.is_err()
        }
        Rule::SubscriptionByteRate => {
            for _ in 0..6 {
                kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
            }
            let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
            let begun = tokio::time::Instant::now();
            for _ in 0..6 {
                stream.event().await.unwrap();
            }
            begun.elapsed() > Duration::from_secs(1)
        }
        _ => subscription_bites(rule, fan_out).await,
    }
}

async fn subscription_bites(rule: Rule, fan_out: &FanOut) -> bool {
    let kinesis = &fan_out.kinesis;
    match rule {
        Rule::SubscribeCallRate => {
            let _first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            fan_out.subscribe(SHARD_0, from_tip()).await.is_err()
        }
        Rule::SubscribeInUse => {
            let _first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            after(4_999).await;
            fan_out.subscribe(SHARD_0, from_tip()).await.is_err()
        }
        Rule::TakeOver => {
            let _first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            after(5_000).await;
            let _second = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            kinesis.subscriptions("s").unwrap().len() == 1
        }
        Rule::SubscriptionLife => {
            let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            let whole = async { while stream.event().await.is_some() {} };
            tokio::time::timeout(Duration::from_secs(301), whole).await.is_ok()
        }
        Rule::Heartbeats => {
            let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
            tokio::time::timeout(Duration::from_secs(6), stream.event()).await.is_ok()
        }
        Rule::ConsumersInCreation => {
            for number in 0..5 {
                register(fan_out, number).await.unwrap();
            }
            after(1_000).await;
            register(fan_out, 5).await.is_err()
        }
        Rule::ConsumerQuota => {
            // One is there already.
            for number in 0..19 {
                kinesis.register_consumer("s", &format!("c{number}")).unwrap();
            }
            register(fan_out, 19).await.is_err()
        }
        _ => control_bites(rule, fan_out).await,
    }
}

async fn register(fan_out: &FanOut, number: usize) -> Result<(), ()> {
    let register = fan_out.client.register_stream_consumer().stream_arn(ARN);
    register.consumer_name(format!("c{number}")).send().await.map(drop).map_err(drop)
}

async fn control_bites(rule: Rule, fan_out: &FanOut) -> bool {
    let FanOut { kinesis, client, .. } = fan_out;
    let create = |name: &str| client.create_stream().stream_name(name);
    match rule {
        Rule::IteratorLife => {
            let iterator = oldest(client, "s", SHARD_0).await;
            after(300_001).await;
            client.get_records().shard_iterator(iterator).send().await.is_err()
        }
        Rule::FutureTimestamp => {
            let iterator = client.get_shard_iterator().stream_name("s").shard_id(SHARD_0);
            let iterator = iterator.shard_iterator_type(ShardIteratorType::AtTimestamp);
            iterator.timestamp(time(kinesis.clock(), 1_000)).send().await.is_err()
        }
        Rule::Retention => {
            kinesis.put("s", "k", "x").unwrap();
            kinesis.clock().advance(Duration::from_secs(86_400));
            kinesis.records("s").unwrap().is_empty()
        }
        Rule::RecordOrder => {
            put_batch(fan_out, 100).await;
            let stored = kinesis.records("s").unwrap();
            let numbers =
                stored.iter().map(|record| String::from_utf8_lossy(&record.data).parse::<u8>().unwrap());
            !numbers.is_sorted()
        }
        Rule::StreamsInCreation => {
            for number in 0..5 {
                create(&format!("s{number}")).shard_count(1).send().await.unwrap();
            }
            after(1_000).await;
            create("s5").shard_count(1).send().await.is_err()
        }
        Rule::ShardCountChanges => {
            let scale =
                client.update_shard_count().stream_name("s").scaling_type(ScalingType::UniformScaling);
            for change in 0..10 {
                scale.clone().target_shard_count(2 - change % 2).send().await.unwrap();
                after(1_000).await;
            }
            scale.target_shard_count(2).send().await.is_err()
        }
        Rule::ShardListLag => {
            kinesis.split("s", SHARD_0).unwrap();
            let listed = client.list_shards().stream_name("s").send().await.unwrap().shards().len();
            listed == 1
        }
        Rule::OnDemandSplits => {
            let on_demand = StreamModeDetails::builder().stream_mode(StreamMode::OnDemand).build().unwrap();
            let update = client.update_stream_mode().stream_arn(ARN).stream_mode_details(on_demand);
            update.send().await.unwrap();
            after(1_000).await;
            while put(fan_out, MIB / 2).await {}
            after(1_000).await;
            kinesis.shards("s").unwrap().len() == 3
        }
        Rule::KeyState => {
            kinesis.set_key_state("s", KeyState::Disabled).unwrap();
            !put(fan_out, 1).await
        }
        _ => size_bites(rule, fan_out).await,
    }
}

async fn size_bites(rule: Rule, fan_out: &FanOut) -> bool {
    let FanOut { kinesis, client, .. } = fan_out;
    let entries = |count, size| (0..count).map(|_| entry("k", vec![0; size])).collect::<Vec<_>>();
    let put = |entries| client.put_records().stream_name("s").set_records(Some(entries)).send();
    match rule {
        Rule::ReadPageSize => {
            for _ in 0..11 {
                kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
            }
            let page = client.get_records().shard_iterator(oldest(client, "s", SHARD_0).await);
            let cut = page.clone().send().await.unwrap().records().len() == 10;
            after(6_000).await;
            cut && page.limit(10_001).send().await.is_err()
        }
        Rule::WriteCallSize => {
            put(entries(501, 1)).await.is_err() && put(entries(11, MIB - 1)).await.is_err()
        }
        Rule::RecordSize => put(entries(1, MIB)).await.is_err(),
        Rule::MillisBehindLatest => {
            kinesis.put("s", "k", "a").unwrap();
            after(1_000).await;
            kinesis.put("s", "k", "b").unwrap();
            let page = client.get_records().shard_iterator(oldest(client, "s", SHARD_0).await).limit(1);
            let behind = page.send().await.unwrap().millis_behind_latest();
            kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
            let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
            behind == Some(1_000) && stream.event().await.unwrap().millis_behind_latest > 0
        }
        Rule::ChildShards => {
            kinesis.split("s", SHARD_0).unwrap();
            let page = client.get_records().shard_iterator(oldest(client, "s", SHARD_0).await);
            let page = page.send().await.unwrap();
            assert_eq!(page.next_shard_iterator(), None);
            let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
            page.child_shards().len() == 2 && stream.event().await.unwrap().child_shards().len() == 2
        }
        Rule::NextTokenLife => {
            kinesis.split("s", SHARD_0).unwrap();
            after(3_000).await;
            let page = client.list_shards().stream_name("s").max_results(1).send().await.unwrap();
            kinesis.register_consumer("s", "other").unwrap();
            let consumers = client.list_stream_consumers().stream_arn(ARN);
            let token = consumers.clone().max_results(1).send().await.unwrap().next_token;
            after(300_001).await;
            let shards = client.list_shards().set_next_token(page.next_token).send().await.is_err();
            shards && consumers.set_next_token(token).send().await.is_err()
        }
        Rule::ShardQuota => {
            let split = client.split_shard().stream_name("s").shard_to_split(SHARD_0);
            split.new_starting_hash_key((1u128 << 127).to_string()).send().await.is_err()
        }
        Rule::ScaleFactor => {
            let scale =
                client.update_shard_count().stream_name("s").scaling_type(ScalingType::UniformScaling);
            let up = scale.clone().target_shard_count(3).send().await.is_err();
            after(1_000).await;
            kinesis.scale("s", 2).unwrap_or_default();
            kinesis.scale("s", 4).unwrap_or_default();
            up && scale.target_shard_count(1).send().await.is_err()
        }
        other => panic!("{other} has no probe"),
    }
}

/// Whether the rule is seen in a new service, which is without another rule where that would hide it.
async fn bites(rule: Rule, builder: Builder) -> bool {
    let builder = match rule {
        Rule::SubscribeCallRate => builder.without(Rule::SubscribeInUse),
        Rule::ShardQuota => builder.shard_quota(1),
        // What else would refuse so many bytes.
        Rule::WriteCallSize | Rule::RecordSize => builder.without_throughput_limits(),
        _ => builder,
    };
    throughput_bites(rule, &fan_out_of(builder, 1)).await
}

/// S-246: each rule bites while it is on and does not while it is off.
#[tokio::test(start_paused = true)]
async fn every_rule_bites_unless_it_is_switched_off() {
    for rule in Rule::ALL {
        assert!(bites(rule, builder()).await, "{rule} does not bite");
        assert!(!bites(rule, builder().without(rule)).await, "{rule} bites although it is off");
        assert!(bites(rule, builder().without(rule).with(rule)).await, "{rule} cannot be switched on again");
    }
}

#[test]
fn every_rule_has_a_name_and_its_place_in_the_documentation() {
    for rule in Rule::ALL {
        assert_eq!(rule.to_string().parse(), Ok(rule));
        assert!(rule.documentation().starts_with("https://docs.aws.amazon.com/"), "{rule}");
        assert!(rule.documentation().ends_with(".html"), "{rule}");
    }
    assert_eq!("x".parse::<Rule>().unwrap_err().to_string(), "no rule has the name `x`");
}

#[tokio::test(start_paused = true)]
async fn the_order_of_a_call_s_records_comes_from_the_seed() {
    let order = |seed| async move {
        let fan_out = fan_out_of(TestKinesis::builder().seed(seed), 1);
        put_batch(&fan_out, 50).await;
        fan_out.kinesis.records("s").unwrap().into_iter().map(|record| record.data).collect::<Vec<_>>()
    };
    assert_eq!(order(7).await, order(7).await);
    assert_ne!(order(7).await, order(8).await);
}

#[tokio::test(start_paused = true)]
async fn every_state_of_a_key_has_its_error() {
    let fan_out = fan_out_of(TestKinesis::builder(), 1);
    let encrypt = fan_out.client.start_stream_encryption().stream_name("s");
    let encrypt = encrypt.encryption_type(aws_sdk_kinesis::types::EncryptionType::Kms).key_id("alias/mine");
    encrypt.send().await.unwrap();
    after(500).await;
    assert!(put(&fan_out, 1).await);
    let iterator = oldest(&fan_out.client, "s", SHARD_0).await;
    for (state, wanted) in [
        (KeyState::Disabled, "KMSDisabledException"),
        (KeyState::PendingDeletion, "KMSInvalidStateException"),
        (KeyState::Missing, "KMSNotFoundException"),
        (KeyState::AccessDenied, "KMSAccessDeniedException"),
        (KeyState::Throttled, "KMSThrottlingException"),
        (KeyState::OptInRequired, "KMSOptInRequired"),
    ] {
        fan_out.kinesis.set_key_state("s", state).unwrap();
        let read = fan_out.client.get_records().shard_iterator(&iterator).send().await;
        assert_eq!(support::code(read), wanted);
        let written = fan_out.client.put_records().stream_name("s").records(entry("k", "x")).send().await;
        assert_eq!(support::code(written), wanted);
        assert_eq!(support::code(fan_out.subscribe(SHARD_0, from_tip()).await), wanted);
    }
    fan_out.kinesis.set_key_state("s", KeyState::Enabled).unwrap();
    let page = support::read(&fan_out.client, &iterator).await;
    assert_eq!(page.records()[0].encryption_type().unwrap().as_str(), "KMS");
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    fan_out.kinesis.set_key_state("s", KeyState::Disabled).unwrap();
    assert_eq!(stream.error().await, "KMSDisabledException");
}

#[tokio::test(start_paused = true)]
async fn auto_distribution_needs_no_keys_and_ignores_those_given() {
    let kinesis = TestKinesis::new();
    let client = kinesis.client();
    let auto = aws_sdk_kinesis::types::RecordDistributionStrategy::Auto;
    let on_demand = StreamModeDetails::builder().stream_mode(StreamMode::OnDemand).build().unwrap();
    let create = client.create_stream().stream_name("s").record_distribution_strategy(auto.clone());
    assert_eq!(support::code(create.clone().shard_count(1).send().await), "InvalidArgumentException");
    create.stream_mode_details(on_demand).send().await.unwrap();
    after(500).await;
    let mut shards = Vec::new();
    for n in 0..8 {
        let put = client.put_record().stream_name("s").data(Blob::new("x"));
        let put = if n % 2 == 0 { put } else { put.partition_key("same") };
        shards.push(put.send().await.unwrap().shard_id);
    }
    shards.sort();
    shards.dedup();
    assert_eq!(shards.len(), 4);
    let mut keys = 0;
    for shard in shards {
        let page = support::read(&client, &oldest(&client, "s", &shard).await).await;
        keys += page.records().iter().filter(|record| record.partition_key() == Some("same")).count();
        assert_eq!(page.records().len(), 2);
    }
    assert_eq!(keys, 4);
    let summary = client.describe_stream_summary().stream_name("s").send().await.unwrap();
    let summary = summary.stream_description_summary.unwrap();
    assert_eq!(summary.record_distribution_strategy, Some(auto));
    assert_eq!(summary.stream_status, StreamStatus::Active);

    let by_key = aws_sdk_kinesis::types::RecordDistributionStrategy::UserPartitionKey;
    let update = client.update_stream_record_distribution_strategy().stream_arn(ARN);
    update.record_distribution_strategy(by_key).send().await.unwrap();
    let put = client.put_record().stream_name("s").data(Blob::new("x")).send().await;
    assert_eq!(support::code(put), "ValidationException");
}
