//! A DynamoDB in this process, clients that look at what is sent and disturb it, and lease tables.
#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests; each test binary uses a part of them")]

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_types::SdkConfig;
use aws_types::region::Region;
use kinesis_core::ApplicationName;
use kinesis_core::lease::conformance::{ForeignWriter, StoreFactory};
use kinesis_lease::{DynamoDbStore, LeaseKey, LeaseStore, NewTable, TableLayout};
use serde_json::Value;

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn n(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn item(attributes: &[(&str, AttributeValue)]) -> Item {
    attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// A DynamoDB that ends with the test's runtime.
pub(crate) async fn local_dynamodb() -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let database = dynoxide::Database::memory().unwrap();
    tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()));
    endpoint
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// Refused by code with status 400, without an effect.
    Refused(&'static str),
    /// Carried out, but answered with status 500.
    DoneButFailed,
    /// Carried out, but the connection breaks.
    DoneButCut,
    /// The connection breaks before anything is carried out.
    Cut,
    /// Answered with status 200 and this body, without an effect.
    Answered(&'static str),
    /// Answered as if there were no capacity for any row of a BatchGetItem.
    Unprocessed,
    /// Never answered and not carried out.
    Ignored,
}

type Script = dyn Fn(&str, u32) -> Fate + Send + Sync;

/// A plain HTTP client whose requests are noted, and may be disturbed.
#[derive(Clone)]
pub(crate) struct Wire {
    sent: Arc<Mutex<Vec<(String, Value)>>>,
    script: Arc<Mutex<Arc<Script>>>,
    markers: Arc<Mutex<Vec<String>>>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let script: Arc<Script> = Arc::new(|_, _| Fate::Pass);
        Self { sent: Arc::default(), script: Arc::new(Mutex::new(script)), markers: Arc::default() }
    }

    /// From now on `script` says what happens to a request, by its operation and how many of that were before.
    pub(crate) fn disturb(&self, script: impl Fn(&str, u32) -> Fate + Send + Sync + 'static) {
        self.sent.lock().unwrap().clear();
        *self.script.lock().unwrap() = Arc::new(script);
    }

    /// The bodies of the requests of an operation since the last [`disturb`](Self::disturb).
    pub(crate) fn sent(&self, operation: &str) -> Vec<Value> {
        let sent = self.sent.lock().unwrap();
        sent.iter().filter(|(name, _)| name == operation).map(|(_, body)| body.clone()).collect()
    }

    /// The header `x-marker` of each request, empty where there is none.
    pub(crate) fn markers(&self) -> Vec<String> {
        self.markers.lock().unwrap().clone()
    }

    fn fate(&self, operation: &str, body: Value) -> Fate {
        let before = {
            let mut sent = self.sent.lock().unwrap();
            sent.push((operation.to_owned(), body));
            sent.iter().filter(|(name, _)| name == operation).count() - 1
        };
        let script = Arc::clone(&*self.script.lock().unwrap());
        script(operation, before as u32)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let mut connector = Connector::builder().proxy_config(ProxyConfig::disabled());
        connector.set_connector_settings(Some(settings.clone()));
        let inner = SharedHttpConnector::new(connector.build_http());
        SharedHttpConnector::new(Disturbed { wire: self.clone(), inner })
    }
}

#[derive(Debug)]
struct Disturbed {
    wire: Wire,
    inner: SharedHttpConnector,
}

impl HttpConnector for Disturbed {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let marker = request.headers().get("x-marker").unwrap_or_default();
        self.wire.markers.lock().unwrap().push(marker.to_owned());
        let asked = body["RequestItems"].clone();
        let fate = self.wire.fate(&operation, body);
        let broken = || ConnectorError::io("the connection broke".into());
        if fate == Fate::Cut {
            return HttpConnectorFuture::ready(Err(broken()));
        }
        if let Fate::Refused(code) = fate {
            let body =
                format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"as asked for"}}"#);
            return HttpConnectorFuture::ready(Ok(answer(400, body)));
        }
        if let Fate::Answered(body) = fate {
            return HttpConnectorFuture::ready(Ok(answer(200, body.to_owned())));
        }
        if fate == Fate::Unprocessed {
            let body = serde_json::json!({ "Responses": {}, "UnprocessedKeys": asked });
            return HttpConnectorFuture::ready(Ok(answer(200, body.to_string())));
        }
        if fate == Fate::Ignored {
            return HttpConnectorFuture::new(std::future::pending());
        }
        let passed = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let response = passed.await?;
            match fate {
                Fate::DoneButFailed => Ok(answer(500, r#"{"__type":"InternalServerError"}"#.to_owned())),
                Fate::DoneButCut => Err(broken()),
                _ => Ok(response),
            }
        })
    }
}

fn answer(status: u16, body: String) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body))
}

/// The configuration of a program that reaches `endpoint` through `wire`.
pub(crate) fn config(endpoint: &str, wire: &Wire) -> SdkConfig {
    let credentials = Credentials::new("key", "secret", None, None, "tests");
    SdkConfig::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint)
        .http_client(SharedHttpClient::new(wire.clone()))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

/// A lease table that does not exist yet, alone in its server or under a name of its own.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) config: SdkConfig,
    pub(crate) wire: Wire,
    pub(crate) name: String,
    pub(crate) layout: TableLayout,
    segments: u32,
    application: &'static str,
}

impl Table {
    /// In a server of its own.
    pub(crate) async fn new() -> Self {
        Self::at(&local_dynamodb().await)
    }

    /// In a server that is there, under a name that no other test has.
    pub(crate) fn at(endpoint: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let wire = Wire::new();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            config: config(endpoint, &wire),
            wire,
            name: format!("leases-{}-{number}", std::process::id()),
            layout: TableLayout::Native,
            segments: 1,
            application: "billing",
        }
    }

    pub(crate) fn layout(mut self, layout: TableLayout) -> Self {
        self.layout = layout;
        self
    }

    /// A table that somebody else has named.
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub(crate) fn segments(mut self, segments: u32) -> Self {
        self.segments = segments;
        self
    }

    pub(crate) fn application(mut self, name: &'static str) -> Self {
        self.application = name;
        self
    }

    pub(crate) fn builder(&self) -> kinesis_lease::DynamoDbStoreBuilder {
        let application = ApplicationName::new(self.application).unwrap();
        DynamoDbStore::builder(&self.config, application)
            .table(&self.name)
            .layout(self.layout.clone())
            .scan_segments(self.segments)
            .create_table(NewTable::on_demand())
    }

    pub(crate) fn store(&self) -> DynamoDbStore {
        self.builder().build().unwrap()
    }

    /// A store whose table is there.
    pub(crate) async fn ready(&self) -> DynamoDbStore {
        let store = self.store();
        store.setup().await.unwrap();
        store
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.config)
    }

    pub(crate) async fn put(&self, row: Item) {
        self.client().put_item().table_name(&self.name).set_item(Some(row)).send().await.unwrap();
    }

    pub(crate) async fn row(&self, key: &str) -> Option<Item> {
        let get = self.client().get_item().table_name(&self.name).key("leaseKey", s(key));
        get.consistent_read(true).send().await.unwrap().item
    }

    pub(crate) async fn set(&self, key: &str, attribute: &str, value: AttributeValue) {
        let update = self.client().update_item().table_name(&self.name).key("leaseKey", s(key));
        let update = update.update_expression("SET #n = :v").expression_attribute_names("#n", attribute);
        update.expression_attribute_values(":v", value).send().await.unwrap();
    }
}

/// The key of a row in the native layout.
pub(crate) fn native(key: &LeaseKey) -> String {
    format!("{}|{}|{}", key.application(), key.stream(), key.shard())
}

impl Table {
    fn text(&self, key: &LeaseKey) -> String {
        if self.layout == TableLayout::Native { native(key) } else { key.shard().to_string() }
    }
}

#[async_trait]
impl StoreFactory for Table {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.store())
    }

    fn foreign_writer(&self) -> Option<Arc<dyn ForeignWriter>> {
        Some(Arc::new(self.clone()))
    }
}

/// Writes past the store.
#[async_trait]
impl ForeignWriter for Table {
    async fn set_unknown(&self, key: &LeaseKey, value: &str) {
        self.set(&self.text(key), "ofAnother", s(value)).await;
    }

    async fn get_unknown(&self, key: &LeaseKey) -> Option<String> {
        let row = self.row(&self.text(key)).await?;
        row.get("ofAnother")?.as_s().ok().cloned()
    }

    async fn corrupt(&self, key: &LeaseKey) {
        self.set(&self.text(key), "checkpoint", s("garbage")).await;
    }
}
