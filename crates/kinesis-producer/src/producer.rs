//! The handle that applications hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kinesis_core::aws::ClientSource;
use kinesis_core::{OutboundRecord, StreamRef};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::builder::ProducerBuilder;
use crate::config::{MAX_BATCH_RECORDS, MAX_DURATION, ProducerConfig};
use crate::driver::Command;
use crate::error::{PutError, RecordError};
use crate::intake::Intake;
use crate::receipt::{Receipt, Sent};
use crate::report::{CloseReport, FlushReport};

/// Writes records to one stream. Cheap to clone: clones share one buffer and one task.
///
/// Close it with [`close`](Self::close). When the last clone is dropped without that, its task ends at once: records
/// without an answer are lost, their receipts resolve with [`Abandoned`](crate::RecordErrorKind::Abandoned), and a
/// warning is logged.
///
/// # Order
/// Records are sent in the order in which they were put, and records of one key are never in two calls at a time. Within
/// one call the service promises no order, and a record that is refused on its own is sent again after later ones of its
/// key may have been stored.
///
/// # Duplicates
/// Delivery is at least once. An attempt whose answer is lost may have stored its records, and they are sent again.
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

/// What clones share.
pub(crate) struct Inner {
    pub(crate) stream: StreamRef,
    pub(crate) config: ProducerConfig,
    pub(crate) intake: Intake,
    pub(crate) admission: Arc<Admission>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) closed: watch::Receiver<Option<CloseReport>>,
    pub(crate) task: AbortHandle,
}

impl Producer {
    /// Starts a producer for `stream`. The clients carry the caller's AWS configuration: region, credentials,
    /// endpoint, HTTP client; see [`ClientSource`] for what they may be made from.
    ///
    /// It needs the permission `kinesis:PutRecords`, and `kinesis:ListShards` where it aggregates by shard.
    pub fn builder(clients: impl Into<ClientSource>, stream: StreamRef) -> ProducerBuilder {
        ProducerBuilder::new(clients.into(), stream)
    }

    pub(crate) fn from_inner(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &StreamRef {
        &self.0.stream
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &ProducerConfig {
        &self.0.config
    }

    /// Puts a record in the buffer, waiting while there is no room. When it returns the record is on its way; the
    /// [`Receipt`] resolves once it is stored or given up, and may be dropped.
    ///
    /// # Errors
    /// [`PutError::InvalidKey`] and [`PutError::TooLarge`] for a record that no attempt is worth, with compression
    /// [`PutError::TooLargeCompressed`] and [`PutError::InputTooLarge`] too; [`PutError::Closed`] once the producer is
    /// closing, also while this waits.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the record was not put; the place in the line for room is lost.
    pub async fn put(&self, record: OutboundRecord) -> Result<Receipt, PutError> {
        self.0.intake.check(&record)?;
        let grant = self.0.admission.enter(std::slice::from_ref(&record)).await?;
        let (pending, receipt) = self.0.intake.take(record)?;
        self.send(Command::Put { pending, room: grant.room() })?;
        grant.hand_over();
        Ok(receipt)
    }

    /// Like [`put`](Self::put), without waiting for room.
    ///
    /// # Errors
    /// As `put`, and [`PutError::Full`] when there is no room, or others wait for it. Keep a clone of the record to
    /// put it again: clones share the payload.
    pub fn try_put(&self, record: OutboundRecord) -> Result<Receipt, PutError> {
        self.0.intake.check(&record)?;
        let grant = self.0.admission.try_enter(std::slice::from_ref(&record))?;
        let (pending, receipt) = self.0.intake.take(record)?;
        self.send(Command::Put { pending, room: grant.room() })?;
        grant.hand_over();
        Ok(receipt)
    }

    /// Sends up to 500 records now, without waiting for others, and returns one result per record in their order.
    ///
    /// The records share calls and aggregates with what is in the buffer and are split over several calls where the
    /// limits ask for it. The batch enters the buffer as a whole; one that is larger than the buffer enters once it is empty.
    ///
    /// # Errors
    /// [`PutError::TooManyRecords`], or [`PutError::InvalidRecord`] for the first record that is invalid, or
    /// [`PutError::PartitionKeyMismatch`] with `partition_key_safety`; nothing was sent then. [`PutError::Closed`] once the producer is closing. What becomes of each record afterwards is in its
    /// own result.
    ///
    /// # Cancel safety
    /// Dropped while it waits for room or compresses, nothing was put; dropped later, all records are on their way.
    pub async fn put_batch(
        &self,
        records: Vec<OutboundRecord>,
    ) -> Result<Vec<Result<Sent, RecordError>>, PutError> {
        if records.len() > MAX_BATCH_RECORDS {
            return Err(PutError::TooManyRecords { records: records.len(), limit: MAX_BATCH_RECORDS });
        }
        self.0.intake.check_batch(&records)?;
        let grant = self.0.admission.enter(&records).await?;
        let (batch, receipts) = self.0.intake.take_batch(records).await?;
        self.send(Command::PutBatch { batch, room: grant.room() })?;
        grant.hand_over();
        Ok(join_all(receipts).await)
    }

    /// Sends everything that was put before, without waiting for more, and returns once each of those records is
    /// stored or given up: at the latest `delivery_timeout` plus `attempt_timeout` later.
    ///
    /// After the producer was closed there is nothing to flush, and the report is empty.
    ///
    /// # Cancel safety
    /// Dropping it has no effect on the records.
    pub async fn flush(&self) -> FlushReport {
        self.flush_until(None).await
    }

    /// Like [`flush`](Self::flush), but returns after `limit` at the latest; the report then says how many records
    /// have no answer yet. They stay on their way.
    pub async fn flush_within(&self, limit: Duration) -> FlushReport {
        self.flush_until(Some(deadline(limit))).await
    }

    async fn flush_until(&self, deadline: Option<Instant>) -> FlushReport {
        let (answer, report) = oneshot::channel();
        // Once the driver is gone, every record has had its answer.
        if self.send(Command::Flush { deadline, answer }).is_err() {
            return FlushReport::default();
        }
        report.await.unwrap_or_default()
    }

    /// Refuses further records, sends the rest without waiting for more, and ends the producer's task. All clones
    /// are closed with it; whoever waits in `put` gets [`PutError::Closed`].
    ///
    /// After `limit` the records without an answer are given up: the report hands them back, and their receipts
    /// resolve with [`Closed`](crate::RecordErrorKind::Closed). Of several closings under way the earliest end counts,
    /// and all get the same report, also later ones.
    ///
    /// # Cancel safety
    /// Once polled, the closing goes on when this is dropped, as long as some clone of the producer is kept.
    pub async fn close(&self, limit: Duration) -> CloseReport {
        self.0.admission.close();
        // Fails when the driver has ended, which is what is wanted.
        let _ = self.send(Command::Close { deadline: deadline(limit) });
        let mut closed = self.0.closed.clone();
        let report = closed.wait_for(Option::is_some).await;
        report.ok().and_then(|report| report.clone()).unwrap_or_default()
    }

    fn send(&self, command: Command) -> Result<(), PutError> {
        self.0.commands.send(command).map_err(|_| PutError::Closed)
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("stream", &self.0.stream)
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without effect on a task that has ended.
        self.task.abort();
    }
}

fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(MAX_DURATION)
}
