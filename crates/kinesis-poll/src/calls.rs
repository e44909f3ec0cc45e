//! The two calls to the service.

use std::pin::Pin;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_sdk_kinesis::types::ShardIteratorType;
use kinesis_core::aws::{DateHeader, FailureKind, ServiceFailure, date_time, source_records};
use kinesis_core::directory::ShardInfo;
use kinesis_core::{ShardRef, StartPosition, Timestamp};
use tokio::time::Instant;

use crate::PollConfig;
use crate::machine::{Event, Page};
use crate::meters::Meters;

/// A call or a wait that is under way.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Event> + Send>>;

/// Makes the calls for one shard. Each ends within the attempt timeout, counted from when it is first polled.
#[derive(Debug)]
pub(crate) struct Calls {
    client: Client,
    shard: ShardRef,
    max_records: i32,
    timeout: Duration,
    #[cfg(feature = "fast-decode")]
    fast: bool,
}

impl Calls {
    pub(crate) fn new(client: Client, shard: ShardRef, config: &PollConfig) -> Self {
        let max_records = i32::try_from(config.max_records).unwrap_or(i32::MAX);
        Self {
            client,
            shard,
            max_records,
            timeout: config.attempt_timeout,
            #[cfg(feature = "fast-decode")]
            fast: false,
        }
    }

    /// Decodes pages without the SDK.
    #[cfg(feature = "fast-decode")]
    pub(crate) fn fast(mut self, fast: bool) -> Self {
        self.fast = fast;
        self
    }

    pub(crate) fn get_iterator(&self, start: &StartPosition) -> Pending {
        use ShardIteratorType as Kind;
        let (kind, sequence, time) = match start {
            StartPosition::TrimHorizon => (Kind::TrimHorizon, None, None),
            StartPosition::Latest => (Kind::Latest, None, None),
            StartPosition::AtTimestamp { timestamp } => {
                (Kind::AtTimestamp, None, Some(date_time(*timestamp)))
            }
            StartPosition::AtSequenceNumber { sequence } => {
                (Kind::AtSequenceNumber, Some(sequence.to_string()), None)
            }
            StartPosition::AfterSequenceNumber { sequence } => {
                (Kind::AfterSequenceNumber, Some(sequence.to_string()), None)
            }
            _ => {
                let failure =
                    ServiceFailure::local(FailureKind::Invalid, "this start position is not known here");
                let event = Event::Iterator { answer: Err(failure), service_time: None };
                return Box::pin(std::future::ready(event));
            }
        };
        let date = DateHeader::default();
        let stream = self.shard.stream();
        let request = self
            .client
            .get_shard_iterator()
            .set_stream_name(stream.api_name())
            .set_stream_arn(stream.api_arn())
            .shard_id(self.shard.shard().as_str())
            .shard_iterator_type(kind)
            .set_starting_sequence_number(sequence)
            .set_timestamp(time)
            .customize()
            .interceptor(date.clone());
        let timeout = self.timeout;
        Box::pin(async move {
            let answer = match tokio::time::timeout(timeout, request.send()).await {
                Ok(Ok(output)) => output
                    .shard_iterator
                    .filter(|token| !token.is_empty())
                    .ok_or_else(|| ServiceFailure::local(FailureKind::Other, "the answer has no iterator")),
                Ok(Err(error)) => Err(ServiceFailure::new(&error)),
                Err(_) => Err(timed_out(timeout)),
            };
            Event::Iterator { answer, service_time: date.get() }
        })
    }

    pub(crate) fn get_records(&self, iterator: String, meters: &Meters) -> Pending {
        let request = self
            .client
            .get_records()
            .shard_iterator(iterator)
            .limit(self.max_records)
            .set_stream_arn(self.shard.stream().api_arn());
        let date = DateHeader::default();
        let request = request.customize().interceptor(date.clone());
        let (timeout, meters) = (self.timeout, meters.clone());
        #[cfg(feature = "fast-decode")]
        if self.fast {
            return Box::pin(async move {
                let records = crate::fast::FastDecode::default();
                let request = request.interceptor(records.clone());
                let mut event = read(request.send(), date, timeout, &meters).await;
                if let (Event::Page(Ok(page)), Some(records)) = (&mut event, records.take()) {
                    page.records = records;
                }
                event
            });
        }
        Box::pin(async move { read(request.send(), date, timeout, &meters).await })
    }
}

/// Makes the call within the timeout.
async fn read(
    call: impl Future<Output = Result<GetRecordsOutput, SdkError<GetRecordsError>>>,
    date: DateHeader,
    timeout: Duration,
    meters: &Meters,
) -> Event {
    let sent = Instant::now();
    let answer = tokio::time::timeout(timeout, call).await;
    meters.fetched(sent.elapsed());
    Event::Page(match answer {
        Ok(Ok(output)) => page(output, date.get()),
        Ok(Err(error)) => Err(ServiceFailure::new(&error)),
        Err(_) => Err(timed_out(timeout)),
    })
}

fn timed_out(after: Duration) -> ServiceFailure {
    ServiceFailure::local(FailureKind::Timeout, format!("no answer within {} ms", after.as_millis()))
}

fn page(output: GetRecordsOutput, service_time: Option<Timestamp>) -> Result<Page, ServiceFailure> {
    let records = source_records(output.records)
        .map_err(|problem| ServiceFailure::local(FailureKind::Other, problem.to_string()))?;
    // Children are a hint; who needs them all lists the shards. One that cannot be read must not keep the end back.
    let children = output
        .child_shards
        .unwrap_or_default()
        .into_iter()
        .filter_map(|child| ShardInfo::try_from(child).ok());
    Ok(Page {
        records,
        next: output.next_shard_iterator,
        behind: output
            .millis_behind_latest
            .map(|millis| Duration::from_millis(millis.try_into().unwrap_or_default())),
        children: children.collect(),
        service_time,
    })
}
