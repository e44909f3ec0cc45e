//! Kinesis events of AWS Lambda: split their aggregates, report which records failed.
//!
//! Lambda hands the aggregates over as they are, in base64. A handler splits them here, and answers with the Kinesis
//! record that it could not finish (`ReportBatchItemFailures` in the event source mapping): Lambda then comes again
//! from that record on, instead of with the whole batch
//! (<https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html>).
//!
//! ```
//! use kinesis_kpl::lambda::KinesisEvent;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let json = r#"{"Records": [{"kinesis": {"partitionKey": "k", "sequenceNumber": "7", "data": "aGk="}}]}"#;
//! let event: KinesisEvent = serde_json::from_str(json)?;
//! let response = event.for_each(|record| {
//!     if record.data().is_empty() { Err("nothing in it") } else { Ok(()) }
//! });
//! assert_eq!(serde_json::to_string(&response)?, r#"{"batchItemFailures":[]}"#);
//! # Ok(())
//! # }
//! ```
//!
//! An asynchronous handler goes through [`KinesisEvent::into_batch`] by itself and answers with
//! [`BatchResponse::failed_at`].

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kinesis_core::{PartitionKey, SequenceNumber};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{Deaggregated, Deaggregator, InvalidAggregate, Reason, UserRecord};

/// The event that Lambda calls a function with. Fields that are not needed here are ignored.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct KinesisEvent {
    /// The Kinesis records, oldest first, all of one shard.
    #[serde(rename = "Records")]
    pub records: Vec<EventRecord>,
}

/// One Kinesis record of an event.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EventRecord {
    /// The record itself.
    pub kinesis: KinesisData,
    /// The shard and the sequence number, `shardId-000000000006:4959...`.
    #[serde(rename = "eventID", default)]
    pub event_id: Option<String>,
    /// The ARN of the stream or of the consumer.
    #[serde(rename = "eventSourceARN", default)]
    pub event_source_arn: Option<String>,
}

impl EventRecord {
    /// The shard's name, where the event tells it.
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        self.event_id.as_deref()?.split_once(':').map(|(shard, _)| shard)
    }
}

/// The Kinesis part of an event record. `Debug` shows sizes, not data and keys.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KinesisData {
    /// The partition key; absent on streams with record distribution `AUTO`.
    #[serde(default, deserialize_with = "partition_key")]
    pub partition_key: Option<PartitionKey>,
    /// The sequence number.
    #[serde(deserialize_with = "sequence_number")]
    pub sequence_number: SequenceNumber,
    /// The data, decoded from base64.
    #[serde(deserialize_with = "data")]
    pub data: Bytes,
    /// About when the service took the record, in seconds since 1970.
    #[serde(default)]
    pub approximate_arrival_timestamp: Option<f64>,
}

impl fmt::Debug for KinesisData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinesisData")
            .field("partition_key", &self.partition_key)
            .field("sequence_number", &format_args!("{}", self.sequence_number))
            .field("data", &format_args!("{} bytes", self.data.len()))
            .field("approximate_arrival_timestamp", &self.approximate_arrival_timestamp)
            .finish()
    }
}

fn partition_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PartitionKey>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(PartitionKey::new))
}

fn sequence_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SequenceNumber, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    // The decoder's own message would quote a byte of the data.
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map(Bytes::from).map_err(|_| de::Error::custom("data is not base64"))
}

impl KinesisEvent {
    /// Splits the aggregates of the event, leniently; the digests are computed side by side.
    #[must_use]
    pub fn into_batch(self) -> Vec<BatchItem> {
        self.into_batch_with(&Deaggregator::new()).into_iter().filter_map(Result::ok).collect()
    }

    /// Splits the aggregates of the event with the settings of a [`Deaggregator`]: one result per Kinesis record, in
    /// order. In strict mode a broken aggregate is an error with its sequence number.
    #[must_use]
    pub fn into_batch_with(self, deaggregator: &Deaggregator) -> Vec<Result<BatchItem, ItemError>> {
        let done =
            deaggregator.deaggregate_many(self.records.iter().map(|record| record.kinesis.data.clone()));
        let item = |(record, done): (EventRecord, Result<Deaggregated, InvalidAggregate>)| {
            let shard = record.shard().map(str::to_owned);
            let KinesisData { partition_key, sequence_number, .. } = record.kinesis;
            match done {
                Ok(content) => Ok(BatchItem { shard, partition_key, sequence_number, content }),
                Err(source) => Err(ItemError { shard, sequence_number, source }),
            }
        };
        self.records.into_iter().zip(done).map(item).collect()
    }

    /// Hands each user record to `handler`, oldest first, and stops at the first failure: whatever comes after it in
    /// the shard comes again with it.
    ///
    /// A Kinesis record counts as done when all of its user records are, so those of an aggregate that went before
    /// the failed one come again too. Log the error in the handler: the response names only the Kinesis record.
    #[must_use = "it is the function's answer to Lambda"]
    pub fn for_each<E>(self, mut handler: impl FnMut(LambdaRecord) -> Result<(), E>) -> BatchResponse {
        for item in self.into_batch() {
            let sequence_number = item.sequence_number.clone();
            if item.into_records().try_for_each(&mut handler).is_err() {
                return BatchResponse::failed_at(&sequence_number);
            }
        }
        BatchResponse::default()
    }
}

/// A Kinesis record of an event, split or as it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BatchItem {
    /// The shard's name, where the event tells it.
    pub shard: Option<String>,
    /// The partition key of the Kinesis record; user records of an aggregate have their own.
    pub partition_key: Option<PartitionKey>,
    /// The sequence number: what a failure is reported with.
    pub sequence_number: SequenceNumber,
    /// The user records, or the data as they are with the reason.
    pub content: Deaggregated,
}

impl BatchItem {
    /// Why the record was not split, unless it was.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        self.content.reason()
    }

    /// The user records, made one by one; a Kinesis record that was not split is one.
    pub fn into_records(self) -> impl Iterator<Item = LambdaRecord> {
        let Self { sequence_number, partition_key, content, .. } = self;
        let (plain, split) = match content {
            Deaggregated::Raw { data, .. } => (Some((partition_key, data)), None),
            Deaggregated::Records(aggregate) => (None, Some(aggregate.into_records())),
        };
        let plain = plain.into_iter().map(|(partition_key, data)| Content::Plain { partition_key, data });
        let split = split.into_iter().flatten().map(Content::User);
        plain
            .chain(split)
            .map(move |content| LambdaRecord { sequence_number: sequence_number.clone(), content })
    }
}

/// One user record of an event. `Debug` shows sizes, not data and keys.
#[derive(Clone)]
pub struct LambdaRecord {
    sequence_number: SequenceNumber,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Plain { partition_key: Option<PartitionKey>, data: Bytes },
    User(UserRecord),
}

impl LambdaRecord {
    /// The payload.
    #[must_use]
    pub const fn data(&self) -> &Bytes {
        match &self.content {
            Content::Plain { data, .. } => data,
            Content::User(record) => &record.data,
        }
    }

    /// The partition key; absent on streams with record distribution `AUTO`, outside of aggregates.
    #[must_use]
    pub const fn partition_key(&self) -> Option<&PartitionKey> {
        match &self.content {
            Content::Plain { partition_key, .. } => partition_key.as_ref(),
            Content::User(record) => Some(&record.partition_key),
        }
    }

    /// The sequence number of the Kinesis record.
    #[must_use]
    pub const fn sequence_number(&self) -> &SequenceNumber {
        &self.sequence_number
    }

    /// The place in the aggregate, from 0; 0 for a plain record. With the sequence number it names the record.
    #[must_use]
    pub const fn sub_sequence(&self) -> u64 {
        match &self.content {
            Content::Plain { .. } => 0,
            Content::User(record) => record.sub_sequence,
        }
    }

    /// The record of the aggregate, unless this is a plain one.
    #[must_use]
    pub const fn user_record(&self) -> Option<&UserRecord> {
        match &self.content {
            Content::Plain { .. } => None,
            Content::User(record) => Some(record),
        }
    }
}

impl fmt::Debug for LambdaRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaRecord")
            .field("sequence_number", &format_args!("{}", self.sequence_number))
            .field("sub_sequence", &self.sub_sequence())
            .field("data", &format_args!("{} bytes", self.data().len()))
            .finish_non_exhaustive()
    }
}

/// A broken aggregate in an event, in strict mode.
#[derive(Debug, Clone, thiserror::Error)]
#[error("broken aggregate in shard {}, sequence number {sequence_number}", shard.as_deref().unwrap_or("unknown"))]
#[non_exhaustive]
pub struct ItemError {
    /// The shard's name, where the event tells it.
    pub shard: Option<String>,
    /// The sequence number of the Kinesis record.
    pub sequence_number: SequenceNumber,
    /// What is wrong, with the data.
    pub source: InvalidAggregate,
}

impl ItemError {
    /// Never: the same bytes are refused again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The function's answer to Lambda.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchResponse {
    /// The Kinesis records that failed; empty when all is done. Of several, Lambda goes back to the oldest.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

impl BatchResponse {
    /// Everything before this Kinesis record is done, it and all after it come again.
    #[must_use]
    pub fn failed_at(sequence_number: &SequenceNumber) -> Self {
        Self { batch_item_failures: vec![BatchItemFailure { item_identifier: sequence_number.to_string() }] }
    }
}

/// One failure in a [`BatchResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchItemFailure {
    /// The sequence number of the Kinesis record.
    pub item_identifier: String,
}
