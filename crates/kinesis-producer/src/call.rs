//! One PutRecords call.

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::put_records::PutRecordsOutput;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, PutRecordsResultEntry};
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::{OutboundRecord, ShardId, StreamRef};
use tokio::time::{Instant, timeout};

use crate::batcher::EntryResult;

/// How a call ended, and how long it took.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) took: Duration,
    pub(crate) result: Result<Vec<EntryResult>, ServiceFailure>,
}

/// A record as the SDK wants it: shares the payload, copies the key.
pub(crate) fn entry(record: &OutboundRecord) -> Result<PutRecordsRequestEntry, ServiceFailure> {
    PutRecordsRequestEntry::builder()
        .data(Blob::new(record.data.clone()))
        .partition_key(record.partition_key.as_str())
        .set_explicit_hash_key(record.explicit_hash_key.map(|key| key.to_string()))
        .build()
        .map_err(|error| ServiceFailure::local(FailureKind::Invalid, error.to_string()))
}

/// Makes one attempt; it ends within `limit`, whatever the service does.
pub(crate) async fn put_records(
    client: Client,
    stream: StreamRef,
    entries: Result<Vec<PutRecordsRequestEntry>, ServiceFailure>,
    limit: Duration,
) -> Reply {
    let started = Instant::now();
    let result = match entries {
        Ok(entries) => send(&client, &stream, entries, limit).await,
        Err(failure) => Err(failure),
    };
    Reply { took: started.elapsed(), result }
}

async fn send(
    client: &Client,
    stream: &StreamRef,
    entries: Vec<PutRecordsRequestEntry>,
    limit: Duration,
) -> Result<Vec<EntryResult>, ServiceFailure> {
    let request = client
        .put_records()
        .set_stream_name(stream.api_name())
        .set_stream_arn(stream.api_arn())
        .set_records(Some(entries));
    match timeout(limit, request.send()).await {
        Ok(Ok(output)) => Ok(results(output)),
        Ok(Err(error)) => Err(ServiceFailure::new(&error)),
        Err(_) => {
            let text = format!("PutRecords had no answer within {} s", limit.as_secs_f64());
            Err(ServiceFailure::local(FailureKind::Timeout, text))
        }
    }
}

/// The results decide, not the count of failures that comes with them.
fn results(output: PutRecordsOutput) -> Vec<EntryResult> {
    output.records.into_iter().map(result).collect()
}

fn result(entry: PutRecordsResultEntry) -> EntryResult {
    if let Some(code) = entry.error_code {
        return Err(ServiceFailure::from_code(code, entry.error_message.unwrap_or_default()));
    }
    let shard = entry.shard_id.and_then(|id| ShardId::new(id).ok());
    let sequence = entry.sequence_number.and_then(|number| number.parse().ok());
    shard.zip(sequence).ok_or_else(|| {
        let text = "a result has neither an error nor a valid shard and sequence number";
        ServiceFailure::local(FailureKind::Other, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_a_place_or_a_failure() {
        let stored = PutRecordsResultEntry::builder().shard_id("shardId-0").sequence_number("49").build();
        let (shard, sequence) = result(stored).unwrap();
        assert_eq!((shard.as_str(), sequence.to_string().as_str()), ("shardId-0", "49"));

        let refused = PutRecordsResultEntry::builder()
            .error_code("ProvisionedThroughputExceededException")
            .error_message("Rate exceeded")
            .build();
        assert_eq!(result(refused).unwrap_err().kind(), FailureKind::Throttled);

        for bad in [
            PutRecordsResultEntry::builder().build(),
            PutRecordsResultEntry::builder().shard_id("shardId-0").build(),
            PutRecordsResultEntry::builder().shard_id("shardId-0").sequence_number("x").build(),
        ] {
            assert_eq!(result(bad).unwrap_err().kind(), FailureKind::Other);
        }
    }

    #[test]
    fn an_entry_carries_key_payload_and_hash_key() {
        let record = OutboundRecord::new("key", "value").explicit_hash_key(kinesis_core::HashKey::MAX);
        let entry = entry(&record).unwrap();
        assert_eq!(entry.partition_key(), Some("key"));
        assert_eq!(entry.data().as_ref(), b"value");
        assert_eq!(entry.explicit_hash_key(), Some(u128::MAX.to_string().as_str()));
    }
}
