//! The HTTP front's connections: TLS with HTTP/2, retired and refused ones, idle ones, subscriptions over sockets.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests
#![cfg(feature = "tls")]

mod support;

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinesis_testkit::{Fault, Operation, ServeOptions, Server, TestClock, TestKinesis};
use support::SHARD_0;
use support::efo::{Subscribed, from_oldest, from_tip, subscribe, texts};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

async fn served(options: ServeOptions, shards: usize) -> (TestKinesis, Server) {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).without_throughput_limits().build();
    kinesis.create_stream("s", shards).unwrap();
    let server = kinesis.serve_with(LOOPBACK, options).await.unwrap();
    (kinesis, server)
}

/// A client with the SDK's own transport, which trusts the server's certificate.
fn client(kinesis: &TestKinesis, server: &Server) -> Client {
    let http = match server.certificate_pem() {
        Some(pem) => {
            let trust = TrustStore::empty().with_pem_certificate(pem);
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

#[tokio::test]
async fn the_sdk_subscribes_over_plain_http_and_over_tls() {
    for options in [ServeOptions::new(), ServeOptions::new().tls()] {
        let (kinesis, server) = served(options, 1).await;
        let client = client(&kinesis, &server);
        let arn = kinesis.register_consumer("s", "app").unwrap();
        let mut stream = Subscribed(subscribe(&client, &arn, SHARD_0, from_tip()).await.unwrap());
        for text in ["a", "b"] {
            kinesis.put("s", "k", text).unwrap();
            assert_eq!(texts(&stream.event().await.unwrap()), [text]);
        }
        kinesis.split("s", SHARD_0).unwrap();
        assert_eq!(stream.event().await.unwrap().child_shards().len(), 2);
        assert!(stream.event().await.is_none());

        // A client that goes away is noticed over sockets too.
        let shard = "shardId-000000000001";
        let stream = Subscribed(subscribe(&client, &arn, shard, from_tip()).await.unwrap());
        drop((stream, client));
        while !kinesis.subscriptions("s").unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.shutdown().await;
    }
}

/// F-07: over TLS all calls share a connection, and unread streams leave no window for the others.
#[tokio::test]
async fn unread_subscriptions_starve_the_shared_connection() {
    let (kinesis, server) = served(ServeOptions::new().tls(), 8).await;
    let client = client(&kinesis, &server);
    let arn = kinesis.register_consumer("s", "app").unwrap();
    for shard in kinesis.shards("s").unwrap() {
        for _ in 0..8 {
            kinesis.put_at("s", shard.starting_hash_key, "k", vec![0; 1_000_000]).unwrap();
        }
    }
    // One shared HTTP/2 connection first: calls in parallel would open more.
    client.list_streams().send().await.unwrap();
    let mut unread = Vec::new();
    let mut stuck = false;
    for shard in kinesis.shards("s").unwrap() {
        let subscribing = subscribe(&client, &arn, &shard.shard_id, from_oldest());
        match tokio::time::timeout(Duration::from_secs(2), subscribing).await {
            Ok(subscribed) => unread.push(subscribed.unwrap()),
            Err(_) => {
                stuck = true;
                break;
            }
        }
    }
    assert!(stuck, "eight unread subscriptions left room");
    let call = tokio::time::timeout(Duration::from_secs(2), client.list_shards().stream_name("s").send());
    assert!(call.await.is_err());
    drop(unread);
    client.list_shards().stream_name("s").send().await.unwrap();
    drop(server);
}

fn request() -> hyper::Request<Empty<Bytes>> {
    let request = hyper::Request::post("http://localhost/");
    request.header("x-amz-target", "Kinesis_20131202.ListStreams").body(Empty::new()).unwrap()
}

/// F-24: a retired HTTP/2 connection answers what it has taken and takes no more; a refused stream harms no other.
#[tokio::test]
async fn http_2_connections_are_retired_and_streams_refused() {
    let (kinesis, server) = served(ServeOptions::new(), 1).await;
    kinesis.faults().on(Operation::ListStreams).skip(1).inject(Fault::RefuseStream);
    kinesis.faults().on(Operation::ListStreams).skip(1).inject(Fault::RetireConnection);
    let connection = TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    assert_eq!(sender.send_request(request()).await.unwrap().status(), 200);
    let refused = sender.send_request(request()).await.unwrap_err();
    assert!(format!("{refused:?}").contains("REFUSED_STREAM"), "{refused:?}");
    let last = sender.send_request(request()).await.unwrap();
    assert_eq!(last.status(), 200);
    last.into_body().collect().await.unwrap();
    driver.await.unwrap().unwrap();
    assert!(sender.send_request(request()).await.is_err());
    server.shutdown().await;
}

#[tokio::test]
async fn http_1_connections_are_retired() {
    let (kinesis, server) = served(ServeOptions::new(), 1).await;
    kinesis.faults().next(Operation::ListStreams, 1, Fault::RetireConnection);
    let connection = TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    let reply = sender.send_request(request()).await.unwrap();
    assert_eq!(reply.status(), 200);
    reply.into_body().collect().await.unwrap();
    driver.await.unwrap().unwrap();
    server.shutdown().await;
}

/// F-24: idle connections are closed with a reset, busy ones are not.
#[tokio::test]
async fn idle_connections_are_reset() {
    let options = ServeOptions::new().idle_timeout(Duration::from_millis(50));
    let (kinesis, server) = served(options, 1).await;
    let mut idle = TcpStream::connect(server.addr()).await.unwrap();
    let error = idle.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let client = client(&kinesis, &server);
    let arn = kinesis.register_consumer("s", "app").unwrap();
    let mut stream = Subscribed(subscribe(&client, &arn, SHARD_0, from_tip()).await.unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    kinesis.put("s", "k", "still there").unwrap();
    assert_eq!(texts(&stream.event().await.unwrap()), ["still there"]);
    drop(server);
}

#[tokio::test]
async fn streams_beyond_the_limit_of_a_connection_wait() {
    let (kinesis, server) = served(ServeOptions::new().tls().max_concurrent_streams(2), 3).await;
    let client = client(&kinesis, &server);
    let arn = kinesis.register_consumer("s", "app").unwrap();
    client.list_streams().send().await.unwrap();
    let mut open = Vec::new();
    for shard in &kinesis.shards("s").unwrap()[..2] {
        open.push(subscribe(&client, &arn, &shard.shard_id, from_tip()).await.unwrap());
    }
    let call = tokio::time::timeout(Duration::from_millis(500), client.list_streams().send());
    assert!(call.await.is_err(), "there was room for a third stream");
    drop(open);
    client.list_streams().send().await.unwrap();
    drop(server);
}
