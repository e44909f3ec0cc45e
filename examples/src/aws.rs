//! Where the examples find Kinesis.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_sdk_kinesis::config::SharedHttpClient;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Builder, Connector};

/// The AWS configuration of the environment, as every AWS program reads it: region, credentials, profile, endpoint.
///
/// `AWS_ENDPOINT_URL` is the switch to a local server. For one on this machine nothing else has to be set: where the
/// environment names no region and no credentials, made-up ones are used, and no proxy is asked.
pub async fn aws_config() -> SdkConfig {
    // The SDK's behaviour may change with a version; a program says which one it was written for.
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12());
    if first_set(&["AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL"]).is_some_and(|url| is_local(&url)) {
        loader = loader.http_client(direct_http_client());
        if first_set(&["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"]).is_none() {
            loader = loader.region(Region::new("us-east-1"));
        }
        if first_set(&["AWS_ACCESS_KEY_ID", "AWS_PROFILE"]).is_none() {
            loader = loader.credentials_provider(Credentials::new("local", "local", None, None, "examples"));
        }
    }
    loader.load().await
}

/// The value of the first of these variables that is set and not empty.
fn first_set(names: &[&str]) -> Option<String> {
    names.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty())
}

/// Whether the URL is plain HTTP to this machine.
fn is_local(url: &str) -> bool {
    let Some(authority) = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()) else {
        return false;
    };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _port)| host);
    host == "localhost" || host == "[::1]" || authority == "[::1]" || host.starts_with("127.")
}

/// Plain HTTP without the proxy that the environment may name: for a server on this machine.
#[must_use]
pub fn direct_http_client() -> SharedHttpClient {
    Builder::new().build_with_connector_fn(|settings, _| {
        let mut connector = Connector::builder().proxy_config(ProxyConfig::disabled());
        connector.set_connector_settings(settings.cloned());
        connector.build_http()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_to_this_machine_is_local() {
        for url in ["http://localhost:4567", "http://127.0.0.1:4567/", "http://localhost", "http://[::1]:80"]
        {
            assert!(is_local(url), "{url}");
        }
        for url in ["https://localhost:4567", "http://kinesis:4567", "http://localhost.example", "127.0.0.1"]
        {
            assert!(!is_local(url), "{url}");
        }
    }
}
