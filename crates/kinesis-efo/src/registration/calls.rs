//! The calls about consumers.

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::Builder;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::types::ConsumerStatus;
use kinesis_core::StreamRef;
use kinesis_core::aws::{FailureKind, ServiceFailure};

use super::ConsumerArn;
use crate::EfoConfig;

pub(crate) const DESCRIBE: &str = "DescribeStreamConsumer";
pub(crate) const REGISTER: &str = "RegisterStreamConsumer";
pub(crate) const DESCRIBE_STREAM: &str = "DescribeStreamSummary";

/// What the service says of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    Active(ConsumerArn),
    Creating,
    Deleting,
}

/// Makes the calls about the consumer of one stream, each within the limit of a call.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    pub(super) client: Client,
    pub(super) config: &'a EfoConfig,
    pub(super) stream: &'a StreamRef,
}

impl Calls<'_> {
    /// The stream's ARN, without which its consumers cannot be named.
    pub(super) async fn stream_arn(&self) -> Result<String, ServiceFailure> {
        if let Some(arn) = self.stream.arn() {
            return Ok(arn.to_owned());
        }
        let request = self.client.describe_stream_summary().stream_name(self.stream.name());
        let request = request.customize().config_override(once()).send();
        let answer = match tokio::time::timeout(self.config.control_timeout, request).await {
            Ok(answer) => answer.map_err(|error| ServiceFailure::new(&error))?,
            Err(_) => return Err(self.timed_out()),
        };
        let summary = answer.stream_description_summary;
        let arn = summary.map(|summary| summary.stream_arn).filter(|arn| !arn.is_empty());
        arn.ok_or_else(|| ServiceFailure::local(FailureKind::Invalid, "the answer has no ARN of the stream"))
    }

    pub(super) async fn describe(&self, stream_arn: &str) -> Result<Status, ServiceFailure> {
        let request = self.client.describe_stream_consumer().stream_arn(stream_arn);
        let request = request.consumer_name(&self.config.consumer).customize().config_override(once()).send();
        let answer = match tokio::time::timeout(self.config.control_timeout, request).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(ServiceFailure::new(&error)),
            Err(_) => return Err(self.timed_out()),
        };
        let Some(description) = answer.consumer_description else {
            return Err(ServiceFailure::local(FailureKind::Invalid, "the answer has no consumer"));
        };
        match description.consumer_status {
            ConsumerStatus::Active => match ConsumerArn::parse(&description.consumer_arn) {
                Some(arn) => Ok(Status::Active(arn)),
                None => {
                    let problem = "the answer has no ARN of the consumer";
                    Err(ServiceFailure::local(FailureKind::Invalid, problem))
                }
            },
            ConsumerStatus::Deleting => Ok(Status::Deleting),
            // A status that is not known here is one on the way to another.
            _ => Ok(Status::Creating),
        }
    }

    pub(super) async fn register(&self, stream_arn: &str) -> Result<(), ServiceFailure> {
        let tags = self.config.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let request = self
            .client
            .register_stream_consumer()
            .stream_arn(stream_arn)
            .consumer_name(&self.config.consumer)
            .set_tags(Some(tags).filter(|_| !self.config.tags.is_empty()))
            .customize()
            .config_override(once())
            .send();
        match tokio::time::timeout(self.config.control_timeout, request).await {
            Ok(answer) => answer.map(drop).map_err(|error| ServiceFailure::new(&error)),
            Err(_) => Err(self.timed_out()),
        }
    }

    fn timed_out(&self) -> ServiceFailure {
        timed_out(self.config.control_timeout)
    }
}

/// Leaves the SDK's retries off: they would go past the rate that registrations are kept within, and multiply ours.
fn once() -> Builder {
    Builder::new().retry_config(RetryConfig::disabled())
}

fn timed_out(after: Duration) -> ServiceFailure {
    ServiceFailure::local(FailureKind::Timeout, format!("no answer within {} ms", after.as_millis()))
}
