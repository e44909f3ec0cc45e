//! The directory over the Kinesis API.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_kinesis::types::StreamStatus;

use super::{ClientSource, DateHeader, FailureKind, InvalidAnswer, Purpose, ServiceFailure, timestamp};
use crate::directory::{DirectoryError, ShardDirectory, ShardInfo, ShardPage, StreamDescription};
use crate::{StreamRef, Timestamp};

/// Looks at streams through the Kinesis API. Needs `kinesis:ListShards` and `kinesis:DescribeStreamSummary`; the time of
/// the service is told by a refusal, too.
#[derive(Debug, Clone)]
pub struct KinesisDirectory {
    clients: ClientSource,
}

impl KinesisDirectory {
    /// A directory over clients of purpose [`Control`](Purpose::Control).
    pub fn new(clients: impl Into<ClientSource>) -> Self {
        Self { clients: clients.into() }
    }

    async fn describe(
        &self,
        stream: &StreamRef,
        date: DateHeader,
    ) -> Result<StreamDescription, DirectoryError> {
        const ACTION: &str = "DescribeStreamSummary";
        let answer = self
            .clients
            .client(Purpose::Control)
            .describe_stream_summary()
            .set_stream_name(stream.api_name())
            .set_stream_arn(stream.api_arn())
            .customize()
            .interceptor(date.clone())
            .send()
            .await
            .map_err(|error| directory_error(stream, ACTION, ServiceFailure::new(&error)))?;
        let Some(summary) = answer.stream_description_summary else {
            let problem = InvalidAnswer::new("the description is missing");
            return Err(DirectoryError::unavailable(stream.clone(), ACTION, problem));
        };
        let mut description = StreamDescription::new(summary.open_shard_count.try_into().unwrap_or_default());
        description.arn = Some(summary.stream_arn);
        description.created_at = Some(timestamp(&summary.stream_creation_timestamp));
        description.readable = matches!(summary.stream_status, StreamStatus::Active | StreamStatus::Updating);
        let hours = u64::try_from(summary.retention_period_hours).unwrap_or_default();
        description.retention = Duration::from_secs(hours * 60 * 60);
        description.described_at = date.get();
        Ok(description)
    }
}

#[async_trait]
impl ShardDirectory for KinesisDirectory {
    async fn list_shards(&self, stream: &StreamRef, page: Option<&str>) -> Result<ShardPage, DirectoryError> {
        const ACTION: &str = "ListShards";
        let request = self.clients.client(Purpose::Control).list_shards();
        // A page token stands for the stream; the service refuses both together.
        let request = match page {
            Some(token) => request.next_token(token),
            None => request.set_stream_name(stream.api_name()).set_stream_arn(stream.api_arn()),
        };
        let answer = request
            .send()
            .await
            .map_err(|error| directory_error(stream, ACTION, ServiceFailure::new(&error)))?;
        let shards = answer
            .shards
            .unwrap_or_default()
            .into_iter()
            .map(ShardInfo::try_from)
            .collect::<Result<_, _>>()
            .map_err(|problem| DirectoryError::unavailable(stream.clone(), ACTION, problem))?;
        Ok(ShardPage::new(shards, answer.next_token))
    }

    async fn describe_stream(&self, stream: &StreamRef) -> Result<StreamDescription, DirectoryError> {
        self.describe(stream, DateHeader::default()).await
    }

    async fn server_time(&self, stream: &StreamRef) -> Result<Timestamp, DirectoryError> {
        let date = DateHeader::default();
        let answer = self.describe(stream, date.clone()).await;
        match (answer, date.get()) {
            // That there is no such stream is worth more than the time.
            (Err(error @ DirectoryError::StreamNotFound { .. }), _) | (Err(error), None) => Err(error),
            (_, Some(time)) => Ok(time),
            (Ok(_), None) => {
                let problem = InvalidAnswer::new("the answer has no Date header");
                Err(DirectoryError::unavailable(stream.clone(), "DescribeStreamSummary", problem))
            }
        }
    }
}

fn directory_error(stream: &StreamRef, action: &'static str, failure: ServiceFailure) -> DirectoryError {
    let stream = stream.clone();
    match failure.kind() {
        FailureKind::NotFound => DirectoryError::stream_not_found(stream, action, failure),
        FailureKind::AccessDenied => DirectoryError::access_denied(stream, action, failure),
        FailureKind::Throttled => DirectoryError::throttled(stream, action, failure),
        _ => DirectoryError::unavailable(stream, action, failure),
    }
}
