//! The named scripts do what their names say, seen from a plain client.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod more;
#[cfg(feature = "tls")]
mod shared_connection;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::primitives::Blob;
use kinesis_testkit::{KeyState, Operation, TestKinesis, scenarios};
use support::efo::{FanOut, Subscribed, fan_out_of, from_oldest, from_tip, subscribe};
use support::{SHARD_0, SHARD_1, after, code, entry, oldest, read, with_stream};
use tokio::time::{Instant, timeout};

/// Five records that come in an event each.
fn five_events() -> FanOut {
    let fan_out = fan_out_of(TestKinesis::builder().records_per_event(1), 1);
    for n in 0..5 {
        fan_out.kinesis.put("s", "k", n.to_string()).unwrap();
    }
    fan_out
}

/// How many events come before the stream ends, breaks or goes silent, and how that was.
async fn events(stream: &mut Subscribed) -> (usize, &'static str) {
    let mut count = 0;
    loop {
        match timeout(Duration::from_secs(60), stream.receive()).await {
            Err(_) => return (count, "silent"),
            Ok(Ok(None)) => return (count, "ended"),
            Ok(Err(SdkError::DispatchFailure(_))) => return (count, "cut"),
            Ok(Err(SdkError::ServiceError(_))) => return (count, "error"),
            Ok(Err(_)) => return (count, "garbled"),
            Ok(Ok(Some(_))) => count += 1,
        }
    }
}

/// F-01, F-03, F-04, F-06, F-08: each script hits one subscription, and the next one is served.
#[tokio::test(start_paused = true)]
async fn subscriptions_end_as_scripted_and_the_next_one_is_served() {
    type Script = fn(&TestKinesis);
    let scripts: [(Script, usize, &str); 6] = [
        (|kinesis| scenarios::silent_subscription(kinesis, "s"), 1, "silent"),
        (|kinesis| scenarios::error_frame(kinesis, "s", "InternalFailureException"), 3, "error"),
        (|kinesis| scenarios::broken_event(kinesis, "s", scenarios::Break::Reset), 2, "cut"),
        (|kinesis| scenarios::broken_event(kinesis, "s", scenarios::Break::End), 2, "garbled"),
        (|kinesis| scenarios::planned_end(kinesis, "s", 8), 8, "ended"),
        (|kinesis| scenarios::failing_first_read(kinesis, "s"), 0, "ended"),
    ];
    for (script, count, how) in scripts {
        let fan_out = five_events();
        script(&fan_out.kinesis);
        let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
        assert_eq!(events(&mut stream).await, (count, how));
        after(5_000).await;
        let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
        assert_eq!(stream.event().await.unwrap().records().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_error_frame_arrives() {
    for code in scenarios::ERROR_FRAMES {
        let fan_out = five_events();
        scenarios::error_frame(&fan_out.kinesis, "s", code);
        let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
        assert_eq!(events(&mut stream).await, (3, "error"), "{code}");
    }
}

/// F-02: one shard of four gets no first frame.
#[tokio::test(start_paused = true)]
async fn one_shard_gets_no_first_frame() {
    let fan_out = fan_out_of(TestKinesis::builder(), 4);
    scenarios::no_first_frame(&fan_out.kinesis, "s", SHARD_1);
    let hung = timeout(Duration::from_secs(10), fan_out.subscribe(SHARD_1, from_tip())).await;
    assert!(hung.is_err());
    for shard in [SHARD_0, "shardId-000000000002", "shardId-000000000003"] {
        fan_out.subscribe(shard, from_tip()).await.unwrap();
    }
}

/// F-05: subscriptions end after a second, for a minute.
#[tokio::test(start_paused = true)]
async fn subscriptions_are_short_for_a_minute() {
    let fan_out = fan_out_of(TestKinesis::builder(), 1);
    scenarios::short_subscriptions(&fan_out.kinesis, "s", Duration::from_secs(60));
    for _ in 0..12 {
        let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
        let begun = Instant::now();
        assert!(stream.event().await.is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        after(4_000).await;
    }
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    assert!(stream.event().await.is_some());
}

/// F-09: each variant of a position that is gone.
#[tokio::test(start_paused = true)]
async fn positions_are_gone() {
    let (kinesis, client) = with_stream(1);
    let placements: Vec<_> = (0..5).map(|n| kinesis.put("s", "k", n.to_string()).unwrap()).collect();
    scenarios::empty_reads_far_behind(&kinesis, "s", 3);
    let mut iterator = oldest(&client, "s", SHARD_0).await;
    for _ in 0..3 {
        let page = read(&client, &iterator).await;
        assert_eq!((page.records().len(), page.millis_behind_latest()), (0, Some(86_400_000)));
        iterator = page.next_shard_iterator.unwrap();
        after(200).await;
    }
    assert_eq!(read(&client, &iterator).await.records().len(), 5);

    assert_eq!(scenarios::trimmed_position(&kinesis, "s", &placements[2]).unwrap(), 3);
    scenarios::refused_position(&kinesis, "s");
    let start = client.get_shard_iterator().stream_name("s").shard_id(SHARD_0);
    let start = start.shard_iterator_type("AFTER_SEQUENCE_NUMBER".into());
    let start = start.starting_sequence_number(&placements[1].sequence_number);
    assert_eq!(code(start.clone().send().await), "InvalidArgumentException");
    let iterator = start.send().await.unwrap().shard_iterator.unwrap();
    assert_eq!(read(&client, &iterator).await.records().len(), 2);
}

/// F-13: one call in ten is never answered.
#[tokio::test(start_paused = true)]
async fn one_call_in_ten_is_never_answered() {
    let (kinesis, client) = with_stream(1);
    scenarios::unanswered_calls(&kinesis, Operation::ListShards);
    for call in 1..=30 {
        let list = client.list_shards().stream_name("s").send();
        assert_eq!(timeout(Duration::from_secs(60), list).await.is_err(), call % 10 == 0, "{call}");
    }
}

/// F-14: iterators expire three times in a row.
#[tokio::test(start_paused = true)]
async fn iterators_expire_three_times() {
    let (kinesis, client) = with_stream(2);
    scenarios::expired_iterators(&kinesis, "s", SHARD_0, 3);
    let (iterator, other) = (oldest(&client, "s", SHARD_0).await, oldest(&client, "s", SHARD_1).await);
    for _ in 0..3 {
        let refused = client.get_records().shard_iterator(&iterator).send().await;
        assert_eq!(code(refused), "ExpiredIteratorException");
    }
    read(&client, &iterator).await;
    read(&client, &other).await;
}

/// F-25, F-28: reads are refused for a time.
#[tokio::test(start_paused = true)]
async fn reads_are_refused_for_a_time() {
    let (kinesis, client) = with_stream(2);
    let (iterator, other) = (oldest(&client, "s", SHARD_0).await, oldest(&client, "s", SHARD_1).await);
    scenarios::refused_shard(&kinesis, "s", SHARD_0, Duration::from_secs(120));
    scenarios::throttled_reads(&kinesis, "s", Duration::from_secs(60));
    for (second, own, others) in [(0, false, false), (59, false, false), (60, false, true), (120, true, true)]
    {
        tokio::time::sleep(Duration::from_secs(second).saturating_sub(kinesis.clock().elapsed())).await;
        let reads = |iterator: &str| client.get_records().shard_iterator(iterator).send();
        assert_eq!(reads(&iterator).await.is_ok(), own, "{second}");
        assert_eq!(reads(&other).await.is_ok(), others, "{second}");
    }
}

/// F-26: trouble with keys.
#[tokio::test(start_paused = true)]
async fn keys_make_trouble() {
    let (kinesis, client) = with_stream(1);
    let iterator = oldest(&client, "s", SHARD_0).await;
    let attempt = || client.get_records().shard_iterator(&iterator).send();
    let minute = Duration::from_secs(60);
    scenarios::key_trouble(&kinesis, "s", scenarios::KeyTrouble::Throttled, minute).unwrap();
    attempt().await.unwrap();
    attempt().await.unwrap();
    assert_eq!(code(attempt().await), "KMSThrottlingException");
    after(60_000).await;
    scenarios::key_trouble(&kinesis, "s", scenarios::KeyTrouble::AccessDenied, minute).unwrap();
    assert_eq!(code(attempt().await), "AccessDeniedException");
    after(60_000).await;
    scenarios::key_trouble(&kinesis, "s", scenarios::KeyTrouble::Disabled, minute).unwrap();
    assert_eq!(code(attempt().await), "KMSDisabledException");
    kinesis.set_key_state("s", KeyState::Enabled).unwrap();
    attempt().await.unwrap();
}

/// F-27: 2,000 shards of which 200 are open, and a consumer that takes ten seconds.
#[tokio::test(start_paused = true)]
async fn a_stream_has_a_long_history() {
    let kinesis = scenarios::slow_registration().build();
    scenarios::long_history(&kinesis, "s", 200, 1_800).unwrap();
    let shards = kinesis.shards("s").unwrap();
    assert_eq!(shards.len(), 2_000);
    assert_eq!(shards.iter().filter(|shard| shard.is_open()).count(), 200);
    let client = kinesis.client();
    let register = client.register_stream_consumer().stream_arn(support::ARN).consumer_name("app");
    let arn = register.send().await.unwrap().consumer.unwrap().consumer_arn;
    after(9_999).await;
    assert!(subscribe(&client, &arn, "shardId-000000001999", from_tip()).await.is_err());
    after(1_000).await;
    subscribe(&client, &arn, "shardId-000000001999", from_tip()).await.unwrap();
}

/// F-28: a second reader uses three of five reads, so four a second are too many.
#[tokio::test(start_paused = true)]
async fn a_greedy_reader_takes_three_reads_a_second() {
    let (kinesis, client) = with_stream(1);
    let iterator = oldest(&client, "s", SHARD_0).await;
    let own = async {
        let mut given = 0;
        for _ in 0..40 {
            after(250).await;
            given += usize::from(client.get_records().shard_iterator(&iterator).send().await.is_ok());
        }
        given
    };
    let given = tokio::select! {
        given = own => given,
        () = scenarios::greedy_reader(&kinesis, "s", SHARD_0) => unreachable!("it never ends"),
    };
    assert!((20..40).contains(&given), "{given} of 40 reads in 10 seconds");
    let others = kinesis.calls(Operation::GetRecords) - 40;
    assert!((29..=31).contains(&others), "{others} reads of the other one");
}

async fn put(kinesis: &TestKinesis, count: usize) -> (i32, Vec<usize>) {
    let entries = (0..count).map(|n| entry("k", n.to_string())).collect();
    let reply =
        kinesis.client().put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    let results = reply.records().iter().enumerate();
    let refused = results.filter(|(_, result)| result.error_code().is_some()).map(|(index, _)| index + 1);
    (reply.failed_record_count().unwrap(), refused.collect())
}

/// F-32: entries are refused twice, with a true and with a false count.
#[tokio::test(start_paused = true)]
async fn entries_are_refused_twice() {
    let (kinesis, _client) = with_stream(1);
    scenarios::refused_entries(&kinesis, "s");
    scenarios::lying_count(&kinesis, "s");
    assert_eq!(put(&kinesis, 15).await, (3, vec![7, 11, 14]));
    assert_eq!(put(&kinesis, 15).await, (3, vec![7, 11, 14]));
    assert_eq!(put(&kinesis, 15).await, (0, vec![7, 14]));
    assert_eq!(put(&kinesis, 15).await, (0, vec![7, 14]));
    assert_eq!(put(&kinesis, 15).await, (0, vec![]));
}

/// F-33, F-36: writes are refused, lost, late and stuck.
#[tokio::test(start_paused = true)]
async fn writes_are_refused_and_stuck() {
    let (kinesis, client) = with_stream(1);
    scenarios::random_refusals(&kinesis, "s", Duration::from_secs(600));
    let mut kinds = std::collections::BTreeSet::new();
    for n in 0..60 {
        let begun = Instant::now();
        let entries = (0..3).map(|_| entry("k", n.to_string())).collect();
        let reply = client.put_records().stream_name("s").set_records(Some(entries)).send().await;
        kinds.insert(match reply {
            Ok(reply) if reply.failed_record_count() != Some(0) => "in part",
            Ok(_) if begun.elapsed() == Duration::ZERO => "at once",
            Ok(_) => "late",
            Err(SdkError::DispatchFailure(_)) => "lost",
            Err(_) => "refused",
        });
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["at once", "in part", "late", "lost", "refused"]);

    kinesis.faults().clear();
    scenarios::stuck_writes(&kinesis, "s");
    let mut outcomes = Vec::new();
    for _ in 0..6 {
        let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).send();
        outcomes.push(match timeout(Duration::from_secs(60), put).await {
            Err(_) => "stuck",
            Ok(Ok(_)) => "stored",
            Ok(Err(_)) => "failed",
        });
    }
    assert_eq!(outcomes, ["stored", "failed", "stuck", "stored", "failed", "stuck"]);
}

/// F-35: the lists are stale, then throttled; the stream is made anew.
#[tokio::test(start_paused = true)]
async fn shard_lists_are_stale() {
    let kinesis = scenarios::stale_shard_lists().build();
    kinesis.create_stream("s", 2).unwrap();
    let client = kinesis.client();
    kinesis.split("s", SHARD_0).unwrap();
    scenarios::throttled_shard_lists(&kinesis, "s", Duration::from_secs(5));
    let list = || client.list_shards().stream_name("s").send();
    assert_eq!(code(list().await), "LimitExceededException");
    after(5_000).await;
    assert_eq!(list().await.unwrap().shards().len(), 2);
    after(5_000).await;
    assert_eq!(list().await.unwrap().shards().len(), 4);
    scenarios::remade_stream(&kinesis, "s").unwrap();
    assert_eq!(list().await.unwrap().shards().len(), 3);
}

/// S-246: two instances and one shard: the window of five seconds, the take-over, the end after five minutes.
#[tokio::test(start_paused = true)]
async fn one_instance_steals_a_shard_from_another() {
    let fan_out = fan_out_of(TestKinesis::builder(), 1);
    let mut first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let thief = fan_out.kinesis.client();
    after(2_000).await;
    let refused = subscribe(&thief, &fan_out.arn, SHARD_0, from_tip()).await;
    assert_eq!(code(refused), "ResourceInUseException");
    after(3_000).await;
    let mut second = Subscribed(subscribe(&thief, &fan_out.arn, SHARD_0, from_tip()).await.unwrap());
    assert_eq!(first.error().await, "ResourceInUseException");
    let begun = Instant::now();
    while second.event().await.is_some() {}
    assert_eq!(begun.elapsed(), Duration::from_secs(300));
}
