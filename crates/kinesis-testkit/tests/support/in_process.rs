//! The in-process connector without the SDK in front of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::sync::{Arc, OnceLock};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use kinesis_testkit::TestKinesis;

/// Keeps the connector that the SDK gets.
#[derive(Debug)]
struct Capture {
    inner: SharedHttpClient,
    taken: Arc<OnceLock<SharedHttpConnector>>,
}

impl HttpClient for Capture {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        self.taken.get_or_init(|| self.inner.http_connector(settings, components)).clone()
    }
}

/// The in-process connector, without the SDK in front of it.
pub async fn connector(kinesis: &TestKinesis) -> SharedHttpConnector {
    let taken = Arc::new(OnceLock::new());
    let capture = Capture { inner: kinesis.http_client(), taken: taken.clone() };
    let config = kinesis.sdk_config().into_builder().http_client(SharedHttpClient::new(capture)).build();
    aws_sdk_kinesis::Client::new(&config).list_streams().send().await.unwrap();
    taken.get().unwrap().clone()
}
