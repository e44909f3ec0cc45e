//! What the requests say. Every member is optional here: the state machine answers for what is missing.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Blob, Operation, Timestamp};
use crate::error::ServiceError;

/// Declares the request enum from the operations and their inputs.
macro_rules! requests {
    ($($operation:ident($input:ident)),* $(,)?) => {
        /// One request.
        #[derive(Debug, Clone)]
        pub(crate) enum Request {
            $($operation($input)),*
        }

        impl Request {
            /// Reads the JSON input of `operation`.
            pub(crate) fn from_json(operation: Operation, body: &[u8]) -> serde_json::Result<Self> {
                match operation {
                    $(Operation::$operation => serde_json::from_slice(body).map(Self::$operation)),*
                }
            }

            /// Reads the CBOR input of `operation`.
            pub(crate) fn from_cbor(
                operation: Operation,
                body: &[u8],
            ) -> Result<Self, ciborium::de::Error<std::io::Error>> {
                match operation {
                    $(Operation::$operation => ciborium::from_reader(body).map(Self::$operation)),*
                }
            }

            pub(crate) fn operation(&self) -> Operation {
                match self {
                    $(Self::$operation(_) => Operation::$operation),*
                }
            }
        }
    };
}

requests! {
    AddTagsToStream(TagsInput),
    CreateStream(CreateStreamInput),
    DecreaseStreamRetentionPeriod(RetentionInput),
    DeleteStream(StreamInput),
    DeregisterStreamConsumer(ConsumerInput),
    DescribeLimits(DescribeLimitsInput),
    DescribeStream(DescribeStreamInput),
    DescribeStreamConsumer(ConsumerInput),
    DescribeStreamSummary(StreamInput),
    GetRecords(GetRecordsInput),
    GetShardIterator(GetShardIteratorInput),
    IncreaseStreamRetentionPeriod(RetentionInput),
    ListShards(ListShardsInput),
    ListStreamConsumers(ListStreamConsumersInput),
    ListStreams(ListStreamsInput),
    MergeShards(MergeShardsInput),
    PutRecord(PutRecordInput),
    PutRecords(PutRecordsInput),
    RegisterStreamConsumer(ConsumerInput),
    SplitShard(SplitShardInput),
    StartStreamEncryption(EncryptionInput),
    StopStreamEncryption(EncryptionInput),
    SubscribeToShard(SubscribeToShardInput),
    UpdateMaxRecordSize(MaxRecordSizeInput),
    UpdateShardCount(UpdateShardCountInput),
    UpdateStreamMode(StreamModeInput),
    UpdateStreamRecordDistributionStrategy(DistributionInput),
}

/// Whether a call is only to be tried. Trials are refused when everything else about them was found good.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct DryRun(Option<bool>);

impl DryRun {
    /// Refuses a trial.
    pub(crate) fn check(self) -> Result<(), ServiceError> {
        if self.0 == Some(true) { Err(ServiceError::dry_run()) } else { Ok(()) }
    }
}

/// How a request names its stream: by name or by ARN.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
}

impl StreamInput {
    pub(crate) fn named(name: &str) -> Self {
        Self { stream_name: Some(name.to_owned()), stream_arn: None }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TagsInput {
    #[serde(flatten)]
    pub(crate) stream: StreamInput,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateStreamInput {
    pub(crate) stream_name: Option<String>,
    pub(crate) shard_count: Option<i64>,
    pub(crate) stream_mode_details: Option<StreamModeDetails>,
    #[serde(rename = "MaxRecordSizeInKiB")]
    pub(crate) max_record_size_in_kib: Option<i64>,
    pub(crate) record_distribution_strategy: Option<String>,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamModeDetails {
    pub(crate) stream_mode: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RetentionInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) retention_period_hours: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MaxRecordSizeInput {
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    #[serde(rename = "MaxRecordSizeInKiB")]
    pub(crate) max_record_size_in_kib: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeStreamInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) limit: Option<i64>,
    pub(crate) exclusive_start_shard_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListStreamsInput {
    pub(crate) limit: Option<i64>,
    pub(crate) exclusive_start_stream_name: Option<String>,
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListShardsInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) next_token: Option<String>,
    pub(crate) exclusive_start_shard_id: Option<String>,
    pub(crate) max_results: Option<i64>,
    pub(crate) stream_creation_timestamp: Option<Timestamp>,
    pub(crate) shard_filter: Option<ShardFilterInput>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ShardFilterInput {
    #[serde(rename = "Type")]
    pub(crate) kind: Option<String>,
    pub(crate) shard_id: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetShardIteratorInput {
    #[serde(default)]
    pub(crate) dry_run: DryRun,
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) shard_id: Option<String>,
    pub(crate) shard_iterator_type: Option<String>,
    pub(crate) starting_sequence_number: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetRecordsInput {
    #[serde(default)]
    pub(crate) dry_run: DryRun,
    pub(crate) shard_iterator: Option<String>,
    pub(crate) limit: Option<i64>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutRecordInput {
    #[serde(default)]
    pub(crate) dry_run: DryRun,
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) data: Option<Blob>,
    pub(crate) partition_key: Option<String>,
    pub(crate) explicit_hash_key: Option<String>,
    pub(crate) sequence_number_for_ordering: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutRecordsInput {
    #[serde(default)]
    pub(crate) dry_run: DryRun,
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) records: Option<Vec<PutEntry>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutEntry {
    pub(crate) data: Option<Blob>,
    pub(crate) partition_key: Option<String>,
    pub(crate) explicit_hash_key: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SplitShardInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) shard_to_split: Option<String>,
    pub(crate) new_starting_hash_key: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MergeShardsInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) shard_to_merge: Option<String>,
    pub(crate) adjacent_shard_to_merge: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct UpdateShardCountInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) target_shard_count: Option<i64>,
    pub(crate) scaling_type: Option<String>,
}

/// How a request names a consumer: by its stream and name, or by its own ARN.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ConsumerInput {
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) consumer_name: Option<String>,
    #[serde(rename = "ConsumerARN")]
    pub(crate) consumer_arn: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListStreamConsumersInput {
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) next_token: Option<String>,
    pub(crate) max_results: Option<i64>,
    pub(crate) stream_creation_timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SubscribeToShardInput {
    #[serde(default)]
    pub(crate) dry_run: DryRun,
    #[serde(rename = "ConsumerARN")]
    pub(crate) consumer_arn: Option<String>,
    pub(crate) shard_id: Option<String>,
    pub(crate) starting_position: Option<StartingPosition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StartingPosition {
    #[serde(rename = "Type")]
    pub(crate) kind: Option<String>,
    pub(crate) sequence_number: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct DescribeLimitsInput {}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct EncryptionInput {
    pub(crate) stream_name: Option<String>,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) encryption_type: Option<String>,
    pub(crate) key_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamModeInput {
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) stream_mode_details: Option<StreamModeDetails>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DistributionInput {
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: Option<String>,
    pub(crate) record_distribution_strategy: Option<String>,
}
