//! The HTTP front over real sockets: the SDK's own transport, HTTP/2 with prior knowledge, and bad requests.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::primitives::Blob;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinesis_testkit::{Fault, Operation, Server, TestClock, TestKinesis};
use support::{SHARD_0, entry, oldest, read, texts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

async fn served() -> (TestKinesis, Server) {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    kinesis.create_stream("s", 1).unwrap();
    let server = kinesis.serve(LOOPBACK).await.unwrap();
    (kinesis, server)
}

/// A client with the SDK's own transport.
fn client(kinesis: &TestKinesis, server: &Server) -> Client {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_kinesis::config::Builder::from(&kinesis.sdk_config());
    Client::from_conf(config.http_client(http).endpoint_url(server.url()).build())
}

fn request(target: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("http://localhost/")
        .header("x-amz-target", target)
        .header("content-type", "application/x-amz-json-1.1")
        .body(Full::new(body.into()))
        .unwrap()
}

/// Sends one request over HTTP/1.1.
async fn send(addr: SocketAddr, request: Request<Full<Bytes>>) -> (Response<()>, String) {
    let connection = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    driver.abort();
    (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_sdk_s_own_transport_puts_and_reads() {
    let (kinesis, server) = served().await;
    let client = client(&kinesis, &server);
    client
        .put_records()
        .stream_name("s")
        .records(entry("k", "a"))
        .records(entry("k", "b"))
        .send()
        .await
        .unwrap();
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(texts(&page), ["a", "b"]);
    assert_eq!(kinesis.calls(Operation::PutRecords), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_large_call_passes() {
    let (kinesis, server) = served().await;
    let client = client(&kinesis, &server);
    let entries = (0..9).map(|_| entry("k", vec![7; (1 << 20) - 1])).collect();
    let reply = client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    // The shard takes one MiB a second: the first entry, and none of the others.
    assert_eq!(reply.failed_record_count(), Some(8));
    server.shutdown().await;
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served_on_the_same_port() {
    let (_kinesis, server) = served().await;
    let connection = TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    let target = "Kinesis_20131202.DescribeStreamSummary";
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(tokio::spawn(sender.send_request(request(target, r#"{"StreamName":"s"}"#))));
    }
    for call in calls {
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.status(), 200);
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8(body.to_vec()).unwrap().contains(r#""StreamStatus":"ACTIVE""#));
    }
    driver.abort();
    server.shutdown().await;
}

#[tokio::test]
async fn bad_requests_get_the_service_s_errors() {
    let (_kinesis, server) = served().await;
    let addr = server.addr();
    let put = "Kinesis_20131202.PutRecord";
    let cases: [(&str, &str, u16, &str); 11] = [
        ("Kinesis_20131202.NoSuchCall", "{}", 400, "UnknownOperationException"),
        ("PutRecord", "{}", 400, "UnknownOperationException"),
        ("", "{}", 400, "UnknownOperationException"),
        (put, "{", 400, "SerializationException"),
        (put, "[]", 400, "SerializationException"),
        (put, "null", 400, "SerializationException"),
        (put, r#"{"StreamName":1}"#, 400, "SerializationException"),
        (put, r#"{"StreamName":"s","PartitionKey":"k","Data":"*"}"#, 400, "SerializationException"),
        (put, "", 400, "InvalidArgumentException"),
        (put, r#"{"StreamName":"s"}"#, 400, "ValidationException"),
        ("Kinesis_20131202.GetRecords", r#"{"ShardIterator":"x"}"#, 400, "InvalidArgumentException"),
    ];
    for (target, body, status, code) in cases {
        let (reply, text) = send(addr, request(target, body)).await;
        assert_eq!(reply.status(), status, "{target} {body}");
        assert!(text.starts_with(&format!(r#"{{"__type":"{code}","message":"#)), "{target} {body}: {text}");
        assert_eq!(reply.headers()["content-type"], "application/x-amz-json-1.1");
        assert!(reply.headers().contains_key("x-amzn-requestid"));
        assert_eq!(reply.headers().get_all("date").iter().count(), 1);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn other_methods_and_formats_are_refused() {
    let (_kinesis, server) = served().await;
    let get = Request::get("http://localhost/").body(Full::default()).unwrap();
    let (reply, text) = send(server.addr(), get).await;
    assert_eq!(reply.status(), 400);
    assert!(text.contains("UnknownOperationException"));
    let mut form = request("Kinesis_20131202.ListStreams", "\u{1}");
    form.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    let (reply, text) = send(server.addr(), form).await;
    assert_eq!(reply.status(), 400);
    assert!(text.contains("SerializationException"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_body_beyond_any_call_is_refused() {
    let (_kinesis, server) = served().await;
    let body = vec![b' '; 33 * 1024 * 1024];
    let (reply, _) = send(server.addr(), request("Kinesis_20131202.PutRecord", body)).await;
    assert_eq!(reply.status(), 413);
    server.shutdown().await;
}

#[tokio::test]
async fn bytes_that_are_no_http_do_not_disturb_the_server() {
    let (_kinesis, server) = served().await;
    for garbage in [&b"\x00\xff\x00\xff\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage", b"POST"] {
        let mut connection = TcpStream::connect(server.addr()).await.unwrap();
        connection.write_all(garbage).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The server closes the connection, with or without a word.
        let _ = connection.read_to_end(&mut rest).await;
    }
    let (reply, _) = send(server.addr(), request("Kinesis_20131202.ListStreams", "{}")).await;
    assert_eq!(reply.status(), 200);
    server.shutdown().await;
}

#[tokio::test]
async fn a_lost_reply_closes_the_connection_after_the_write() {
    let (kinesis, server) = served().await;
    kinesis.faults().next(Operation::PutRecord, 1, Fault::DropReply);
    let put = client(&kinesis, &server).put_record().stream_name("s").partition_key("k").data(Blob::new("x"));
    let error = put.send().await.unwrap_err();
    assert!(matches!(error, SdkError::DispatchFailure(_)));
    assert_eq!(kinesis.records("s").unwrap().len(), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn shutdown_waits_for_the_call_in_flight_and_closes_idle_connections() {
    let (kinesis, server) = served().await;
    let client = client(&kinesis, &server);
    client.list_shards().stream_name("s").send().await.unwrap();
    kinesis.faults().next(Operation::ListStreams, 1, Fault::LateReply(Duration::from_millis(200)));
    let call = tokio::spawn(client.list_streams().send());
    kinesis.wait_for_calls(Operation::ListStreams, 1).await;
    let addr = server.addr();
    server.shutdown().await;
    assert_eq!(call.await.unwrap().unwrap().stream_names(), ["s"]);
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn nothing_outlives_a_server_whose_call_hangs() {
    let (kinesis, server) = served().await;
    let client = client(&kinesis, &server);
    kinesis.faults().on(Operation::ListStreams).always().inject(Fault::Hang(Duration::MAX));
    let call = tokio::spawn(client.list_streams().send());
    kinesis.wait_for_calls(Operation::ListStreams, 1).await;
    server.shutdown().await;
    assert!(matches!(call.await.unwrap().unwrap_err(), SdkError::DispatchFailure(_)));
}

#[tokio::test]
async fn dropping_a_server_ends_it() {
    let (kinesis, server) = served().await;
    let client = client(&kinesis, &server);
    kinesis.faults().next(Operation::ListStreams, 1, Fault::Hang(Duration::MAX));
    let call = tokio::spawn(client.list_streams().send());
    kinesis.wait_for_calls(Operation::ListStreams, 1).await;
    let addr = server.addr();
    drop(server);
    assert!(matches!(call.await.unwrap().unwrap_err(), SdkError::DispatchFailure(_)));
    while TcpStream::connect(addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let (kinesis, server) = served().await;
    assert_eq!(kinesis.serve(server.addr()).await.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    server.shutdown().await;
}
