//! Over sockets: TLS with HTTP/2, where all calls of a client share one connection, and two processes' worth of readers
//! that take shards from each other. Real time: these tests wait for conditions.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::Client;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use kinesis_core::StartPosition;
use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_core::metrics::Recorder;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_efo::{EfoConfig, EfoReader, EfoSource};
use kinesis_testkit::{
    Builder, Fault, Operation, Outcome, Rule, ServeOptions, Server, TestClock, TestKinesis, scenarios,
};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
const MIB: usize = 1024 * 1024;
/// Far longer than anything takes, unless it hangs.
const HANG: Duration = Duration::from_secs(60);

async fn served(builder: Builder, options: ServeOptions, shards: usize) -> (TestKinesis, Server) {
    let kinesis = builder.clock(TestClock::system()).without_throughput_limits().build();
    let kinesis = with_stream(kinesis, shards);
    let server = kinesis.serve_with(LOOPBACK, options).await.unwrap();
    (kinesis, server)
}

/// A client with connections of its own.
fn client(kinesis: &TestKinesis, server: &Server) -> Client {
    let http = match server.certificate_pem() {
        Some(certificate) => {
            let trust = TrustStore::empty().with_pem_certificate(certificate);
            let context = TlsContext::builder().with_trust_store(trust).build().unwrap();
            aws_smithy_http_client::Builder::new()
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .tls_context(context)
                .build_https()
        }
        None => aws_smithy_http_client::Builder::new().build_http(),
    };
    let config = aws_sdk_kinesis::config::Builder::from(&kinesis.sdk_config());
    Client::from_conf(config.http_client(http).endpoint_url(server.url()).build())
}

/// Clients for each purpose with connections of their own; the purposes asked for are written down.
fn clients(kinesis: &TestKinesis, server: &Server) -> (ClientSource, Arc<std::sync::Mutex<Vec<Purpose>>>) {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let make: Vec<Client> = (0..8).map(|_| client(kinesis, server)).collect();
    let source = ClientSource::from_fn(move |purpose| {
        let mut log = log.lock().unwrap();
        log.push(purpose);
        make[log.len() - 1].clone()
    });
    (source, asked)
}

fn fill(kinesis: &TestKinesis, megabytes: usize) {
    for view in kinesis.shards(STREAM).unwrap() {
        for _ in 0..megabytes {
            kinesis.put_at(STREAM, view.starting_hash_key, "key", vec![0; MIB - 16]).unwrap();
        }
    }
}

async fn next_records(reader: &mut EfoReader) -> usize {
    let next = async {
        loop {
            if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
                return batch.records.len();
            }
        }
    };
    tokio::time::timeout(HANG, next).await.expect("records come")
}

/// F-07: eight shards over one client and one HTTP/2 connection, four of whose callers take nothing: the others and
/// ordinary calls on the same client keep the pace that they have without these four, and the four lose nothing.
#[tokio::test]
async fn callers_that_take_nothing_stall_nobody_on_a_shared_connection() {
    let alone = beside_callers_that_take_nothing(0).await;
    let beside = beside_callers_that_take_nothing(4).await;
    // The four read half of what the others read, into their buffers, and machines have moods.
    assert!(
        beside < alone * 3 + SECOND,
        "{beside:?} beside callers that take nothing, {alone:?} without them"
    );
}

/// How long four shards take to be read, with an ordinary call after each event, beside so many callers that have begun
/// to read and take nothing.
async fn beside_callers_that_take_nothing(callers: usize) -> Duration {
    const EACH: usize = 6;
    let (kinesis, server) = served(TestKinesis::builder(), scenarios::shared_connection(), 8).await;
    fill(&kinesis, EACH);
    let client = client(&kinesis, &server);
    // One shared connection first: calls in parallel would open more.
    client.list_streams().send().await.unwrap();
    let source = EfoSource::new(
        ClientSource::from_fn({
            let client = client.clone();
            move |_| client.clone()
        }),
        config(),
    )
    .unwrap();
    let open = |number| OpenShard::new(shard(number), StartPosition::TrimHorizon);
    let mut blocked: Vec<_> =
        (0..callers).map(|number| source.reader(open(number).buffer_bytes(3 * MIB))).collect();
    let mut counts = vec![0; callers];
    for (reader, count) in blocked.iter_mut().zip(&mut counts) {
        *count += next_records(reader).await;
    }
    let begun = std::time::Instant::now();
    let mut working: Vec<_> = (4..8).map(|number| source.reader(open(number))).collect();
    for reader in &mut working {
        let mut count = 0;
        while count < EACH {
            count += next_records(reader).await;
            let call = client.list_shards().stream_name(STREAM).send();
            tokio::time::timeout(HANG, call).await.expect("ordinary calls are answered").unwrap();
        }
    }
    let took = begun.elapsed();
    for (reader, mut count) in blocked.iter_mut().zip(counts) {
        while count < EACH {
            count += next_records(reader).await;
        }
        assert_eq!(count, EACH);
    }
    drop((blocked, working));
    server.shutdown().await;
    took
}

/// F-07: a server that allows few streams on a connection: shards are spread over several clients, and calls about
/// consumers use one of their own, so that nothing hangs.
#[tokio::test]
async fn shards_are_spread_over_several_connections() {
    let options = ServeOptions::new().tls().max_concurrent_streams(4);
    let (kinesis, server) = served(TestKinesis::builder(), options, 10).await;
    fill(&kinesis, 1);
    let (clients, asked) = clients(&kinesis, &server);
    let source = EfoSource::new(clients, config().shards_per_client(4)).unwrap();
    let mut readers: Vec<_> = (0..10)
        .map(|number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon)))
        .collect();
    for reader in &mut readers {
        assert_eq!(next_records(reader).await, 1);
    }
    assert_eq!(live(&kinesis), 10, "all at the same time");
    let mut purposes = asked.lock().unwrap().clone();
    purposes.sort();
    let groups = [0, 1, 2].map(|group| Purpose::Subscribe { group });
    assert_eq!(purposes, [&[Purpose::Control], &groups[..]].concat());
    drop(readers);
    server.shutdown().await;
}

/// S-094: over TLS records are pushed over HTTP/2: three subscriptions that are open at the same time and all calls
/// besides share one connection, and one SubscribeToShard for each shard brings what is written while it lives.
#[tokio::test]
async fn records_are_pushed_over_one_http2_connection() {
    let (kinesis, server) = served(TestKinesis::builder(), ServeOptions::new().tls(), 3).await;
    let client = client(&kinesis, &server);
    // One connection first: calls in parallel would open more.
    client.list_streams().send().await.unwrap();
    let source = EfoSource::new(ClientSource::from_fn(move |_| client.clone()), config()).unwrap();
    for heard in read_while_written(&kinesis, &source, 20).await {
        assert_eq!(heard.payloads, expected(0..20));
        assert!(heard.others.is_empty(), "{heard:?}");
    }
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 3);
    assert_eq!(server.connections(), 1);
    server.shutdown().await;
}

/// A reader that is closed has no subscription at the server a moment later.
#[tokio::test]
async fn the_server_sees_that_a_reader_closed() {
    let (kinesis, server) = served(TestKinesis::builder(), ServeOptions::new().tls(), 1).await;
    fill(&kinesis, 1);
    let source = EfoSource::new(clients(&kinesis, &server).0, config()).unwrap();
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    next_records(&mut reader).await;
    Box::new(reader).close().await;
    let gone = async {
        while live(&kinesis) > 0 {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, gone).await.expect("the subscription ends");
    server.shutdown().await;
}

/// S-246: two workers that take a shard from each other a hundred times over sockets, with the window in which the
/// service refuses a take-over and subscriptions that end early: no record is lost, what was stored does not come
/// again, and the old owner hears nothing of what is written once the new one has the shard.
#[tokio::test]
async fn a_hundred_take_overs_lose_nothing() {
    const TAKE_OVERS: u32 = 100;
    const RECORDS: u32 = 5;
    let number = |data: &[u8]| std::str::from_utf8(data).unwrap().parse::<u32>().unwrap();
    let (kinesis, server) = served(TestKinesis::builder(), ServeOptions::new().tls(), 1).await;
    // Each worker has connections of its own.
    let workers = [clients(&kinesis, &server).0, clients(&kinesis, &server).0];
    let mut stored = StartPosition::TrimHorizon;
    let mut seen: Vec<u32> = Vec::new();
    let mut old: Option<EfoReader> = None;
    let (mut met, mut cut, mut shared) = (0, 0, 0);
    for turn in 0..TAKE_OVERS {
        let before = subscribes(&kinesis).len();
        let meets_the_window = turn % 10 == 9;
        if !meets_the_window {
            // The service's five seconds are over, by its clock.
            kinesis.clock().advance(6 * SECOND);
        }
        if turn % 50 == 25 {
            scenarios::planned_end(&kinesis, STREAM, 1);
            cut += 1;
        }
        // A source that knows nothing of the one before, as after a while or in a new process.
        let worker = &workers[turn as usize % 2];
        let source = EfoSource::new(worker, config()).unwrap();
        let mut new = source.reader(OpenShard::new(shard(0), stored.clone()));
        let first = turn * RECORDS;
        put(&kinesis, first..first + RECORDS - 1);
        let reading = async {
            let mut records: Vec<u32> = Vec::new();
            while records.last() != Some(&(first + RECORDS - 1)) {
                let SourceEvent::Records(batch) = new.next().await.unwrap() else { continue };
                records.extend(batch.records.iter().map(|record| number(&record.data)));
                let sequence = batch.records.last().unwrap().sequence.clone();
                stored = StartPosition::AfterSequenceNumber { sequence };
                if records.last() == Some(&(first + RECORDS - 2)) {
                    put(&kinesis, first + RECORDS - 1..first + RECORDS);
                }
            }
            records
        };
        let passing = async {
            // Once the service refused a call, its time passes.
            loop {
                tokio::time::sleep(5 * MS).await;
                if refused_since(&kinesis, before) > 0 {
                    kinesis.clock().advance(6 * SECOND);
                    return std::future::pending::<()>().await;
                }
            }
        };
        let records = tokio::select! {
            records = tokio::time::timeout(HANG, reading) => records.expect("the new owner reads"),
            () = passing => unreachable!("it never ends"),
        };
        assert_eq!(records, (first..first + RECORDS).collect::<Vec<_>>(), "turn {turn}");
        met += usize::from(refused_since(&kinesis, before) > 0);
        seen.extend(records);
        // The old owner heard of what was written before it lost the shard, and of nothing since.
        if let Some(mut old) = old.replace(new) {
            let mut late = Vec::new();
            while let Ok(event) = tokio::time::timeout(20 * MS, old.next()).await {
                let SourceEvent::Records(batch) = event.unwrap() else { continue };
                late.extend(batch.records.iter().map(|record| number(&record.data)));
            }
            assert!(late.iter().all(|late| (first..first + RECORDS - 1).contains(late)), "{turn}: {late:?}");
            shared += late.len();
            Box::new(old).close().await;
        }
    }
    assert_eq!(seen, (0..TAKE_OVERS * RECORDS).collect::<Vec<_>>());
    // On a slow machine a turn may take longer than the window.
    assert!(met > 0 && cut == 2, "the window was met in {met} turns");
    assert!(shared > 0, "both read for a while");
    drop(old);
    server.shutdown().await;
}

fn refused_since(kinesis: &TestKinesis, before: usize) -> usize {
    let calls = subscribes(kinesis);
    calls[before..].iter().filter(|call| matches!(call.outcome, Outcome::Refused { .. })).count()
}

/// Settings whose delays are as short as the service allows.
fn eager() -> EfoConfig {
    config().max_resubscribe_interval(SECOND)
}

/// S-246: a life of subscriptions of a moment, over sockets: each ends in order and the next goes on behind it.
#[tokio::test]
async fn short_lives_over_sockets_lose_and_repeat_nothing() {
    let builder = TestKinesis::builder().without(Rule::SubscribeInUse).without(Rule::SubscribeCallRate);
    let (kinesis, server) = served(builder, ServeOptions::new().tls(), 1).await;
    scenarios::short_subscriptions(&kinesis, STREAM, Duration::MAX);
    let source = EfoSource::new(clients(&kinesis, &server).0, eager()).unwrap();
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut heard = Heard::default();
    let reading = async {
        while kinesis.calls(Operation::SubscribeToShard) < 4 || heard.payloads.len() < 40 {
            if heard.payloads.len() == heard.numbers.len() && heard.numbers.len() < 1_000 {
                let next = heard.numbers.len() as u32;
                put(&kinesis, next..next + 1);
            }
            while heard.payloads.len() < kinesis.records(STREAM).unwrap().len() {
                heard.take(reader.next().await.unwrap());
            }
            tokio::time::sleep(5 * MS).await;
        }
    };
    tokio::time::timeout(HANG, reading).await.expect("it goes on");
    assert_eq!(heard.payloads, expected(0..heard.payloads.len() as u32));
    drop(reader);
    server.shutdown().await;
}

/// Reads `count` records of every shard while they are written, one every 20 ms into each.
async fn read_while_written(kinesis: &TestKinesis, source: &EfoSource, count: u32) -> Vec<Heard> {
    let views = kinesis.shards(STREAM).unwrap();
    let writer = async {
        for n in 0..count {
            for view in &views {
                kinesis.put_at(STREAM, view.starting_hash_key, "key", n.to_string()).unwrap();
            }
            tokio::time::sleep(20 * MS).await;
        }
    };
    let mut readers: Vec<_> = (0..views.len())
        .map(|number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon)))
        .collect();
    let reading =
        futures_util::future::join_all(readers.iter_mut().map(|reader| read(reader, count as usize)));
    let (heard, ()) = tokio::time::timeout(HANG, async { tokio::join!(reading, writer) }).await.unwrap();
    heard
}

/// F-24: connections that are retired under open subscriptions, and requests that are refused unread: open subscriptions
/// go on to their end, the next ones use fresh connections, and nothing is lost, repeated or reported.
#[tokio::test]
async fn retired_connections_and_refused_requests_lose_nothing() {
    const RECORDS: u32 = 200;
    let builder = TestKinesis::builder().without(Rule::SubscribeInUse).subscription_life(SECOND);
    let (kinesis, server) = served(builder, ServeOptions::new().tls(), 8).await;
    let faults = kinesis.faults();
    faults.on(Operation::SubscribeToShard).every(5).always().inject(Fault::RetireConnection);
    faults.on(Operation::SubscribeToShard).every(6).always().inject(Fault::RefuseStream);
    let client = client(&kinesis, &server);
    let recorder = Recorder::new();
    let source = EfoSource::new(&client, eager()).unwrap().metrics(Arc::new(recorder.clone()));
    for heard in read_while_written(&kinesis, &source, RECORDS).await {
        assert_eq!(heard.payloads, expected(0..RECORDS));
        assert!(heard.others.is_empty(), "{heard:?}");
    }
    let calls = subscribes(&kinesis);
    let refused = calls.iter().filter(|call| call.outcome == Outcome::Disconnected).count();
    assert!(calls.len() >= 24 && refused >= 3, "{} calls, {refused} of them refused", calls.len());
    assert_eq!(recorder.total("efo_stream_errors_total"), 0, "a retired connection carries on what it took");
    server.shutdown().await;
}

/// F-24: connections that are reset while nothing is open on them, over HTTP/1.1 and over TLS: the next subscription uses
/// a fresh one.
#[tokio::test]
async fn idle_connections_that_are_reset_lose_nothing() {
    for options in [ServeOptions::new(), ServeOptions::new().tls()] {
        let builder = TestKinesis::builder().without(Rule::SubscribeInUse).subscription_life(100 * MS);
        let (kinesis, server) = served(builder, options.idle_timeout(300 * MS), 1).await;
        let source = EfoSource::new(client(&kinesis, &server), eager()).unwrap();
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        for n in 0..3 {
            put(&kinesis, n..n + 1);
            let heard = tokio::time::timeout(HANG, read(&mut reader, 1)).await.unwrap();
            assert_eq!((heard.payloads, heard.others.len()), (expected(n..n + 1), 0));
            tokio::time::sleep(500 * MS).await;
        }
        assert!(kinesis.calls(Operation::SubscribeToShard) >= 3);
        Box::new(reader).close().await;
        server.shutdown().await;
    }
}
