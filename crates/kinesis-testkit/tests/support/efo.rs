//! Helpers for tests of subscriptions.

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::subscribe_to_shard::{SubscribeToShardError, SubscribeToShardOutput};
use aws_sdk_kinesis::types::error::SubscribeToShardEventStreamError as StreamError;
use aws_sdk_kinesis::types::{
    ShardIteratorType, StartingPosition, SubscribeToShardEvent, SubscribeToShardEventStream,
};
use kinesis_testkit::{Builder, Rule, TestKinesis};

/// A service with a stream `s` and an active consumer `app`.
pub struct FanOut {
    pub kinesis: TestKinesis,
    pub client: Client,
    /// The consumer's ARN.
    pub arn: String,
}

pub fn fan_out(shards: usize) -> FanOut {
    fan_out_of(TestKinesis::builder(), shards)
}

/// With one shard.
pub fn fan_out_without(rule: Rule) -> FanOut {
    fan_out_of(TestKinesis::builder().without(rule), 1)
}

pub fn fan_out_of(builder: Builder, shards: usize) -> FanOut {
    let kinesis = builder.build();
    kinesis.create_stream("s", shards).unwrap();
    let arn = kinesis.register_consumer("s", "app").unwrap();
    FanOut { client: kinesis.client(), kinesis, arn }
}

pub type SubscribeError = SdkError<SubscribeToShardError>;

impl FanOut {
    pub async fn subscribe(
        &self,
        shard: &str,
        start: StartingPosition,
    ) -> Result<Subscribed, SubscribeError> {
        subscribe(&self.client, &self.arn, shard, start).await.map(Subscribed)
    }
}

pub async fn subscribe(
    client: &Client,
    arn: &str,
    shard: &str,
    start: StartingPosition,
) -> Result<SubscribeToShardOutput, SubscribeError> {
    client.subscribe_to_shard().consumer_arn(arn).shard_id(shard).starting_position(start).send().await
}

pub fn from_oldest() -> StartingPosition {
    StartingPosition::builder().r#type(ShardIteratorType::TrimHorizon).build().unwrap()
}

pub fn from_tip() -> StartingPosition {
    StartingPosition::builder().r#type(ShardIteratorType::Latest).build().unwrap()
}

pub fn after_number(number: &str) -> StartingPosition {
    let kind = ShardIteratorType::AfterSequenceNumber;
    StartingPosition::builder().r#type(kind).sequence_number(number).build().unwrap()
}

/// An open subscription.
#[derive(Debug)]
pub struct Subscribed(pub SubscribeToShardOutput);

pub type Received = Result<Option<SubscribeToShardEventStream>, SdkError<StreamError, RawMessage>>;
pub type RawMessage = aws_smithy_types::event_stream::RawMessage;

impl Subscribed {
    pub async fn receive(&mut self) -> Received {
        self.0.event_stream.recv().await
    }

    /// The next event; none at an end in order.
    pub async fn event(&mut self) -> Option<SubscribeToShardEvent> {
        match self.receive().await.unwrap()? {
            SubscribeToShardEventStream::SubscribeToShardEvent(event) => Some(event),
            other => panic!("{other:?} is not the event"),
        }
    }

    /// The name of the modelled error that ends the stream; events before it are skipped.
    pub async fn error(&mut self) -> String {
        let error = loop {
            match self.receive().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(error) => break error,
            }
        };
        let name = match error.into_service_error() {
            StreamError::ResourceNotFoundException(_) => "ResourceNotFoundException",
            StreamError::ResourceInUseException(_) => "ResourceInUseException",
            StreamError::InternalFailureException(_) => "InternalFailureException",
            StreamError::KmsDisabledException(_) => "KMSDisabledException",
            StreamError::KmsAccessDeniedException(_) => "KMSAccessDeniedException",
            StreamError::KmsThrottlingException(_) => "KMSThrottlingException",
            _ => "another",
        };
        name.to_owned()
    }
}

/// The payloads of an event as text.
pub fn texts(event: &SubscribeToShardEvent) -> Vec<String> {
    event.records().iter().map(|record| String::from_utf8(record.data().as_ref().to_vec()).unwrap()).collect()
}
