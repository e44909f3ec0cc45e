//! What the replies carry.

use std::sync::Arc;

use serde::Serialize;

use super::{Blob, SequenceText, Timestamp};

/// One successful reply.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Response {
    /// Operations without an output: an empty body.
    Empty,
    DescribeLimits(DescribeLimitsOutput),
    DescribeStream(DescribeStreamOutput),
    DescribeStreamConsumer(DescribeStreamConsumerOutput),
    DescribeStreamSummary(DescribeStreamSummaryOutput),
    GetRecords(GetRecordsOutput),
    GetShardIterator(GetShardIteratorOutput),
    ListShards(ListShardsOutput),
    ListStreamConsumers(ListStreamConsumersOutput),
    ListStreams(ListStreamsOutput),
    PutRecord(PutRecordOutput),
    PutRecords(PutRecordsOutput),
    RegisterStreamConsumer(RegisterStreamConsumerOutput),
    /// The number of a new subscription: the reply is an event stream.
    #[serde(skip)]
    Subscribed(u64),
    UpdateShardCount(UpdateShardCountOutput),
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamMode {
    pub(crate) stream_mode: &'static str,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct EnhancedMetrics {
    pub(crate) shard_level_metrics: [&'static str; 0],
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeStreamOutput {
    pub(crate) stream_description: StreamDescription,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamDescription {
    pub(crate) stream_name: String,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: String,
    pub(crate) stream_status: &'static str,
    pub(crate) stream_mode_details: StreamMode,
    pub(crate) shards: Vec<ShardOutput>,
    pub(crate) has_more_shards: bool,
    pub(crate) retention_period_hours: u32,
    pub(crate) stream_creation_timestamp: Timestamp,
    pub(crate) enhanced_monitoring: [EnhancedMetrics; 1],
    pub(crate) encryption_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeStreamSummaryOutput {
    pub(crate) stream_description_summary: StreamDescriptionSummary,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamDescriptionSummary {
    pub(crate) stream_name: String,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: String,
    pub(crate) stream_status: &'static str,
    pub(crate) stream_mode_details: StreamMode,
    pub(crate) retention_period_hours: u32,
    pub(crate) stream_creation_timestamp: Timestamp,
    pub(crate) enhanced_monitoring: [EnhancedMetrics; 1],
    pub(crate) encryption_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record_distribution_strategy: Option<&'static str>,
    pub(crate) open_shard_count: usize,
    pub(crate) consumer_count: usize,
    #[serde(rename = "MaxRecordSizeInKiB")]
    pub(crate) max_record_size_in_kib: u64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ShardOutput {
    pub(crate) shard_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_shard_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adjacent_parent_shard_id: Option<String>,
    pub(crate) hash_key_range: HashKeyRange,
    pub(crate) sequence_number_range: SequenceNumberRange,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HashKeyRange {
    pub(crate) starting_hash_key: String,
    pub(crate) ending_hash_key: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SequenceNumberRange {
    pub(crate) starting_sequence_number: SequenceText,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ending_sequence_number: Option<SequenceText>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListShardsOutput {
    pub(crate) shards: Vec<ShardOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListStreamsOutput {
    pub(crate) stream_names: Vec<String>,
    pub(crate) has_more_streams: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_token: Option<String>,
    pub(crate) stream_summaries: Vec<StreamSummary>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StreamSummary {
    pub(crate) stream_name: String,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: String,
    pub(crate) stream_status: &'static str,
    pub(crate) stream_mode_details: StreamMode,
    pub(crate) stream_creation_timestamp: Timestamp,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetShardIteratorOutput {
    pub(crate) shard_iterator: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetRecordsOutput {
    pub(crate) records: Vec<RecordOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_shard_iterator: Option<String>,
    pub(crate) millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) child_shards: Option<Vec<ChildShard>>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RecordOutput {
    pub(crate) sequence_number: SequenceText,
    pub(crate) approximate_arrival_timestamp: Timestamp,
    pub(crate) data: Blob,
    /// Absent where the stream distributes records by itself and the writer gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition_key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encryption_type: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ChildShard {
    pub(crate) shard_id: String,
    pub(crate) parent_shards: Vec<String>,
    pub(crate) hash_key_range: HashKeyRange,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutRecordOutput {
    pub(crate) shard_id: Arc<str>,
    pub(crate) sequence_number: SequenceText,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encryption_type: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutRecordsOutput {
    pub(crate) failed_record_count: i64,
    pub(crate) records: Vec<PutResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encryption_type: Option<&'static str>,
}

/// The result of one entry: a position or an error.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_number: Option<SequenceText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard_id: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_message: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct UpdateShardCountOutput {
    pub(crate) stream_name: String,
    #[serde(rename = "StreamARN")]
    pub(crate) stream_arn: String,
    pub(crate) current_shard_count: usize,
    pub(crate) target_shard_count: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeLimitsOutput {
    pub(crate) shard_limit: usize,
    pub(crate) open_shard_count: usize,
    pub(crate) on_demand_stream_count: usize,
    pub(crate) on_demand_stream_count_limit: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RegisterStreamConsumerOutput {
    pub(crate) consumer: ConsumerOutput,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ConsumerOutput {
    pub(crate) consumer_name: String,
    #[serde(rename = "ConsumerARN")]
    pub(crate) consumer_arn: String,
    pub(crate) consumer_status: &'static str,
    pub(crate) consumer_creation_timestamp: Timestamp,
    /// Only in a description.
    #[serde(rename = "StreamARN", skip_serializing_if = "Option::is_none")]
    pub(crate) stream_arn: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeStreamConsumerOutput {
    pub(crate) consumer_description: ConsumerOutput,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListStreamConsumersOutput {
    pub(crate) consumers: Vec<ConsumerOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_token: Option<String>,
}

/// One event of a subscription.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SubscribeToShardEvent {
    pub(crate) records: Vec<RecordOutput>,
    /// Absent in the last event of a shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continuation_sequence_number: Option<SequenceText>,
    pub(crate) millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) child_shards: Option<Vec<ChildShard>>,
}
