//! A small item beside the leases of a table of our own: its counter moves when leases of a stream become free, and each
//! worker reads it instead of all rows.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use kinesis_core::lease::{HintRequest, LeaseHints, LeaseWrite, Outcome, StoreError};
use kinesis_core::{ApplicationName, StreamRef};
use tokio::time::{Instant, sleep_until, timeout};

use super::DynamoDbStore;
use super::item::{ENTITY_TYPE, KEY, number, text};
use super::layout::TableLayout;

/// The entity type of the item, by which a scan tells it from a lease.
const HINT: &str = "HINT";
const COUNTER: &str = "kinesisRs_hints";

/// How long writes that are done wait for their hint to be written. It is worth less than their results.
const LIMIT: Duration = Duration::from_millis(500);

impl DynamoDbStore {
    /// Whether the table may have an item that is no lease: where the KCL reads every item as a lease it may not.
    pub(super) fn has_hints(&self) -> bool {
        self.settings.hints && self.settings.keys.layout == TableLayout::Native
    }

    /// Moves the counter of each stream of which a lease has become free: once, however many they are.
    pub(super) async fn give_hints(&self, writes: &[LeaseWrite], results: &[Result<Outcome, StoreError>]) {
        if !self.has_hints() {
            return;
        }
        let done = writes.iter().zip(results);
        let freed = done.filter(|(write, result)| write.frees() && matches!(result, Ok(Outcome::Applied(_))));
        let streams: BTreeSet<_> =
            freed.map(|(write, _)| (write.key.application(), write.key.stream())).collect();
        for (application, stream) in streams {
            let key = self.settings.keys.hint(application, stream);
            let update = self
                .client
                .update_item()
                .table_name(&self.settings.table)
                .key(KEY, text(&key))
                .update_expression("SET #t = :t ADD #c :one")
                .expression_attribute_names("#t", ENTITY_TYPE)
                .expression_attribute_names("#c", COUNTER)
                .expression_attribute_values(":t", text(HINT))
                .expression_attribute_values(":one", number(&1));
            match timeout(LIMIT, Box::pin(update.send())).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    let error = self.failed(&error);
                    tracing::debug!(error = %error, "a hint for other workers cannot be written");
                }
                Err(_) => tracing::debug!("a hint for other workers takes too long"),
            }
        }
    }

    async fn read_hint(
        &self,
        application: &ApplicationName,
        stream: &StreamRef,
    ) -> Result<Option<String>, StoreError> {
        let key = self.settings.keys.hint(application, stream);
        let call = self.client.get_item().table_name(&self.settings.table).key(KEY, text(&key));
        let call = call.consistent_read(self.settings.consistent_reads);
        let answer = Box::pin(call.send()).await.map_err(|error| self.failed(&error))?;
        let counter = answer.item.and_then(|mut item| item.remove(COUNTER));
        Ok(counter.and_then(|counter| match counter {
            AttributeValue::N(digits) => Some(digits),
            _ => None,
        }))
    }
}

/// Reads the counter now and then.
#[derive(Debug)]
pub(super) struct Hints {
    store: DynamoDbStore,
    request: HintRequest,
    /// What it was; `None` before it was read.
    last: Option<Option<String>>,
    next: Option<Instant>,
}

impl Hints {
    pub(super) fn new(store: DynamoDbStore, request: HintRequest) -> Self {
        Self { store, request, last: None, next: None }
    }
}

#[async_trait]
impl LeaseHints for Hints {
    async fn next(&mut self) -> Result<(), StoreError> {
        loop {
            if let Some(next) = self.next {
                sleep_until(next).await;
            }
            let found = self.store.read_hint(&self.request.application, &self.request.stream).await;
            // Workers that started together should not go on reading at the same moments.
            self.next = Some(Instant::now() + self.request.interval.mul_f64(0.9 + fastrand::f64() * 0.1));
            let found = found?;
            let has_moved = self.last.as_ref().is_some_and(|last| *last != found);
            self.last = Some(found);
            if has_moved {
                return Ok(());
            }
        }
    }
}
