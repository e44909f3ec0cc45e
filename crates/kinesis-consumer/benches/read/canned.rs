//! A service that always answers with the same pages or the same subscription: it costs next to nothing, so that the
//! reader is measured.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

const JSON: &str = "application/x-amz-json-1.1";
const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// What the last event of a subscription names, so that it is the end of the shard.
const CHILD: &str = r#","ChildShards":[{"ShardId":"shardId-999999999999","ParentShards":["shardId-000000000000"],"HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"}}]"#;

/// The answers: all calls of one kind get the same one.
#[derive(Debug, Clone)]
pub(crate) struct Canned {
    page: Bytes,
    frames: Arc<[Bytes]>,
}

impl Canned {
    /// GetRecords with `records` records that have random payloads of `bytes` bytes; reading is behind.
    pub(crate) fn pages(records: usize, bytes: usize) -> Self {
        let records = Records::new(bytes).text(records);
        let page =
            format!(r#"{{"MillisBehindLatest":1000,"NextShardIterator":"next","Records":[{records}]}}"#);
        Self { page: page.into(), frames: Arc::default() }
    }

    /// SubscribeToShard with `events` events of `records` records each, and then the end of the shard.
    pub(crate) fn events(events: usize, records: usize, bytes: usize) -> Self {
        let mut of = Records::new(bytes);
        let mut frames = vec![frame("initial-response", "{}".into())];
        for event in 1..=events {
            let records = of.text(records);
            let (next, children) =
                if event == events { (String::new(), CHILD) } else { (of.last_number(), "") };
            let text = format!(
                r#"{{"ContinuationSequenceNumber":"{next}","MillisBehindLatest":1000,"Records":[{records}]{children}}}"#
            );
            frames.push(frame("SubscribeToShardEvent", text.into()));
        }
        Self { page: Bytes::new(), frames: frames.into() }
    }

    /// A client whose every call is answered at once.
    pub(crate) fn client(&self) -> Client {
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("BENCH", "bench", None, None, "bench"))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(self.clone())
            .build();
        Client::from_conf(config)
    }
}

/// Records as the service writes them, with rising numbers.
struct Records {
    random: fastrand::Rng,
    bytes: usize,
    written: usize,
}

impl Records {
    fn new(bytes: usize) -> Self {
        Self { random: fastrand::Rng::with_seed(7), bytes, written: 0 }
    }

    fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for place in 0..count {
            let payload: Vec<u8> = (0..self.bytes).map(|_| self.random.u8(..)).collect();
            self.written += 1;
            text.push_str(&format!(
                r#"{}{{"ApproximateArrivalTimestamp":1700000000.123,"Data":"{}","PartitionKey":"sensor-{:05}","SequenceNumber":"{}"}}"#,
                if place == 0 { "" } else { "," },
                STANDARD.encode(payload),
                self.random.u32(0..100_000),
                self.last_number(),
            ));
        }
        text
    }

    fn last_number(&self) -> String {
        format!("4965{:050}", self.written)
    }
}

fn frame(kind: &'static str, payload: Bytes) -> Bytes {
    let headers = [(":message-type", "event"), (":event-type", kind), (":content-type", JSON)];
    let message = headers.into_iter().fold(Message::new(payload), |message, (name, value)| {
        message.add_header(Header::new(name, HeaderValue::String(value.into())))
    });
    let mut buffer = BytesMut::new();
    write_message_to(&message, &mut buffer).expect("a small frame");
    buffer.freeze()
}

impl HttpClient for Canned {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is = |operation| {
            request.headers().get("x-amz-target").is_some_and(|target| target.ends_with(operation))
        };
        let (body, kind) = if is("GetRecords") {
            (SdkBody::from(self.page.clone()), JSON)
        } else if is("SubscribeToShard") {
            let frames = Arc::clone(&self.frames);
            (SdkBody::from_body_1_x(Subscription { frames, sent: 0, is_ready: false }), EVENT_STREAM)
        } else {
            (SdkBody::from(r#"{"ShardIterator":"first"}"#), JSON)
        };
        let status = StatusCode::try_from(200).expect("it is a status");
        let mut response = HttpResponse::new(status, body);
        response.headers_mut().insert("content-type", kind);
        HttpConnectorFuture::ready(Ok(response))
    }
}

/// The frames, one after the other. Before each the reader is woken anew, as by a socket: readers of several shards
/// take turns, whether they are patient or not.
struct Subscription {
    frames: Arc<[Bytes]>,
    sent: usize,
    is_ready: bool,
}

impl Body for Subscription {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = self.frames.get(self.sent).cloned();
        self.sent += 1;
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }
}
