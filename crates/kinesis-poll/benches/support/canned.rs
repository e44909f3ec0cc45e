//! A service that always answers with the same page: it costs next to nothing, so that the reader is measured.

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// A page of GetRecords that says that reading is behind.
#[derive(Debug, Clone)]
pub(crate) struct Canned {
    body: Bytes,
}

impl Canned {
    /// A page of `records` records with random payloads of `bytes` bytes.
    pub(crate) fn new(records: usize, bytes: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let mut body = String::from(r#"{"MillisBehindLatest":1000,"NextShardIterator":"next","Records":["#);
        for n in 0..records {
            let payload: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
            let comma = if n == 0 { "" } else { "," };
            body.push_str(&format!(
                r#"{comma}{{"ApproximateArrivalTimestamp":1700000000.123,"Data":"{}","PartitionKey":"sensor-{:05}","SequenceNumber":"4965{:050}"}}"#,
                STANDARD.encode(payload),
                random.u32(0..100_000),
                n + 1,
            ));
        }
        body.push_str("]}");
        Self { body: body.into() }
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

impl HttpClient for Canned {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_read =
            request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("GetRecords"));
        let body = if is_read {
            SdkBody::from(self.body.clone())
        } else {
            SdkBody::from(r#"{"ShardIterator":"first"}"#)
        };
        let status = StatusCode::try_from(200).expect("it is a status");
        let mut response = HttpResponse::new(status, body);
        response.headers_mut().insert("content-type", "application/x-amz-json-1.1");
        HttpConnectorFuture::ready(Ok(response))
    }
}
