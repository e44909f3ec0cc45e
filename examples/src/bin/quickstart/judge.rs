//! The independent reader: the plain SDK, from the oldest record of every shard. It shares no code with the consumer.

use std::time::Duration;

use anyhow::Context as _;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::ShardIteratorType;
use kinesis_core::aws::ServiceFailure;

/// A record that is in the stream.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) sequence: String,
    pub(crate) key: String,
}

/// The service allows five reads a second and shard.
const BETWEEN_READS: Duration = Duration::from_millis(220);

/// Reads everything that is in the stream now.
pub(crate) async fn read_all(client: &Client, stream: &str) -> anyhow::Result<Vec<Stored>> {
    let shards = crate::stream::shards(client, stream).await?;
    let mut readers = tokio::task::JoinSet::new();
    for shard in shards {
        readers.spawn(read_shard(client.clone(), stream.to_owned(), shard.shard_id));
    }
    let mut records = Vec::new();
    while let Some(read) = readers.join_next().await {
        records.extend(read??);
    }
    Ok(records)
}

async fn read_shard(client: Client, stream: String, shard: String) -> anyhow::Result<Vec<Stored>> {
    let iterator = client
        .get_shard_iterator()
        .stream_name(&stream)
        .shard_id(&shard)
        .shard_iterator_type(ShardIteratorType::TrimHorizon)
        .send()
        .await
        .map_err(|error| ServiceFailure::new(&error))
        .with_context(|| format!("GetShardIterator on {shard} failed"))?;
    let mut next = iterator.shard_iterator;
    let mut records = Vec::new();
    let mut failures = 0;
    while let Some(iterator) = next.clone() {
        tokio::time::sleep(BETWEEN_READS).await;
        let page = match client.get_records().shard_iterator(iterator).send().await {
            Ok(page) => page,
            // Throttled by the other readers of the shard.
            Err(error) if failures < 50 => {
                failures += 1;
                drop(error);
                continue;
            }
            Err(error) => {
                return Err(ServiceFailure::new(&error))
                    .with_context(|| format!("GetRecords on {shard} failed"));
            }
        };
        let caught_up = page.millis_behind_latest == Some(0) && page.records.is_empty();
        records.extend(page.records.into_iter().map(|record| Stored {
            sequence: record.sequence_number,
            key: record.partition_key.unwrap_or_default(),
        }));
        next = page.next_shard_iterator.filter(|_| !caught_up);
    }
    Ok(records)
}
