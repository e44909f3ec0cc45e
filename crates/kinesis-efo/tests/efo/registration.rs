//! Finding, registering and waiting for consumers.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::interceptors::{
    BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_types::body::SdkBody;
use kinesis_core::source::{OpenShard, ShardReader, SourceError};
use kinesis_core::{BoxError, StartPosition, StreamRef};
use kinesis_efo::{EfoConfig, RegistrationError};
use kinesis_testkit::{Fault, Operation, TestKinesis, scenarios};
use tokio::time::Instant;

const DESCRIBE: Operation = Operation::DescribeStreamConsumer;
const REGISTER: Operation = Operation::RegisterStreamConsumer;

/// A service with streams of these names and no consumer.
fn streams(kinesis: TestKinesis, names: &[&str]) -> (TestKinesis, Vec<StreamRef>) {
    for name in names {
        kinesis.create_stream(name, 1).unwrap();
    }
    (kinesis, names.iter().map(|name| name.parse().unwrap()).collect())
}

fn one() -> (TestKinesis, Vec<StreamRef>) {
    streams(TestKinesis::new(), &[STREAM])
}

/// S-088: a consumer that is missing is registered and waited for before anything is subscribed to.
#[tokio::test(start_paused = true)]
async fn a_missing_consumer_is_registered_and_waited_for() {
    let kinesis = TestKinesis::builder().register_consumer_delay(3_500 * MS).build();
    let (kinesis, _) = streams(kinesis, &[STREAM]);
    put(&kinesis, 0..1);
    assert_eq!(read(&mut reader(&kinesis, StartPosition::TrimHorizon), 1).await.payloads, expected(0..1));
    let calls: Vec<_> = kinesis.calls_log().iter().map(|call| call.operation.to_string()).collect();
    let describe = "DescribeStreamConsumer";
    assert_eq!(
        calls,
        [
            "DescribeStreamSummary",
            describe,
            "RegisterStreamConsumer",
            describe,
            describe,
            describe,
            describe,
            "SubscribeToShard",
        ]
    );
    assert_eq!(times(&kinesis), [4 * SECOND]);
}

/// R-11: a consumer that exists is found without the permission to register, and without the stream's name in ARN calls.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_exists_needs_no_permission_to_register() {
    let kinesis = service(1);
    kinesis.faults().on(REGISTER).always().inject(Fault::AccessDenied);
    let stream: StreamRef = kinesis.stream_arn(STREAM).parse().unwrap();
    let source = source(kinesis.client(), config());
    let found = source.register(std::slice::from_ref(&stream)).await.unwrap();
    assert_eq!(found[0].stream, stream);
    assert!(found[0].consumer_arn.contains(":stream/orders/consumer/billing:"), "{found:?}");
    let calls: Vec<_> = kinesis.calls_log().iter().map(|call| call.operation).collect();
    assert_eq!(calls, [DESCRIBE], "a stream given by its ARN is not looked up");
}

/// S-089: consumers of several streams become active at the same time.
#[tokio::test(start_paused = true)]
async fn consumers_of_several_streams_become_active_at_the_same_time() {
    let kinesis = TestKinesis::builder().register_consumer_delay(30 * SECOND).build();
    let (kinesis, streams) = streams(kinesis, &["a", "b", "c", "d", "e"]);
    let begun = Instant::now();
    let found = source(kinesis.client(), config()).register(&streams).await.unwrap();
    assert!((30..=32).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(found.iter().map(|found| found.stream.clone()).collect::<Vec<_>>(), streams);
}

/// S-089, S-091: many streams keep within five registrations a second and five consumers in creation; each has one
/// consumer, all of the same name.
#[tokio::test(start_paused = true)]
async fn registrations_keep_within_the_limits_of_the_service() {
    let names: Vec<_> = (0..17).map(|n| format!("stream-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let kinesis = TestKinesis::builder().register_consumer_delay(10 * SECOND).build();
    let (kinesis, streams) = streams(kinesis, &names);
    source(kinesis.client(), config()).register(&streams).await.unwrap();
    let registered = kinesis.calls_of(REGISTER);
    assert_eq!(registered.len(), 17, "none was refused or repeated");
    assert!(registered.iter().all(|call| call.consumer.as_deref() == Some(CONSUMER)));
    let mut of: Vec<_> = registered.iter().map(|call| call.stream.clone().unwrap()).collect();
    of.sort();
    of.dedup();
    assert_eq!(of.len(), 17);
    for window in registered.windows(6) {
        assert!(window[5].elapsed - window[0].elapsed >= SECOND);
    }
}

/// S-092, S-093: a consumer that does not become active in time is a clear error at the end of that time.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_never_becomes_active_is_a_clear_error() {
    for (timeout, calls) in [(60, 61), (5, 6)] {
        let kinesis = TestKinesis::builder().register_consumer_delay(Duration::from_secs(3_600)).build();
        let (kinesis, streams) = streams(kinesis, &[STREAM]);
        let source = source(kinesis.client(), config().activation_timeout(timeout * SECOND));
        let begun = Instant::now();
        let error = source.register(&streams).await.unwrap_err();
        assert_eq!(begun.elapsed(), timeout * SECOND);
        assert_eq!(
            error.to_string(),
            format!("consumer billing of stream orders is not active after {timeout} s")
        );
        assert!(error.is_retryable());
        assert_eq!(kinesis.calls(DESCRIBE), calls, "once a second, within the time");
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, SourceError::Exhausted { .. }) && error.is_retryable(), "{error}");
        assert_eq!(kinesis.calls(Operation::SubscribeToShard), 0);
    }
}

/// R-08: refused calls are repeated within the time, and a lost race is a success.
#[tokio::test(start_paused = true)]
async fn what_passes_is_waited_for() {
    let cases = [
        (DESCRIBE, Fault::error("LimitExceededException"), 3),
        (DESCRIBE, Fault::InternalFailure, 3),
        (DESCRIBE, Fault::Disconnect, 3),
        (DESCRIBE, Fault::Hang(FOREVER), 2),
        (REGISTER, Fault::error("LimitExceededException"), 5),
        (REGISTER, Fault::error("ResourceInUseException"), 2),
        (REGISTER, Fault::DropReply, 1),
        (REGISTER, Fault::Hang(FOREVER), 2),
        (Operation::DescribeStreamSummary, Fault::error("LimitExceededException"), 3),
        (Operation::DescribeStreamSummary, Fault::Hang(FOREVER), 2),
    ];
    for (operation, fault, times) in cases {
        let (kinesis, streams) = one();
        kinesis.faults().next(operation, times, fault.clone());
        let begun = Instant::now();
        source(kinesis.client(), config()).register(&streams).await.unwrap();
        assert!(begun.elapsed() < 30 * SECOND, "{operation} {fault:?}: {:?}", begun.elapsed());
    }
}

/// R-08: a consumer that is being deleted is an immediate, clear error.
#[tokio::test(start_paused = true)]
async fn a_consumer_being_deleted_is_an_error_at_once() {
    let kinesis = TestKinesis::builder().delete_stream_delay(60 * SECOND).build();
    let kinesis = with_stream(kinesis, 1);
    let deregister = kinesis.client().deregister_stream_consumer().stream_arn(kinesis.stream_arn(STREAM));
    deregister.consumer_name(CONSUMER).send().await.unwrap();
    let source = source(kinesis.client(), config());
    let begun = Instant::now();
    let error = source.register(&[STREAM.parse().unwrap()]).await.unwrap_err();
    assert_eq!(error.to_string(), "consumer billing of stream orders is being deleted");
    assert!(error.is_retryable() && begun.elapsed().is_zero());
    tokio::time::sleep(61 * SECOND).await;
    source.register(&[STREAM.parse().unwrap()]).await.unwrap();
}

/// When the stream has as many consumers as it may have, the error says so after the time.
#[tokio::test(start_paused = true)]
async fn a_stream_without_a_free_slot_is_said() {
    let (kinesis, streams) = streams(TestKinesis::builder().consumer_quota(1).build(), &[STREAM]);
    kinesis.register_consumer(STREAM, "somebody").unwrap();
    let error = source(kinesis.client(), config()).register(&streams).await.unwrap_err();
    assert!(matches!(error, RegistrationError::NoFreeSlot { .. }) && error.is_retryable(), "{error}");
    assert_eq!(
        error.to_string(),
        "stream orders takes no further consumer: billing could not be registered within 60 s"
    );
    assert!(error.source().unwrap().to_string().contains("LimitExceededException"));
}

/// R-10: a missing permission is said at once, by its name, for each of the calls.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_said_at_once() {
    for operation in [Operation::DescribeStreamSummary, DESCRIBE, REGISTER] {
        let (kinesis, streams) = one();
        kinesis.faults().on(operation).always().inject(Fault::AccessDenied);
        let source = source(kinesis.client(), config());
        let begun = Instant::now();
        let error = source.register(&streams).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{operation} on stream orders: access denied; the policy must allow kinesis:{operation} on the stream \
                 and its consumers"
            )
        );
        assert!(begun.elapsed().is_zero());
        assert_eq!(kinesis.calls(operation), 1);
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, SourceError::AccessDenied { .. }), "{error}");
        assert!(error.to_string().contains(&format!("kinesis:{operation}")), "{error}");
    }
}

/// A stream that does not exist is said at once.
#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_exist_is_said_at_once() {
    let kinesis = TestKinesis::new();
    let source = source(kinesis.client(), config());
    for stream in [STREAM.to_owned(), kinesis.stream_arn(STREAM)] {
        let error = source.register(&[stream.parse().unwrap()]).await.unwrap_err();
        assert!(matches!(error, RegistrationError::StreamNotFound { .. }), "{error}");
        assert!(!error.is_retryable());
    }
}

/// R-09: a start that failed can be tried again, and a reader whose start never succeeded closes at once.
#[tokio::test(start_paused = true)]
async fn a_failed_start_can_be_tried_again() {
    let (kinesis, streams) = one();
    put(&kinesis, 0..1);
    let source = source(kinesis.client(), config());
    kinesis.faults().on(REGISTER).always().inject(Fault::AccessDenied);
    source.register(&streams).await.unwrap_err();
    let open = || source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut failed = open();
    failed.next().await.unwrap_err();
    let begun = Instant::now();
    Box::new(failed).close().await;

    kinesis.faults().clear();
    kinesis.faults().on(DESCRIBE).always().inject(Fault::Hang(FOREVER));
    let mut hung = open();
    assert!(tokio::time::timeout(SECOND, hung.next()).await.is_err());
    Box::new(hung).close().await;
    assert_eq!(begun.elapsed(), SECOND, "both closed at once");

    kinesis.faults().clear();
    assert_eq!(read(&mut open(), 1).await.payloads, expected(0..1));
}

/// The ARN of a consumer that exists, here of another account, is used as it is: no call about consumers is made.
#[tokio::test(start_paused = true)]
async fn a_consumer_given_by_its_arn_needs_no_other_call() {
    let kinesis = TestKinesis::builder().account_id("999999999999").build();
    kinesis.create_stream(STREAM, 1).unwrap();
    let arn = kinesis.register_consumer(STREAM, "theirs").unwrap();
    put(&kinesis, 0..1);
    let source = source(kinesis.client(), EfoConfig::new(arn.clone()));
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1));
    let found = source.register(&[STREAM.parse().unwrap()]).await.unwrap();
    assert_eq!(found[0].consumer_arn, arn);
    assert_eq!(kinesis.calls_log().len(), 1);

    let error = source.register(&["other".parse().unwrap()]).await.unwrap_err();
    assert!(matches!(error, RegistrationError::OtherStream { .. }), "{error}");
    assert!(!error.is_retryable());
}

/// S-088: the readers of a source look for the consumer once, however many there are.
#[tokio::test(start_paused = true)]
async fn many_readers_look_for_the_consumer_once() {
    let kinesis = TestKinesis::builder().register_consumer_delay(2 * SECOND).build();
    kinesis.create_stream(STREAM, 50).unwrap();
    let source = source(kinesis.client(), config());
    let mut readers: Vec<_> =
        (0..50).map(|n| source.reader(OpenShard::new(shard(n), StartPosition::TrimHorizon))).collect();
    let firsts = futures_util::future::join_all(readers.iter_mut().map(ShardReader::next)).await;
    assert!(firsts.iter().all(Result::is_ok));
    let count = |operation| kinesis.calls(operation);
    assert_eq!((count(Operation::DescribeStreamSummary), count(REGISTER), count(DESCRIBE)), (1, 1, 3));
}

/// F-27: twenty workers that start together register one consumer, stay within the rates of the account, and all read
/// within a minute.
#[tokio::test(start_paused = true)]
async fn twenty_workers_that_start_together_share_one_consumer() {
    let (kinesis, _) = streams(scenarios::slow_registration().build(), &["other"]);
    scenarios::long_history(&kinesis, STREAM, 20, 180).unwrap();
    let open: Vec<_> = kinesis.shards(STREAM).unwrap().into_iter().filter(|view| view.is_open()).collect();
    for view in &open {
        kinesis.put_at(STREAM, view.starting_hash_key, "key", "x").unwrap();
    }
    let work = |number: usize| {
        let source = source(kinesis.client(), config());
        let id = open[number].shard_id.parse().unwrap();
        let shard = kinesis_core::ShardRef::new(STREAM.parse().unwrap(), id);
        async move {
            let mut reader = source.reader(OpenShard::new(shard, StartPosition::TrimHorizon));
            read(&mut reader, 1).await
        }
    };
    let all = futures_util::future::join_all((0..20).map(work));
    let all = tokio::time::timeout(60 * SECOND, all).await.unwrap();
    assert!(all.iter().all(|heard| heard.payloads == ["x"]));
    let consumers = kinesis.client().list_stream_consumers().stream_arn(kinesis.stream_arn(STREAM));
    assert_eq!(consumers.send().await.unwrap().consumers().len(), 1);
    assert!(kinesis.calls(DESCRIBE) < 20 * 40, "{}", kinesis.calls(DESCRIBE));
    assert!(kinesis.calls(Operation::DescribeStreamSummary) < 20 * 6);
}

/// S-090: whatever way a reader or a source ends, the consumer is never deregistered.
#[tokio::test(start_paused = true)]
async fn no_way_out_deregisters_the_consumer() {
    let kinesis = service(1);
    put(&kinesis, 0..3);
    let source = source(kinesis.client(), config());
    let open = || source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut reader = open();
    read(&mut reader, 3).await;
    Box::new(reader).close().await;
    let mut reader = open();
    read(&mut reader, 3).await;
    drop(reader);
    kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::AccessDenied);
    open().next().await.unwrap_err();
    kinesis.split(STREAM, SHARD).unwrap();
    read_to_end(&mut open()).await;
    drop(source);
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::DeregisterStreamConsumer), 0);
    assert_eq!(kinesis.register_consumer(STREAM, CONSUMER).unwrap_err().code(), "ResourceInUseException");
}

/// Writes down what RegisterStreamConsumer is called with, and takes the ARN out of what DescribeStreamConsumer says.
#[derive(Debug, Clone, Default)]
struct Meddler {
    requests: Arc<Mutex<Vec<String>>>,
    without_arn: bool,
}

impl Intercept for Meddler {
    fn name(&self) -> &'static str {
        "Meddler"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.request().body().bytes().unwrap_or_default();
        self.requests.lock().unwrap().push(String::from_utf8_lossy(body).into_owned());
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.without_arn {
            let body = r#"{"ConsumerDescription":{"ConsumerName":"billing","ConsumerStatus":"ACTIVE","ConsumerARN":"",
                "StreamARN":"x","ConsumerCreationTimestamp":1.0}}"#;
            *context.response_mut().body_mut() = SdkBody::from(body);
        }
        Ok(())
    }
}

fn meddled(kinesis: &TestKinesis, meddler: Meddler) -> Client {
    Client::from_conf(kinesis.client().config().to_builder().interceptor(meddler).build())
}

/// Tags go out with the registration.
#[tokio::test(start_paused = true)]
async fn tags_are_passed_on() {
    let (kinesis, streams) = one();
    let meddler = Meddler::default();
    let tags = BTreeMap::from([("team".to_owned(), "orders".to_owned())]);
    let client = meddled(&kinesis, meddler.clone());
    source(client, config().tags(tags)).register(&streams).await.unwrap();
    let requests = meddler.requests.lock().unwrap();
    let with_tags: Vec<_> = requests.iter().filter(|body| body.contains("Tags")).collect();
    assert_eq!(with_tags.len(), 1);
    assert!(with_tags[0].contains(r#""Tags":{"team":"orders"}"#), "{with_tags:?}");
}

/// R-08: an answer that calls a consumer active and names no ARN is an error.
#[tokio::test(start_paused = true)]
async fn an_active_consumer_without_an_arn_is_an_error() {
    let kinesis = service(1);
    let client = meddled(&kinesis, Meddler { without_arn: true, ..Meddler::default() });
    let stream: StreamRef = kinesis.stream_arn(STREAM).parse().unwrap();
    let error = source(client, config()).register(&[stream]).await.unwrap_err();
    assert!(matches!(error, RegistrationError::Refused { .. }), "{error}");
    assert_eq!(error.source().unwrap().to_string(), "the answer has no ARN of the consumer");
}

/// R-08: the delays between calls that fail are settings.
#[tokio::test(start_paused = true)]
async fn the_delays_between_failed_calls_are_settings() {
    let (kinesis, streams) = one();
    kinesis.faults().on(DESCRIBE).always().inject(Fault::Throttle);
    let config = config().control_backoff_initial(4 * SECOND).control_backoff_max(8 * SECOND);
    let source = source(kinesis.client(), config);
    let error = source.register(&streams).await.unwrap_err();
    assert!(matches!(error, RegistrationError::NotActive { .. }), "{error}");
    let at: Vec<_> = kinesis.calls_of(DESCRIBE).iter().map(|call| call.elapsed).collect();
    let delays: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((2 * SECOND..=4 * SECOND).contains(&delays[0]), "{delays:?}");
    assert!(delays[1..].iter().all(|delay| (4 * SECOND..=8 * SECOND).contains(delay)), "{delays:?}");
    assert!((7..=15).contains(&delays.len()), "{delays:?}");
}
