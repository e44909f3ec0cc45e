//! Amazon's CBOR on the wire, and the small answers of other services.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::net::SocketAddr;

use ciborium::Value;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kinesis_testkit::{Server, TestClock, TestKinesis};
use tokio::net::TcpStream;

const CBOR: &str = "application/x-amz-cbor-1.1";

async fn served() -> (TestKinesis, Server) {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    kinesis.create_stream("s", 1).unwrap();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    (kinesis, server)
}

struct Reply {
    status: u16,
    content_type: String,
    body: Bytes,
}

async fn send(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
    let connection = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut request = Request::post(format!("http://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let reply = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let (parts, body) = reply.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    driver.abort();
    let content_type = parts.headers["content-type"].to_str().unwrap().to_owned();
    Reply { status: parts.status.as_u16(), content_type, body }
}

fn map(members: &[(&str, Value)]) -> Value {
    Value::Map(members.iter().map(|(name, value)| (Value::from(*name), value.clone())).collect())
}

fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    let members = value.as_map().unwrap();
    &members.iter().find(|(key, _)| key.as_text() == Some(name)).unwrap().1
}

async fn call(addr: SocketAddr, operation: &str, input: &Value) -> (u16, Value) {
    let mut body = Vec::new();
    ciborium::into_writer(input, &mut body).unwrap();
    let target = format!("Kinesis_20131202.{operation}");
    let reply = send(addr, "/", &[("x-amz-target", &target), ("content-type", CBOR)], body).await;
    assert_eq!(reply.content_type, CBOR);
    (reply.status, ciborium::from_reader(&reply.body[..]).unwrap())
}

#[tokio::test]
async fn records_are_put_and_read_in_cbor() {
    let (kinesis, server) = served().await;
    let data = Value::Bytes(vec![0, 255, 7]);
    let entry = map(&[("Data", data.clone()), ("PartitionKey", "k".into())]);
    let records = map(&[("StreamName", "s".into()), ("Records", Value::Array(vec![entry]))]);
    let (status, put) = call(server.addr(), "PutRecords", &records).await;
    assert_eq!(status, 200);
    assert_eq!(member(&put, "FailedRecordCount"), &Value::from(0));
    let stored = kinesis.records("s").unwrap().remove(0);
    assert_eq!(&stored.data[..], [0, 255, 7]);

    // A time is the tag 1 with milliseconds, in and out.
    let arrived = stored.arrived_at.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let start = Value::Tag(1, Box::new(arrived.into()));
    let input = map(&[
        ("StreamName", "s".into()),
        ("ShardId", support::SHARD_0.into()),
        ("ShardIteratorType", "AT_TIMESTAMP".into()),
        ("Timestamp", start.clone()),
    ]);
    let (status, iterator) = call(server.addr(), "GetShardIterator", &input).await;
    assert_eq!(status, 200);
    let input = map(&[("ShardIterator", member(&iterator, "ShardIterator").clone()), ("Limit", 5.into())]);
    let (status, page) = call(server.addr(), "GetRecords", &input).await;
    assert_eq!(status, 200);
    let record = &member(&page, "Records").as_array().unwrap()[0];
    assert_eq!(member(record, "Data"), &data);
    assert_eq!(member(record, "ApproximateArrivalTimestamp"), &start);
    server.shutdown().await;
}

#[tokio::test]
async fn errors_are_cbor_too() {
    let (_kinesis, server) = served().await;
    let (status, error) = call(server.addr(), "ListShards", &map(&[("StreamName", "t".into())])).await;
    assert_eq!((status, member(&error, "__type").as_text()), (400, Some("ResourceNotFoundException")));
    let wrong = map(&[("StreamName", 7.into())]);
    let (status, error) = call(server.addr(), "ListShards", &wrong).await;
    assert_eq!((status, member(&error, "__type").as_text()), (400, Some("SerializationException")));
    server.shutdown().await;
}

#[tokio::test]
async fn sts_and_cloud_watch_answer_what_clients_ask_on_the_way() {
    let (kinesis, server) = served().await;
    let form = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    for (action, status, part) in [
        ("GetCallerIdentity", 200, "<Account>123456789012</Account>"),
        ("PutMetricData", 200, "<PutMetricDataResponse"),
        ("Other", 400, "<Code>InvalidAction</Code>"),
    ] {
        let body = format!("Version=2011-06-15&Action={action}").into_bytes();
        let reply = send(server.addr(), "/", &form, body).await;
        assert_eq!((reply.status, reply.content_type.as_str()), (status, "text/xml"));
        assert!(String::from_utf8_lossy(&reply.body).contains(part), "{action}");
    }
    let json = [
        ("x-amz-target", "GraniteServiceVersion20100801.PutMetricData"),
        ("content-type", "application/x-amz-json-1.0"),
    ];
    let reply = send(server.addr(), "/", &json, b"{}".to_vec()).await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"{}"[..]));
    let rpc = [("smithy-protocol", "rpc-v2-cbor"), ("content-type", "application/cbor")];
    let path = "/service/GraniteServiceVersion20100801/operation/PutMetricData";
    let reply = send(server.addr(), path, &rpc, b"\xa0".to_vec()).await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"\xa0"[..]));
    assert_eq!(kinesis.calls_log().len(), 0);
    server.shutdown().await;
}
