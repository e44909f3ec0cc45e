//! Scripts that need more than one call to be seen: ends, rivals, limits, connections.

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, ShardIteratorType};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinesis_testkit::{Outcome, TestClock, TestKinesis, limits, scenarios};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::support::efo::{after_number, fan_out_of, from_oldest, from_tip, texts};
use super::support::{SHARD_0, SHARD_1, after, code, oldest, read, with_stream};

/// F-06: one event with records, twenty without and ever newer continuation points, then an end in order.
#[tokio::test(start_paused = true)]
async fn a_quiet_shard_ends_its_subscription_as_planned() {
    let fan_out = fan_out_of(TestKinesis::builder(), 1);
    fan_out.kinesis.put("s", "k", "first").unwrap();
    scenarios::planned_end(&fan_out.kinesis, "s", 21);
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let (mut points, mut records) = (Vec::new(), Vec::new());
    while let Some(event) = stream.event().await {
        records.push(event.records().len());
        points.push(event.continuation_sequence_number);
    }
    assert_eq!(records, [vec![1], vec![0; 20]].concat());
    assert!(points.is_sorted_by(|before, after| before < after));
    // What comes in the gap lies after the newest point.
    fan_out.kinesis.put("s", "k", "in the gap").unwrap();
    let mut stream = fan_out.subscribe(SHARD_0, after_number(points.last().unwrap())).await.unwrap();
    assert_eq!(texts(&stream.event().await.unwrap()), ["in the gap"]);
}

/// F-17: the last event has records, both children and no continuation point; an empty number is no position.
#[tokio::test(start_paused = true)]
async fn a_shard_ends_with_records_and_children_in_one_event() {
    let fan_out = fan_out_of(TestKinesis::builder(), 2);
    let mut stream = fan_out.subscribe(SHARD_1, from_tip()).await.unwrap();
    let children = scenarios::last_event_of_shard(&fan_out.kinesis, "s", SHARD_1, 3).unwrap();
    let last = stream.event().await.unwrap();
    assert_eq!(texts(&last), ["0", "1", "2"]);
    assert_eq!(last.continuation_sequence_number, "");
    let named: Vec<_> = last.child_shards().iter().map(|child| child.shard_id.clone()).collect();
    assert_eq!(named, children);
    assert!(stream.event().await.is_none());
    after(5_000).await;
    let refused = fan_out.subscribe(SHARD_1, after_number("")).await;
    assert_eq!(code(refused), "ValidationException");
    for child in children {
        fan_out.subscribe(&child, from_oldest()).await.unwrap();
    }
    assert!(scenarios::last_event_of_shard(&fan_out.kinesis, "s", SHARD_1, 0).is_err(), "it is closed");
}

/// S-246: a rival takes the shard every six seconds; whoever wants it back waits for the window.
#[tokio::test(start_paused = true)]
async fn a_rival_takes_the_shard_over_and_over() {
    let fan_out = fan_out_of(TestKinesis::builder(), 1);
    let mut own = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let begun = Instant::now();
    let story = async {
        let mut lost = Vec::new();
        for _ in 0..3 {
            assert_eq!(own.error().await, "ResourceInUseException");
            lost.push(begun.elapsed().as_secs());
            assert_eq!(code(fan_out.subscribe(SHARD_0, from_tip()).await), "LimitExceededException");
            after(5_000).await;
            own = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
        }
        lost
    };
    let lost = tokio::select! {
        lost = story => lost,
        () = scenarios::rival_subscriber(&fan_out.kinesis, &fan_out.arn, SHARD_0) => unreachable!("it never ends"),
    };
    // Lost five seconds after each success, taken back five seconds after the rival's.
    assert_eq!(lost, [5, 15, 25]);
    assert_eq!(fan_out.kinesis.subscriptions("s").unwrap().len(), 1);
}

/// S-246: the life of subscriptions can be made shorter.
#[tokio::test(start_paused = true)]
async fn subscriptions_have_short_lives() {
    let fan_out = fan_out_of(scenarios::short_lives(Duration::from_secs(7)), 1);
    let mut stream = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let begun = Instant::now();
    while stream.event().await.is_some() {}
    assert_eq!(begun.elapsed(), Duration::from_secs(7));
}

/// F-14: iterators live for seconds.
#[tokio::test(start_paused = true)]
async fn iterators_live_for_seconds() {
    let kinesis = scenarios::short_iterators(Duration::from_secs(2)).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    let iterator = oldest(&client, "s", SHARD_0).await;
    after(2_000).await;
    read(&client, &iterator).await;
    after(1).await;
    let late = client.get_records().shard_iterator(&iterator).send().await;
    assert_eq!(code(late), "ExpiredIteratorException");
}

/// F-10: numbers of different lengths, whose text order is not their order, serve as positions.
#[tokio::test(start_paused = true)]
async fn sequence_numbers_grow_in_length() {
    let fan_out = fan_out_of(scenarios::growing_sequence_numbers(), 1);
    let kinesis = &fan_out.kinesis;
    let numbers: Vec<String> =
        (0..40).map(|n| kinesis.put("s", "k", n.to_string()).unwrap().sequence_number).collect();
    let values: Vec<u128> = numbers.iter().map(|number| number.parse().unwrap()).collect();
    assert!(values.is_sorted_by(|before, after| before < after));
    assert!(!numbers.is_sorted(), "their text is in order too");
    let start = fan_out.client.get_shard_iterator().stream_name("s").shard_id(SHARD_0);
    let start = start.shard_iterator_type(ShardIteratorType::AfterSequenceNumber);
    let iterator = start.starting_sequence_number(&numbers[37]).send().await.unwrap().shard_iterator.unwrap();
    let page = read(&fan_out.client, &iterator).await;
    let found: Vec<_> = page.records().iter().map(|record| record.sequence_number()).collect();
    assert_eq!(found, [&numbers[38], &numbers[39]]);
    let mut stream = fan_out.subscribe(SHARD_0, after_number(&numbers[38])).await.unwrap();
    assert_eq!(texts(&stream.event().await.unwrap()), ["39"]);
}

/// F-28: full pages block the shard for five seconds each.
#[tokio::test(start_paused = true)]
async fn full_pages_block_the_shard() {
    let (kinesis, client) = with_stream(2);
    scenarios::full_pages(&kinesis, "s", SHARD_1, 2).unwrap();
    let mut iterator = oldest(&client, "s", SHARD_1).await;
    let begun = Instant::now();
    for _ in 0..2 {
        let page = loop {
            match client.get_records().shard_iterator(&iterator).send().await {
                Ok(page) => break page,
                Err(_) => after(500).await,
            }
        };
        let bytes: usize = page.records().iter().map(|record| record.data().as_ref().len() + 1).sum();
        assert_eq!(bytes as u64, limits::READ_BYTES_PER_CALL);
        iterator = page.next_shard_iterator.unwrap();
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(read(&client, &oldest(&client, "s", SHARD_0).await).await.records().len(), 0);
}

/// F-34: everything at the limits can be stored alone, a byte more cannot, and sums are refused by bytes and by count.
#[tokio::test(start_paused = true)]
async fn the_limits_of_one_call_are_exact() {
    let kinesis = scenarios::exact_limits().build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    let records = scenarios::edge_records();
    let entry = |(key, data): &(String, Bytes)| {
        let entry = PutRecordsRequestEntry::builder().partition_key(key);
        entry.data(Blob::new(data.to_vec())).build().unwrap()
    };
    let put = |records: &[(String, Bytes)]| {
        let entries = records.iter().map(entry).collect();
        client.put_records().stream_name("s").set_records(Some(entries)).send()
    };
    for record in &records[..2] {
        assert_eq!(record.0.len() + record.1.len(), 1 << 20);
        assert_eq!(put(std::slice::from_ref(record)).await.unwrap().failed_record_count(), Some(0));
    }
    assert_eq!(records[1].0.chars().count(), limits::PARTITION_KEY_CHARS);
    let eleven = &records[2..13];
    let data: usize = eleven.iter().map(|(_, data)| data.len()).sum();
    assert!((data as u64) < limits::WRITE_BYTES_PER_CALL);
    assert_eq!(code(put(eleven).await), "InvalidArgumentException");
    assert_eq!(put(&eleven[1..]).await.unwrap().failed_record_count(), Some(0));
    let small = &records[13..];
    assert_eq!(small.len(), limits::WRITE_RECORDS_PER_CALL + 1);
    assert_eq!(code(put(small).await), "ValidationException");
    assert_eq!(put(&small[1..]).await.unwrap().failed_record_count(), Some(0));
    assert_eq!(code(put(&[scenarios::oversized_record()]).await), "ValidationException");
}

/// F-24: after every 50 requests a connection is retired, every 20th of the others is refused, and over fresh
/// connections everything is answered in the end.
#[tokio::test]
async fn connections_are_retired_and_streams_refused_by_script() {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).without_throughput_limits().build();
    scenarios::retired_connections(&kinesis);
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    let request = || {
        let request = hyper::Request::post("http://localhost/");
        request.header("x-amz-target", "Kinesis_20131202.ListStreams").body(Empty::<Bytes>::new()).unwrap()
    };
    let (mut answered, mut refused, mut connections) = (0, 0, 0);
    while answered < 100 {
        connections += 1;
        let socket = TcpStream::connect(server.addr()).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        let driver = tokio::spawn(connection);
        while answered < 100 && sender.ready().await.is_ok() {
            match sender.send_request(request()).await {
                Ok(reply) => {
                    assert_eq!(reply.status(), 200);
                    reply.into_body().collect().await.unwrap();
                    answered += 1;
                }
                Err(error) if format!("{error:?}").contains("REFUSED_STREAM") => refused += 1,
                // The connection was retired before it took this one.
                Err(_) => break,
            }
        }
        driver.abort();
    }
    let log = kinesis.calls_log();
    let turned_away = log.iter().filter(|call| call.outcome == Outcome::Disconnected).count();
    assert_eq!((refused, turned_away), (5, 5));
    assert_eq!(connections, 3);
    server.shutdown().await;
}

/// F-24: idle connections are served with a limit of five seconds.
#[test]
fn idle_connections_have_five_seconds() {
    let options = format!("{:?}", scenarios::idle_connections());
    assert!(options.contains("idle_timeout: Some(5s)"), "{options}");
}
