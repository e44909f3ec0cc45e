//! Consumers of enhanced fan-out: registered, described, listed, deregistered.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::register_stream_consumer::{
    RegisterStreamConsumerError, RegisterStreamConsumerOutput,
};
use aws_sdk_kinesis::types::ConsumerStatus;
use kinesis_testkit::{Rule, TestKinesis};
use support::{ARN, after, code, with_stream, without};

type Registered = Result<RegisterStreamConsumerOutput, SdkError<RegisterStreamConsumerError>>;

async fn register(client: &Client, name: &str) -> Registered {
    client.register_stream_consumer().stream_arn(ARN).consumer_name(name).send().await
}

async fn status(client: &Client, arn: &str) -> ConsumerStatus {
    let reply = client.describe_stream_consumer().consumer_arn(arn).send().await.unwrap();
    reply.consumer_description.unwrap().consumer_status
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_created_described_and_removed() {
    let (kinesis, client) = with_stream(1);
    let consumer = register(&client, "app").await.unwrap().consumer.unwrap();
    assert_eq!(consumer.consumer_name, "app");
    assert_eq!(consumer.consumer_status, ConsumerStatus::Creating);
    assert_eq!(consumer.consumer_arn, format!("{ARN}/consumer/app:1767225600"));
    let arn = &consumer.consumer_arn;
    after(499).await;
    assert_eq!(status(&client, arn).await, ConsumerStatus::Creating);
    after(1).await;
    assert_eq!(status(&client, arn).await, ConsumerStatus::Active);

    let by_name =
        client.describe_stream_consumer().stream_arn(ARN).consumer_name("app").send().await.unwrap();
    let description = by_name.consumer_description.unwrap();
    assert_eq!(description.stream_arn, ARN);
    assert_eq!(description.consumer_arn, *arn);
    let summary = client.describe_stream_summary().stream_name("s").send().await.unwrap();
    assert_eq!(summary.stream_description_summary.unwrap().consumer_count, Some(1));

    client.deregister_stream_consumer().consumer_arn(arn).send().await.unwrap();
    assert_eq!(status(&client, arn).await, ConsumerStatus::Deleting);
    after(500).await;
    let gone = client.describe_stream_consumer().consumer_arn(arn).send().await;
    assert_eq!(code(gone), "ResourceNotFoundException");
    // One of the same name is another one.
    let again = kinesis.register_consumer("s", "app").unwrap();
    assert_ne!(again, *arn);
    let stale = client.describe_stream_consumer().consumer_arn(arn).send().await;
    assert_eq!(code(stale), "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_refused() {
    let (kinesis, client) = with_stream(1);
    kinesis.register_consumer("s", "app").unwrap();
    assert_eq!(code(register(&client, "app").await), "ResourceInUseException");
    assert_eq!(code(register(&client, "a b").await), "ValidationException");
    let nowhere = client.register_stream_consumer().stream_arn(ARN.replace(":stream/s", ":stream/t"));
    assert_eq!(code(nowhere.consumer_name("app").send().await), "ResourceNotFoundException");
    let unnamed = client.describe_stream_consumer().stream_arn(ARN).send().await;
    assert_eq!(code(unnamed), "InvalidArgumentException");
    let no_arn = client.describe_stream_consumer().consumer_arn(ARN).send().await;
    assert_eq!(code(no_arn), "InvalidArgumentException");
    let other = kinesis.register_consumer("s", "other").unwrap();
    let torn = client.describe_stream_consumer().consumer_arn(other).consumer_name("app");
    assert_eq!(code(torn.send().await), "InvalidArgumentException");
}

#[tokio::test(start_paused = true)]
async fn consumers_are_listed_in_pages() {
    let (kinesis, client) = with_stream(1);
    for name in ["c", "a", "b"] {
        kinesis.register_consumer("s", name).unwrap();
    }
    let first = client.list_stream_consumers().stream_arn(ARN).max_results(2).send().await.unwrap();
    let names = |page: &[aws_sdk_kinesis::types::Consumer]| -> Vec<String> {
        page.iter().map(|consumer| consumer.consumer_name.clone()).collect()
    };
    assert_eq!(names(first.consumers()), ["a", "b"]);
    let token = first.next_token.unwrap();
    let rest = client.list_stream_consumers().stream_arn(ARN).next_token(&token).send().await.unwrap();
    assert_eq!(names(rest.consumers()), ["c"]);
    assert_eq!(rest.next_token, None);
    after(301_000).await;
    let late = client.list_stream_consumers().stream_arn(ARN).next_token(&token).send().await;
    assert_eq!(code(late), "ExpiredNextTokenException");
}

/// F-27: registrations are limited per second and account.
#[tokio::test(start_paused = true)]
async fn five_calls_a_second_register_consumers() {
    let (_kinesis, client) = {
        let kinesis = TestKinesis::builder().register_consumer_delay(Duration::ZERO).build();
        kinesis.create_stream("s", 1).unwrap();
        let client = kinesis.client();
        (kinesis, client)
    };
    for number in 0..5 {
        register(&client, &format!("c{number}")).await.unwrap();
    }
    assert_eq!(code(register(&client, "c5").await), "LimitExceededException");
    after(200).await;
    register(&client, "c5").await.unwrap();
}

async fn six_in_creation(kinesis: &TestKinesis) -> Vec<Registered> {
    let client = kinesis.client();
    kinesis.create_stream("s", 1).unwrap();
    let mut results = Vec::new();
    for number in 0..6 {
        results.push(register(&client, &format!("c{number}")).await);
        after(200).await;
    }
    results
}

#[tokio::test(start_paused = true)]
async fn five_consumers_may_be_in_creation() {
    let kinesis = TestKinesis::builder().register_consumer_delay(Duration::from_secs(10)).build();
    let mut results = six_in_creation(&kinesis).await;
    assert_eq!(code(results.pop().unwrap()), "LimitExceededException");
    assert!(results.iter().all(Result::is_ok));
    after(10_000).await;
    register(&kinesis.client(), "c5").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_consumers_in_creation_any_number_may_be() {
    let builder = TestKinesis::builder().register_consumer_delay(Duration::from_secs(10));
    let results = six_in_creation(&builder.without(Rule::ConsumersInCreation).build()).await;
    assert!(results.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_twenty_consumers_or_fifty() {
    for (builder, quota) in [(TestKinesis::builder(), 20), (TestKinesis::builder().consumer_quota(50), 50)] {
        let kinesis = builder.build();
        kinesis.create_stream("s", 1).unwrap();
        for number in 0..quota {
            kinesis.register_consumer("s", &format!("c{number}")).unwrap();
        }
        assert_eq!(kinesis.register_consumer("s", "more").unwrap_err().code(), "LimitExceededException");
        assert_eq!(code(register(&kinesis.client(), "more").await), "LimitExceededException");
    }
}

#[tokio::test(start_paused = true)]
async fn without_consumer_quota_a_stream_has_any_number() {
    let (kinesis, client) = without(Rule::ConsumerQuota);
    for number in 0..60 {
        kinesis.register_consumer("s", &format!("c{number}")).unwrap();
    }
    register(&client, "more").await.unwrap();
}
