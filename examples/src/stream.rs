//! Making the stream of an example.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use aws_config::SdkConfig;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::StreamStatus;
use kinesis_core::aws::ServiceFailure;
use tokio::time::Instant;

/// How long a new or changed stream may take to become active; in AWS it is about half a minute.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often it is looked at meanwhile. The service allows an account
/// [20 such calls a second](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeStreamSummary.html).
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Makes the stream on the first run and waits until it is active; one that exists is left as it is.
///
/// # Errors
/// When the service refuses, cannot be reached, or the stream is not active after two minutes.
pub async fn create_stream(config: &SdkConfig, name: &str, shards: i32) -> anyhow::Result<()> {
    let client = Client::new(config);
    let created = client.create_stream().stream_name(name).shard_count(shards).send().await;
    if let Err(error) = created {
        let exists = error.as_service_error().is_some_and(|error| error.is_resource_in_use_exception());
        if !exists {
            // Debug output of an SDK error may hold payloads; this keeps what is safe and useful to show.
            let failure = ServiceFailure::new(&error);
            return Err(failure).with_context(|| format!("CreateStream of {name} failed"));
        }
    }
    until_active(&client, name).await
}

/// Waits until the stream is active: after it was made, split or merged.
///
/// # Errors
/// When the service refuses, cannot be reached, or the stream is not active after two minutes.
pub async fn until_active(client: &Client, name: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + ACTIVE_TIMEOUT;
    loop {
        let reply = client.describe_stream_summary().stream_name(name).send().await;
        let reply = reply
            .map_err(|error| ServiceFailure::new(&error))
            .with_context(|| format!("DescribeStreamSummary of {name} failed"))?;
        let summary = reply.stream_description_summary();
        if summary.is_some_and(|summary| *summary.stream_status() == StreamStatus::Active) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "stream {name} is not active after {ACTIVE_TIMEOUT:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
