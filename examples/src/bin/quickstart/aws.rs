//! AWS configuration: the caller's own, or one for the embedded Kinesis.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};

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
        .http_client(examples::direct_http_client())
        .endpoint_url(url)
        .build()
}
