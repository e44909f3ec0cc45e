//! AWS configuration: the caller's own, or one for the embedded Kinesis.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::proxy::ProxyConfig;

/// The configuration that producer, consumers and judge share.
pub(crate) async fn config(endpoint_url: Option<&str>, region: Option<&str>, embedded: bool) -> SdkConfig {
    if embedded {
        return embedded_config(endpoint_url.unwrap_or_default());
    }
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12());
    if let Some(region) = region {
        loader = loader.region(Region::new(region.to_owned()));
    }
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
    }
    loader.load().await
}

fn embedded_config(url: &str) -> SdkConfig {
    // A proxy of the environment is not meant for a server inside of this program.
    let http_client = Builder::new().build_with_connector_fn(|settings, _| {
        let mut connector =
            aws_smithy_http_client::Connector::builder().proxy_config(ProxyConfig::disabled());
        connector.set_connector_settings(settings.cloned());
        connector.build_http()
    });
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "quickstart",
            "quickstart",
            None,
            None,
            "embedded",
        )))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .http_client(http_client)
        .endpoint_url(url)
        .build()
}
