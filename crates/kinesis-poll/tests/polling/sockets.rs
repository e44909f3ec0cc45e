//! Over sockets: TLS with HTTP/2, where all calls of a client share connections, and HTTP/1.1. Real time: these tests wait
//! for conditions.

use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::Client;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader};
use kinesis_poll::{PollConfig, PollSource};
use kinesis_testkit::{Fault, Operation, Outcome, ServeOptions, Server, TestClock, TestKinesis};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
/// Far longer than anything takes, unless it hangs.
const HANG: Duration = Duration::from_secs(60);

async fn served(options: ServeOptions, shards: usize) -> (TestKinesis, Server) {
    let builder = TestKinesis::builder().clock(TestClock::system()).without_throughput_limits();
    let kinesis = builder.build();
    kinesis.create_stream(STREAM, shards).unwrap();
    let server = kinesis.serve_with(LOOPBACK, options).await.unwrap();
    (kinesis, server)
}

/// A source over a client with connections of its own.
fn connected(kinesis: &TestKinesis, server: &Server, config: PollConfig) -> PollSource {
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
    let client = aws_sdk_kinesis::config::Builder::from(&kinesis.sdk_config());
    let client = client.http_client(http).endpoint_url(server.url()).build();
    PollSource::new(Client::from_conf(client), config).unwrap()
}

/// F-24: connections that are retired under reads, and reads that are refused unread: each goes out again over a fresh
/// connection, and nothing is lost, repeated, put out of order or reported.
#[tokio::test]
async fn reads_survive_retired_connections_and_refused_requests() {
    const SHARDS: usize = 8;
    const RECORDS: u32 = 40;
    let (kinesis, server) = served(ServeOptions::new().tls(), SHARDS).await;
    for view in kinesis.shards(STREAM).unwrap() {
        for n in 0..RECORDS {
            kinesis.put_at(STREAM, view.starting_hash_key, "key", n.to_string()).unwrap();
        }
    }
    kinesis.faults().on(Operation::GetRecords).every(5).always().inject(Fault::RetireConnection);
    kinesis.faults().on(Operation::GetRecords).every(6).always().inject(Fault::RefuseStream);
    let source = connected(&kinesis, &server, PollConfig::default().max_records(4));
    let open = |number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
    let mut readers: Vec<_> = (0..SHARDS).map(open).collect();
    let reading = readers.iter_mut().map(|reader| read(reader, RECORDS as usize));
    let reading = tokio::time::timeout(HANG, futures_util::future::join_all(reading));
    for heard in reading.await.expect("all comes") {
        assert_eq!((heard.payloads, heard.others.len()), (expected(0..RECORDS), 0));
    }
    let calls = kinesis.calls_of(Operation::GetRecords);
    let refused = calls.iter().filter(|call| call.outcome == Outcome::Disconnected).count();
    assert!(calls.len() >= 80 && refused >= 8, "{} calls, {refused} of them refused", calls.len());
    drop(readers);
    server.shutdown().await;
}

/// F-24: connections that are reset while nothing is open on them, over HTTP/1.1 and over TLS: the next read uses a fresh
/// one.
#[tokio::test]
async fn reads_survive_idle_connections_that_are_reset() {
    for options in [ServeOptions::new(), ServeOptions::new().tls()] {
        let (kinesis, server) = served(options.idle_timeout(150 * MS), 1).await;
        let source = connected(&kinesis, &server, PollConfig::default().idle_interval(400 * MS));
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        for n in 0..4 {
            put(&kinesis, n..n + 1);
            let heard = tokio::time::timeout(HANG, read(&mut reader, 1)).await.expect("it comes");
            assert_eq!((heard.payloads, heard.others.len()), (expected(n..n + 1), 0));
        }
        assert!(kinesis.calls(Operation::GetRecords) >= 4);
        Box::new(reader).close().await;
        server.shutdown().await;
    }
}
