//! Malformed requests get the service's error, in the format of the request, over every transport, and never a panic.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

#[path = "support/in_process.rs"]
mod in_process;

use aws_smithy_runtime_api::client::http::HttpConnector as _;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use ciborium::Value;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinesis_testkit::{Server, TestClock, TestKinesis};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

const JSON: &str = "application/x-amz-json-1.1";
const CBOR: &str = "application/x-amz-cbor-1.1";

/// A request: target, content type, body; and the status and code of its answer.
type Case = (&'static str, &'static str, Vec<u8>, u16, &'static str);

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

fn map(members: &[(&str, Value)]) -> Value {
    Value::Map(members.iter().map(|(name, value)| (Value::from(*name), value.clone())).collect())
}

fn cases() -> Vec<Case> {
    let put = "Kinesis_20131202.PutRecord";
    let subscribe = "Kinesis_20131202.SubscribeToShard";
    let text = |text: &str| text.as_bytes().to_vec();
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let mut cases: Vec<Case> = vec![
        ("Kinesis_20131202.NoSuchCall", JSON, text("{}"), 400, "UnknownOperationException"),
        ("DynamoDB_20120810.PutItem", JSON, text("{}"), 400, "UnknownOperationException"),
        (put, "text/plain", text("{}"), 400, "SerializationException"),
        (put, JSON, text(r#"{"StreamName":"s""#), 400, "SerializationException"),
        (put, JSON, text(r#"{"StreamName":"s"} trailing"#), 400, "SerializationException"),
        (put, JSON, text(r#"{"StreamName":{"deep":1}}"#), 400, "SerializationException"),
        (put, JSON, vec![0xff, 0xfe, 0x00], 400, "SerializationException"),
        (put, JSON, text(r#"{"StreamName":"\ud800"}"#), 400, "SerializationException"),
        (
            put,
            JSON,
            text(r#"{"StreamName":"s","PartitionKey":"k","Data":"AA="}"#),
            400,
            "SerializationException",
        ),
        (put, JSON, deep, 400, "SerializationException"),
        (put, JSON, text(r#"{"StreamName":"s","PartitionKey":"k"}"#), 400, "ValidationException"),
        (subscribe, JSON, text("{}"), 400, "ValidationException"),
        (
            subscribe,
            JSON,
            text(r#"{"ConsumerARN":"a","ShardId":"b","StartingPosition":1}"#),
            400,
            "SerializationException",
        ),
        (
            "Kinesis_20131202.GetRecords",
            JSON,
            text(r#"{"ShardIterator":"AAAA"}"#),
            400,
            "InvalidArgumentException",
        ),
        (
            "Kinesis_20131202.GetRecords",
            JSON,
            text(r#"{"ShardIterator":"AAAA","Limit":1e9}"#),
            400,
            "SerializationException",
        ),
    ];
    for (value, code) in [
        (map(&[("StreamName", 7.into())]), "SerializationException"),
        (map(&[("StreamName", "s".into()), ("PartitionKey", "k".into())]), "ValidationException"),
        (map(&[("Data", "text is no data".into())]), "SerializationException"),
        (Value::Array(Vec::new()), "SerializationException"),
        (Value::Null, "SerializationException"),
    ] {
        cases.push((put, CBOR, cbor(&value), 400, code));
    }
    for bytes in [
        // Cut, a length that lies, endless nesting, a break that ends nothing.
        b"\xa1".to_vec(),
        b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
        vec![0x81; 100_000],
        b"\xff".to_vec(),
        b"\xa1\x6aStreamName\x7b\x7f\xff\xff\xff\xff\xff\xff\xff".to_vec(),
    ] {
        cases.push((put, CBOR, bytes, 400, "SerializationException"));
    }
    let when = map(&[("ShardIteratorType", "AT_TIMESTAMP".into()), ("Timestamp", "noon".into())]);
    cases.push(("Kinesis_20131202.GetShardIterator", CBOR, cbor(&when), 400, "SerializationException"));
    cases
}

/// The code of an error in its format.
fn code(content_type: &str, body: &[u8]) -> String {
    let found = match content_type {
        CBOR => {
            let value: Value = ciborium::from_reader(body).unwrap();
            let members = value.into_map().unwrap();
            let code = members.into_iter().find(|(name, _)| name.as_text() == Some("__type"));
            code.and_then(|(_, code)| code.into_text().ok())
        }
        _ => serde_json::from_slice::<serde_json::Value>(body).unwrap()["__type"].as_str().map(str::to_owned),
    };
    found.unwrap()
}

fn check(transport: &str, case: &Case, status: u16, content_type: &str, body: &[u8]) {
    let (target, sent_type, sent, wanted_status, wanted) = case;
    let start = String::from_utf8_lossy(&sent[..sent.len().min(40)]).into_owned();
    // What has no known format is answered in JSON.
    let format = if *sent_type == CBOR { CBOR } else { JSON };
    assert_eq!(content_type, format, "{transport} {target} {start}");
    assert_eq!(
        (status, code(format, body).as_str()),
        (*wanted_status, *wanted),
        "{transport} {target} {start}"
    );
}

fn request(case: &Case) -> Request<Full<Bytes>> {
    let (target, content_type, body, ..) = case;
    let request = Request::post("http://localhost/").header("x-amz-target", *target);
    request.header("content-type", *content_type).body(Full::new(Bytes::from(body.clone()))).unwrap()
}

async fn served(tls: bool) -> Server {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    kinesis.create_stream("s", 1).unwrap();
    let options = kinesis_testkit::ServeOptions::new();
    kinesis.serve_with(([127, 0, 0, 1], 0), if tls { options.tls() } else { options }).await.unwrap()
}

async fn check_reply(transport: &str, case: &Case, reply: hyper::Response<hyper::body::Incoming>) {
    let (parts, body) = reply.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let content_type = parts.headers["content-type"].to_str().unwrap();
    check(transport, case, parts.status.as_u16(), content_type, &body);
}

async fn over_http1<C: AsyncRead + AsyncWrite + Unpin + Send + 'static>(transport: &str, connection: C) {
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.unwrap();
    let driver = tokio::spawn(connection);
    for case in cases() {
        sender.ready().await.unwrap();
        let reply = sender.send_request(request(&case)).await.unwrap();
        check_reply(transport, &case, reply).await;
    }
    driver.abort();
}

async fn over_http2<C: AsyncRead + AsyncWrite + Unpin + Send + 'static>(transport: &str, connection: C) {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake.unwrap();
    let driver = tokio::spawn(connection);
    for case in cases() {
        let reply = sender.send_request(request(&case)).await.unwrap();
        check_reply(transport, &case, reply).await;
    }
    driver.abort();
}

#[tokio::test]
async fn malformed_requests_get_errors_over_plain_http_1_and_2() {
    let server = served(false).await;
    over_http1("HTTP/1.1", TcpStream::connect(server.addr()).await.unwrap()).await;
    over_http2("h2c", TcpStream::connect(server.addr()).await.unwrap()).await;
    server.shutdown().await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn malformed_requests_get_errors_over_tls() {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};

    let server = served(true).await;
    let mut roots = rustls::RootCertStore::empty();
    let pem = server.certificate_pem().unwrap().as_bytes();
    roots.add(CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let mut config = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for (alpn, transport) in [("http/1.1", "TLS HTTP/1.1"), ("h2", "TLS h2")] {
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config.clone()));
        let socket = TcpStream::connect(server.addr()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = connector.connect(name, socket).await.unwrap();
        assert_eq!(connection.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
        if alpn == "h2" {
            over_http2(transport, connection).await;
        } else {
            over_http1(transport, connection).await;
        }
    }
    server.shutdown().await;
}

async fn ask(
    connector: &aws_smithy_runtime_api::client::http::SharedHttpConnector,
    headers: &[(&'static str, &str)],
    body: Vec<u8>,
) -> (u16, String, Vec<u8>) {
    let mut request = HttpRequest::new(SdkBody::from(body));
    request.set_method("POST").unwrap();
    request.set_uri("http://localhost/").unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, (*value).to_owned());
    }
    let reply = connector.call(request).await.unwrap();
    let content_type = reply.headers().get("content-type").unwrap().to_owned();
    let status = reply.status().as_u16();
    (status, content_type, reply.into_body().collect().await.unwrap().to_bytes().to_vec())
}

/// In process, under virtual time, the same holds; and CBOR and the small answers of other services are served.
#[tokio::test(start_paused = true)]
async fn the_in_process_door_serves_all_of_it() {
    let kinesis = TestKinesis::new();
    kinesis.create_stream("s", 1).unwrap();
    let connector = in_process::connector(&kinesis).await;
    for case in cases() {
        let headers = [("x-amz-target", case.0), ("content-type", case.1)];
        let (status, content_type, body) = ask(&connector, &headers, case.2.clone()).await;
        check("in process", &case, status, &content_type, &body);
    }
    let list = [("x-amz-target", "Kinesis_20131202.ListStreams"), ("content-type", CBOR)];
    let (status, content_type, body) = ask(&connector, &list, b"\xa0".to_vec()).await;
    assert_eq!((status, content_type.as_str()), (200, CBOR));
    let reply: Value = ciborium::from_reader(&body[..]).unwrap();
    let names = reply.into_map().unwrap().into_iter().find(|(name, _)| name.as_text() == Some("StreamNames"));
    assert_eq!(names.unwrap().1, Value::Array(vec!["s".into()]));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (action, part) in [
        ("GetCallerIdentity", "<Account>123456789012</Account>"),
        ("PutMetricData", "<PutMetricDataResponse"),
    ] {
        let (status, _, body) = ask(&connector, &form, format!("Action={action}").into_bytes()).await;
        assert_eq!(status, 200);
        assert!(String::from_utf8(body).unwrap().contains(part), "{action}");
    }
}
