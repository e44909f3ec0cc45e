//! Calls that fail, hang, or are cut.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::Config;
use aws_sdk_kinesis::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_kinesis::types::ShardIteratorType;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{BoxError, StartPosition};
use kinesis_poll::{PollConfig, PollSource};
use kinesis_testkit::{Fault, Operation, Outcome, scenarios};

const HOUR: Duration = Duration::from_secs(3_600);

/// F-13: a call that is never answered ends with its attempt timeout, and the work goes on; one in ten is hit.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_ends_with_its_timeout() {
    let kinesis = service(1);
    put(&kinesis, 0..100);
    kinesis.faults().next(Operation::GetShardIterator, 1, Fault::Hang(HOUR));
    kinesis.faults().on(Operation::GetRecords).every(10).always().inject(Fault::Hang(HOUR));
    let config = PollConfig::default().attempt_timeout(2 * SECOND).max_records(2);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
    let heard = read(&mut reader, 100).await;
    assert_eq!(heard.payloads, expected(0..100));
    assert_eq!(kinesis.calls(Operation::GetShardIterator), 2);
    let spacing = spacing(&kinesis);
    assert_eq!(spacing.iter().filter(|time| !is_full_rate(time)).count(), 5, "{spacing:?}");
    let late = 2 * SECOND + 150 * MS..=2 * SECOND + 301 * MS;
    assert!(spacing.iter().all(|time| is_full_rate(time) || late.contains(time)), "{spacing:?}");
}

/// F-13: without a setting the limit of a call is 30 s.
#[tokio::test(start_paused = true)]
async fn the_default_limit_of_a_call_is_thirty_seconds() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    kinesis.faults().next(Operation::GetRecords, 1, Fault::Hang(HOUR));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
    read(&mut reader, 1).await;
    let spacing = spacing(&kinesis);
    assert!(30 * SECOND <= spacing[0] && spacing[0] <= 30 * SECOND + 301 * MS, "{spacing:?}");
}

/// A body that begins and then neither goes on nor ends.
struct Stalled(Option<Bytes>);

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))))
    }
}

/// Of the answers of GetRecords, lets every third stall in its body: after the first half of it, or before any of it.
fn stalling(client: &Client) -> Client {
    let answers = AtomicUsize::new(0);
    with_bodies(client, move |body| {
        let stalled = match answers.fetch_add(1, Ordering::Relaxed) % 6 {
            2 => Stalled(Some(Bytes::copy_from_slice(&body[..body.len() / 2]))),
            5 => Stalled(None),
            _ => return None,
        };
        Some(SdkBody::from_body_1_x(stalled))
    })
}

/// F-13: an answer that stalls after its headers ends with its attempt timeout too, whoever decodes it, and the same page
/// is read again.
#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_in_its_body_ends_with_its_timeout() {
    let kinesis = service(1);
    put(&kinesis, 0..40);
    let config = PollConfig::default().attempt_timeout(2 * SECOND).max_records(4);
    for decoder in 0..decoders(&kinesis.client(), config.clone()).len() {
        kinesis.clear_calls();
        let source = decoders(&stalling(&kinesis.client()), config.clone()).swap_remove(decoder);
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        let heard = read(&mut reader, 40).await;
        assert_eq!((heard.payloads, heard.others.len()), (expected(0..40), 0));
        let spacing = &spacing(&kinesis)[..13];
        let late = 2 * SECOND + 150 * MS..=2 * SECOND + 301 * MS;
        for (n, time) in spacing.iter().enumerate() {
            assert!(if n % 3 == 2 { late.contains(time) } else { is_full_rate(time) }, "{spacing:?}");
        }
        assert_eq!(kinesis.calls(Operation::GetShardIterator), 1);
    }
}

/// S-082, F-13: whatever a read fails with, the same page comes later, once.
#[tokio::test(start_paused = true)]
async fn a_failed_read_is_repeated_without_loss_or_repetition() {
    let faults = [
        Fault::Throttle,
        Fault::InternalFailure,
        Fault::Disconnect,
        Fault::DropReply,
        Fault::error("KMSThrottlingException"),
        Fault::error("LimitExceededException"),
        Fault::error("SomethingNewException"),
    ];
    for fault in faults {
        let kinesis = service(1);
        put(&kinesis, 0..6);
        kinesis.faults().on(Operation::GetRecords).skip(1).times(3).inject(fault.clone());
        let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(3));
        let heard = read(&mut reader, 6).await;
        assert_eq!(heard.payloads, expected(0..6), "{fault:?}");
        assert!(heard.others.is_empty(), "{fault:?}: short trouble is not worth a word: {heard:?}");
        assert_eq!(
            kinesis.calls(Operation::GetRecords),
            5,
            "the SDK does not repeat calls on its own: {fault:?}"
        );
        let spacing = spacing(&kinesis);
        assert!(spacing[1] <= 301 * MS && spacing[2] <= 601 * MS && spacing[3] <= 1_201 * MS, "{spacing:?}");
    }
}

/// S-080: two shards that are throttled together come back apart, and no throttle is an error, however many.
#[tokio::test(start_paused = true)]
async fn shards_throttled_together_come_back_apart() {
    let kinesis = service(2);
    kinesis.faults().on(Operation::GetRecords).times(2_000).inject(Fault::Throttle);
    let source = source(&kinesis, PollConfig::default().max_attempts(Some(2)));
    let read = |number: usize| {
        let mut reader = source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
        async move { read_for(&mut reader, 600 * SECOND).await }
    };
    tokio::join!(read(0), read(1));
    let calls = kinesis.calls_of(Operation::GetRecords);
    let times = |id: &str| {
        let of = calls.iter().filter(|call| call.shard.as_deref() == Some(id));
        of.map(|call| call.elapsed).collect::<Vec<_>>()
    };
    let (one, other) = (times(SHARD), times("shardId-000000000001"));
    assert!(one.len() > 120 && other.len() > 120, "{} and {}", one.len(), other.len());
    assert_eq!(one[0], other[0]);
    let together = one[1..].iter().filter(|at| other.contains(at)).count();
    assert!(together < 5, "{together} times together");
}

/// F-25: 120 shards of one consumer are throttled for a minute. Each comes back by itself within a few seconds, nothing
/// is lost, no shard is asked more often than its delays allow, and the SDK's allowance of retries, which it counts per
/// process, is left to the caller's own calls: one that is throttled twice still has its third attempt.
#[tokio::test(start_paused = true)]
async fn many_throttled_shards_come_back_and_leave_the_callers_retries_alone() {
    const SHARDS: usize = 120;
    let minute = 60 * SECOND;
    let kinesis = service(SHARDS);
    kinesis.create_stream("calm", 1).unwrap();
    for view in kinesis.shards(STREAM).unwrap() {
        for n in 0..4 {
            kinesis.put_at(STREAM, view.starting_hash_key, "key", n.to_string()).unwrap();
        }
    }
    // The allowance has a name of its own, so that other tests of this process take nothing from it.
    let standard = kinesis.sdk_config().into_builder().retry_config(RetryConfig::standard()).build();
    let standard = Config::new(&standard).to_builder().retry_partition(RetryPartition::new("many-throttled"));
    let callers = Client::from_conf(standard.build());
    let source = PollSource::new(&callers, PollConfig::default().max_records(2)).unwrap().seed(1);
    let open = |number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
    let mut readers: Vec<_> = (0..SHARDS).map(open).collect();
    for reader in &mut readers {
        assert_eq!(read(reader, 2).await.payloads, expected(0..2));
    }
    kinesis.clear_calls();
    scenarios::throttled_reads(&kinesis, STREAM, minute);
    let began = tokio::time::Instant::now();
    let reading = readers.iter_mut().map(|reader| async move { (read(reader, 2).await, began.elapsed()) });
    let reading = futures_util::future::join_all(reading);
    let callers_own = async {
        tokio::time::sleep(minute / 2).await;
        kinesis.faults().on(Operation::GetShardIterator).stream("calm").times(2).inject(Fault::Throttle);
        let iterator = callers.get_shard_iterator().stream_name("calm").shard_id(SHARD);
        iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.unwrap();
        let calls = kinesis.calls_of(Operation::GetShardIterator);
        assert_eq!(calls.iter().filter(|call| call.stream.as_deref() == Some("calm")).count(), 3);
    };
    let (all, ()) = tokio::join!(reading, callers_own);
    for (heard, took) in all {
        assert_eq!(heard.payloads, expected(2..4));
        assert!(minute <= took && took <= minute + 5 * SECOND, "{took:?}");
    }
    let calls = kinesis.calls_of(Operation::GetRecords);
    for number in 0..SHARDS {
        let id = shard(number).shard().to_string();
        let calls = calls.iter().filter(|call| call.shard.as_deref() == Some(&id)).count();
        assert!((13..=28).contains(&calls), "{calls} calls for shard {number}");
    }
}

/// The retry mode of the caller's client does not reach the reads: in the adaptive one, a throttled call would slow the
/// next ones down for seconds.
#[tokio::test(start_paused = true)]
async fn adaptive_retries_of_the_callers_client_slow_no_read() {
    let read_with = async |retries: RetryConfig| {
        let kinesis = service(1);
        put(&kinesis, 0..40);
        kinesis.faults().next(Operation::GetRecords, 2, Fault::Throttle);
        let client = Client::new(&kinesis.sdk_config().into_builder().retry_config(retries).build());
        let source = PollSource::new(&client, PollConfig::default().max_records(4)).unwrap().seed(1);
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        assert_eq!(read(&mut reader, 40).await.payloads, expected(0..40));
        spacing(&kinesis)
    };
    let without = read_with(RetryConfig::disabled()).await;
    assert!(without[0] <= 301 * MS && without[1] <= 601 * MS, "{without:?}");
    assert_eq!(read_with(RetryConfig::adaptive()).await, without);
}

/// S-081: a bounded run ends with the shard, the call and the number of attempts.
#[tokio::test(start_paused = true)]
async fn a_bounded_run_ends_with_the_eighth_failure() {
    let config = PollConfig::default().max_attempts(Some(8));
    let kinesis = service(1);
    put(&kinesis, 0..1);
    kinesis.faults().next(Operation::GetRecords, 7, Fault::InternalFailure);
    assert_eq!(
        read(&mut reader(&kinesis, StartPosition::TrimHorizon, config.clone()), 1).await.payloads,
        expected(0..1)
    );

    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::InternalFailure);
    let error = read_to_error(&mut reader(&kinesis, StartPosition::TrimHorizon, config)).await;
    assert!(matches!(error, SourceError::Exhausted { attempts: 8, action: "GetRecords", .. }), "{error}");
    assert_eq!(error.shard(), &shard(0));
    assert!(error.source().unwrap().to_string().contains("InternalFailure"));
}

/// A missing permission is said at once, with the name of the permission, for either call.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_said_at_once() {
    for operation in [Operation::GetShardIterator, Operation::GetRecords] {
        let kinesis = service(1);
        kinesis.faults().on(operation).always().inject(Fault::AccessDenied);
        let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, SourceError::AccessDenied { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "{operation} on orders/{SHARD}: access denied; the policy must allow kinesis:{operation} on the stream"
            )
        );
        assert_eq!(kinesis.calls(operation), 1);
    }
}

/// Credentials that fail for a moment do not end a reader that worked.
#[tokio::test(start_paused = true)]
async fn a_passing_denial_does_not_end_a_reader_that_worked() {
    let kinesis = service(1);
    put(&kinesis, 0..2);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(1));
    read(&mut reader, 1).await;
    kinesis.faults().next(Operation::GetRecords, 4, Fault::error("ExpiredTokenException"));
    assert_eq!(read(&mut reader, 1).await.payloads, expected(1..2));
    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::AccessDenied);
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, SourceError::AccessDenied { .. }) && error.is_retryable(), "{error}");
}

/// S-084: a stream or shard that does not exist, or not any more, is said at once.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_is_said_at_once() {
    let kinesis = service(1);
    let source = source(&kinesis, PollConfig::default());
    let error = source.reader(OpenShard::new(shard(9), StartPosition::TrimHorizon)).next().await.unwrap_err();
    assert!(matches!(error, SourceError::NotFound { action: "GetShardIterator", .. }), "{error}");

    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    read_for(&mut reader, 3 * SECOND).await;
    kinesis.delete_stream(STREAM).unwrap();
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, SourceError::NotFound { action: "GetRecords", .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!("GetRecords on orders/{SHARD}: the stream or shard does not exist")
    );
}

/// An unreachable service is said once as degraded, with the cause, and its return too.
#[tokio::test(start_paused = true)]
async fn an_unreachable_service_is_said_once() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    kinesis.faults().on(Operation::GetShardIterator).always().inject(Fault::Disconnect);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
    let heard = read_for(&mut reader, 60 * SECOND).await;
    let [SourceEvent::Degraded { reason }] = &heard.others[..] else { panic!("{heard:?}") };
    assert!(reason.starts_with("GetShardIterator: "), "{reason}");
    kinesis.faults().clear();
    assert!(matches!(reader.next().await.unwrap(), SourceEvent::Recovered));
    assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1));
}

/// F-24: connections that are retired and calls that are refused unread cost no record and no order.
#[tokio::test(start_paused = true)]
async fn retired_connections_cost_no_record() {
    let kinesis = service(1);
    scenarios::retired_connections(&kinesis);
    put(&kinesis, 0..400);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(2));
    let heard = read(&mut reader, 400).await;
    assert_eq!(heard.payloads, expected(0..400));
    assert!(heard.others.is_empty(), "short trouble is not worth a word: {heard:?}");
    let lost = kinesis.calls_log().iter().filter(|call| call.outcome == Outcome::Disconnected).count();
    assert!(lost >= 10, "{lost} calls were turned away");
}
