//! SubscribeToShard: the call, and what its stream brings.

use std::pin::Pin;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::primitives::event_stream::EventReceiver;
use aws_sdk_kinesis::types::error::SubscribeToShardEventStreamError as StreamError;
use aws_sdk_kinesis::types::{
    ShardIteratorType, StartingPosition, SubscribeToShardEvent, SubscribeToShardEventStream,
};
use aws_smithy_types::event_stream::RawMessage;
use kinesis_core::aws::{DateHeader, FailureKind, ServiceFailure, date_time, source_records};
use kinesis_core::directory::ShardInfo;
use kinesis_core::{ShardRef, StartPosition};

use crate::machine::{Event, Push};
use crate::registration::ConsumerArn;

/// A call under way, up to the first frame of its answer. It has no limit of its own: the machine gives it up.
pub(crate) type Subscribing = Pin<Box<dyn Future<Output = Result<Subscription, ServiceFailure>> + Send>>;

/// Calls SubscribeToShard; `date` learns the service's time, also from a refusal.
pub(crate) fn subscribe(
    client: &Client,
    consumer: &ConsumerArn,
    shard: &ShardRef,
    start: &StartPosition,
    date: DateHeader,
) -> Subscribing {
    let Some(position) = starting_position(start) else {
        let text = "this start position is not known here";
        return Box::pin(std::future::ready(Err(ServiceFailure::local(FailureKind::Invalid, text))));
    };
    let request = client
        .subscribe_to_shard()
        .consumer_arn(consumer.as_str())
        .shard_id(shard.shard().as_str())
        .starting_position(position)
        .customize()
        .interceptor(date);
    Box::pin(async move {
        let output = request.send().await.map_err(|error| ServiceFailure::new(&error))?;
        Ok(Subscription(output.event_stream))
    })
}

fn starting_position(start: &StartPosition) -> Option<StartingPosition> {
    use ShardIteratorType as Kind;
    let builder = StartingPosition::builder();
    let builder = match start {
        StartPosition::TrimHorizon => builder.r#type(Kind::TrimHorizon),
        StartPosition::Latest => builder.r#type(Kind::Latest),
        StartPosition::AtTimestamp { timestamp } => {
            builder.r#type(Kind::AtTimestamp).timestamp(date_time(*timestamp))
        }
        StartPosition::AtSequenceNumber { sequence } => {
            builder.r#type(Kind::AtSequenceNumber).sequence_number(sequence.to_string())
        }
        StartPosition::AfterSequenceNumber { sequence } => {
            builder.r#type(Kind::AfterSequenceNumber).sequence_number(sequence.to_string())
        }
        _ => return None,
    };
    builder.build().ok()
}

/// An open subscription; dropping it closes it.
pub(crate) struct Subscription(EventReceiver<SubscribeToShardEventStream, StreamError>);

impl Subscription {
    /// The next event. After [`Event::Closed`] it must be dropped: behind a broken frame the SDK would go on with the
    /// one after it. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Event {
        match self.0.recv().await {
            Ok(Some(SubscribeToShardEventStream::SubscribeToShardEvent(event))) => match push(event) {
                Ok(push) => Event::Pushed(push),
                Err(failure) => Event::Closed(Some(failure)),
            },
            Ok(Some(_)) => Event::Unknown,
            Ok(None) => Event::Closed(None),
            Err(error) => Event::Closed(Some(stream_failure(&error))),
        }
    }
}

fn push(event: SubscribeToShardEvent) -> Result<Push, ServiceFailure> {
    let records = source_records(event.records)
        .map_err(|problem| ServiceFailure::local(FailureKind::Other, problem.to_string()))?;
    // Children are a hint; who needs them all lists the shards. One that cannot be read must not keep the end back,
    // nor make the shard look as if it went on.
    let children = event.child_shards.unwrap_or_default();
    let children = children.into_iter().filter_map(|child| ShardInfo::try_from(child).ok());
    Ok(Push {
        records,
        // What is no number is no end either: the last record is where to go on.
        continuation: event.continuation_sequence_number.parse().ok(),
        is_last: event.continuation_sequence_number.is_empty(),
        behind: event.millis_behind_latest.try_into().ok().map(Duration::from_millis),
        children: children.collect(),
    })
}

/// What an error in the stream means. The SDK gives modelled ones no code, and of others only the raw frame knows it.
fn stream_failure(error: &SdkError<StreamError, RawMessage>) -> ServiceFailure {
    match error {
        SdkError::ServiceError(context) => {
            let error = context.err();
            let code = match error {
                StreamError::ResourceNotFoundException(_) => "ResourceNotFoundException",
                StreamError::ResourceInUseException(_) => "ResourceInUseException",
                StreamError::KmsDisabledException(_) => "KMSDisabledException",
                StreamError::KmsInvalidStateException(_) => "KMSInvalidStateException",
                StreamError::KmsAccessDeniedException(_) => "KMSAccessDeniedException",
                StreamError::KmsNotFoundException(_) => "KMSNotFoundException",
                StreamError::KmsOptInRequired(_) => "KMSOptInRequired",
                StreamError::KmsThrottlingException(_) => "KMSThrottlingException",
                StreamError::InternalFailureException(_) => "InternalFailureException",
                _ => error.code().or_else(|| header(context.raw(), ":exception-type")).unwrap_or("unknown"),
            };
            ServiceFailure::from_code(code, error.message().unwrap_or("the service ended the subscription"))
        }
        SdkError::ResponseError(context) => match header(context.raw(), ":error-code") {
            Some(code) => {
                let text =
                    header(context.raw(), ":error-message").unwrap_or("the service ended the subscription");
                ServiceFailure::from_code(code, text)
            }
            None => ServiceFailure::local(FailureKind::Transport, kinesis_core::error_chain(error)),
        },
        _ => ServiceFailure::local(FailureKind::Transport, kinesis_core::error_chain(error)),
    }
}

fn header<'a>(raw: &'a RawMessage, name: &str) -> Option<&'a str> {
    let RawMessage::Decoded(message) = raw else { return None };
    let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
    header.value().as_string().ok().map(|text| text.as_str())
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::primitives::Blob;
    use aws_sdk_kinesis::types::{ChildShard, HashKeyRange, Record};

    use super::*;

    fn event(sequence: &str, continuation: &str) -> SubscribeToShardEvent {
        let record = Record::builder().sequence_number(sequence).data(Blob::new("x"));
        SubscribeToShardEvent::builder()
            .records(record.build().unwrap())
            .continuation_sequence_number(continuation)
            .millis_behind_latest(-1)
            .build()
            .unwrap()
    }

    /// An empty continuation point is the end's mark; one that is no number is neither an end nor a position.
    #[test]
    fn only_an_empty_continuation_may_be_the_end() {
        for (text, number, is_last) in
            [("", None, true), ("17", Some(17), false), ("soon", None, false), ("-1", None, false)]
        {
            let push = push(event("5", text)).unwrap();
            assert_eq!(push.continuation, number.map(|number: u128| number.into()), "{text}");
            assert_eq!(push.is_last, is_last, "{text}");
            assert_eq!((push.records.len(), push.behind), (1, None), "{text}");
        }
    }

    /// A record whose place cannot be read fails its subscription, and the failure does not show the record.
    #[test]
    fn a_record_without_a_place_fails_the_subscription() {
        let failure = push(event("secret", "17")).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Other);
        assert!(failure.is_retryable() && !failure.to_string().contains("secret"), "{failure}");
    }

    /// Children that cannot be read are left out; the others are told.
    #[test]
    fn children_that_cannot_be_read_are_left_out() {
        let child = |id: &str, start: &str| {
            let range = HashKeyRange::builder().starting_hash_key(start).ending_hash_key("9");
            let child = ChildShard::builder().shard_id(id).parent_shards("shardId-000000000000");
            child.hash_key_range(range.build().unwrap()).build().unwrap()
        };
        let children =
            vec![child("shardId-000000000001", "0"), child("", "0"), child("shardId-000000000003", "x")];
        let event =
            SubscribeToShardEvent::builder().set_child_shards(Some(children)).set_records(Some(vec![]));
        let event = event.continuation_sequence_number("").millis_behind_latest(0).build().unwrap();
        let push = push(event).unwrap();
        let ids: Vec<_> = push.children.iter().map(|child| child.id.as_str()).collect();
        assert_eq!((ids, push.is_last), (vec!["shardId-000000000001"], true));
    }
}
