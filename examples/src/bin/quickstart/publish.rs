//! Publishing: through the producer, in parts, counting what the service returned a sequence number for.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use aws_config::SdkConfig;
use kinesis_core::{OutboundRecord, StreamRef};
use kinesis_producer::Producer;
use tokio::task::JoinHandle;

/// Retries of a record before it counts as failed. High: the demo writes faster than four shards take.
const RETRIES: u32 = 100;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    producer: Producer,
    records: Arc<[OutboundRecord]>,
    published: Arc<AtomicUsize>,
}

impl Publisher {
    pub(crate) fn new(
        config: &SdkConfig,
        stream: &str,
        records: Vec<OutboundRecord>,
    ) -> anyhow::Result<Self> {
        let producer = Producer::builder(config, StreamRef::new(stream)?).max_retries(RETRIES).build()?;
        Ok(Self { producer, records: records.into(), published: Arc::default() })
    }

    /// How many records the service has stored so far.
    pub(crate) fn published(&self) -> usize {
        self.published.load(Ordering::Relaxed)
    }

    /// Publishes a part in the background; the task returns the sequence numbers.
    pub(crate) fn start(&self, part: Range<usize>) -> JoinHandle<anyhow::Result<BTreeSet<String>>> {
        let publisher = self.clone();
        tokio::spawn(async move { publisher.publish(part).await })
    }

    async fn publish(&self, part: Range<usize>) -> anyhow::Result<BTreeSet<String>> {
        let mut receipts = Vec::with_capacity(part.len());
        for record in &self.records[part] {
            let receipt = self.producer.put(record.clone()).await.context("a record was not taken")?;
            let published = Arc::clone(&self.published);
            receipts.push(async move {
                let sent = receipt.await.context("a record was not stored")?;
                published.fetch_add(1, Ordering::Relaxed);
                anyhow::Ok(sent.sequence.to_string())
            });
        }
        let mut sequences = BTreeSet::new();
        for receipt in receipts {
            sequences.insert(receipt.await?);
        }
        Ok(sequences)
    }

    pub(crate) async fn close(&self) {
        let _report = self.producer.close(CLOSE_TIMEOUT).await;
    }
}
