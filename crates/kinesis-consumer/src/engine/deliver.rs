//! Handing records to the handler: attempts, failures, dead letters.

use std::collections::VecDeque;
use std::sync::Arc;

use kinesis_core::processing::{FailureClass, HandlerError};
use kinesis_core::source::{SourceBatch, SourceRecord};
use kinesis_core::{Ack, BoxError, DeadLetter, DeadLetterReason, Position, RecordAck, RecordBatch};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_service::Service as _;

use super::offering::Offering;
use super::policy::{Attempts, Verdict};
use super::shard::{Ending, ShardTask};
use super::wire::{Notes, WireRecord};
use crate::door::{BatchService, HandlerService, RecordService};

/// A handler answered `Manual` without having taken the record's completion.
#[derive(Debug, thiserror::Error)]
#[error("the handler answered Manual without taking the record's completion")]
struct NoCompletion;

/// A completion was dropped unfinished.
#[derive(Debug, thiserror::Error)]
#[error("the record's completion was dropped unfinished")]
struct CompletionDropped;

/// What to do with the records after a failure.
pub(super) enum Next {
    Retry,
    DeadLetter,
}

impl ShardTask {
    /// Hands out everything that the source returned, batch by batch or record by record.
    pub(super) async fn deliver(&mut self, batch: SourceBatch) -> Result<(), Ending> {
        self.behind = batch.behind;
        self.metrics.behind(batch.behind);
        self.weigh(&batch);
        let mut raw = batch.records.into_iter();
        let mut records = VecDeque::new();
        loop {
            if records.is_empty() {
                self.decode_more(&mut raw, &mut records);
            }
            let Some(first) = records.front() else { return Ok(()) };
            let undecodable = first.failure.is_some();
            self.make_room().await?;
            match &self.handler.service {
                _ if undecodable => {
                    let record = records.pop_front().expect("it was looked at above");
                    self.offer_undecodable(record).await?;
                }
                HandlerService::Batches(service) => {
                    let service = service.clone();
                    let most = self.cx.config.max_batch_records;
                    let run = records.iter().take(most).take_while(|wire| wire.failure.is_none()).count();
                    let records = records.drain(..run).collect();
                    if self.progress.is_transactional() {
                        self.offer_for_transactions(&service, records).await?;
                    } else {
                        self.offer_batch(&service, records).await?;
                    }
                }
                HandlerService::Records(service) => {
                    let service = service.clone();
                    let record = records.pop_front().expect("it was looked at above");
                    let ticket = self.progress.deliver(record.record.position());
                    self.offer_record(&service, ticket, record).await?;
                }
            }
        }
    }

    /// Decodes as much as one call of the handler takes, so that a page of payloads that grow is never held decoded as a
    /// whole. What was delivered before is left out.
    fn decode_more(&self, raw: &mut impl Iterator<Item = SourceRecord>, records: &mut VecDeque<WireRecord>) {
        let most = match self.handler.service {
            HandlerService::Batches(_) => self.cx.config.max_batch_records,
            HandlerService::Records(_) => 1,
        };
        let range = self.tenure.lease().hash_range;
        let mut notes = Notes::default();
        let mut bytes = 0;
        while records.len() < most && bytes < self.cx.config.buffer_bytes {
            let Some(raw) = raw.next() else { break };
            let known = records.len();
            let of_one = self.cx.wire.decode(&self.shard, range, raw, records);
            notes.undecoded += of_one.undecoded;
            notes.filtered += of_one.filtered;
            while records.get(known).is_some_and(|wire| self.skip_stored(wire.record.position())) {
                records.remove(known);
            }
            bytes += records.range(known..).map(|wire| wire.record.data().len()).sum::<usize>();
        }
        self.metrics.noted(notes);
        if notes.filtered > 0 {
            tracing::warn!(shard = %self.shard, records = notes.filtered, "user records of another shard were left out, as range_filter says");
        }
    }

    /// Offers a batch until the handler has taken it, by itself or through the failure policy.
    async fn offer_batch(&mut self, service: &BatchService, mut left: Vec<WireRecord>) -> Result<(), Ending> {
        for wire in &left {
            self.progress.deliver(wire.record.position());
        }
        self.in_hand = left.first().map(|wire| wire.record.position().clone());
        let mut attempts = self.attempts();
        // Set when attempts are used up and nobody knows which record is bad: then they are offered one by one.
        let mut single = false;
        while !left.is_empty() {
            let size = if single { 1 } else { left.len() };
            let (first, last) = (left[0].record.position().clone(), left[size - 1].record.position().clone());
            let batch = self.batch_of(&left[..size]);
            let started = Instant::now();
            match self.guarded("process", call_batch(service.clone(), batch)).await? {
                Ok(ack) => {
                    self.progress.taken(&last);
                    match ack {
                        Ack::UpTo(position) => self.progress.finish_range(&first, &position.min(last)),
                        Ack::Manual => {}
                        _ => self.progress.finish_range(&first, &last),
                    }
                    let bytes = left.drain(..size).map(|wire| wire.wire_bytes).sum();
                    self.metrics.processed(size as u64, bytes, started.elapsed());
                    attempts = self.attempts();
                }
                Err(error) => {
                    let (class, failed_at) = describe(&*error);
                    let done = failed_at.as_ref().map_or(0, |at| count_before(&left[..size], at));
                    if done > 0 {
                        let last_done = left[done - 1].record.position();
                        self.progress.finish_range(&first, last_done);
                        self.progress.taken(last_done);
                        left.drain(..done);
                        attempts = self.attempts();
                    }
                    // What the handler finished through a checkpointer before it failed is not offered again.
                    let progress = &self.progress;
                    left.retain(|wire| !progress.is_finished_at(wire.record.position()));
                    self.in_hand = left.first().map(|wire| wire.record.position().clone());
                    if left.is_empty() {
                        let text = kinesis_core::error_chain(&*error);
                        tracing::warn!(shard = %self.shard, error = text, "a handler failed after it had finished its records");
                        break;
                    }
                    match self.after_failure(&mut attempts, class, &error).await? {
                        Next::Retry => {}
                        Next::DeadLetter if failed_at.is_none() && size > 1 => {
                            single = true;
                            attempts = self.attempts();
                        }
                        Next::DeadLetter => {
                            self.skip(&left.remove(0), class, &attempts, &error).await?;
                            attempts = self.attempts();
                        }
                    }
                }
            }
            self.in_hand = left.first().map(|wire| wire.record.position().clone());
        }
        self.in_hand = None;
        Ok(())
    }

    pub(super) fn batch_of(&self, records: &[WireRecord]) -> RecordBatch {
        let last = records.last().map(|wire| wire.record.position().clone());
        let records = records.iter().map(|wire| wire.record.clone()).collect();
        RecordBatch::builder(self.shard.clone(), self.tenure.fence(), records)
            .behind_latest(self.behind)
            .checkpointer(self.checkpointer(last))
            .ownership(self.tenure.ownership())
            .build()
    }

    /// Offers one record until the handler has taken it, by itself or through the failure policy.
    async fn offer_record(
        &mut self,
        service: &RecordService,
        ticket: u64,
        wire: WireRecord,
    ) -> Result<(), Ending> {
        let attempts = self.attempts();
        self.offer_record_again(service, ticket, wire, attempts).await
    }

    async fn offer_record_again(
        &mut self,
        service: &RecordService,
        ticket: u64,
        wire: WireRecord,
        mut attempts: Attempts,
    ) -> Result<(), Ending> {
        self.in_hand = Some(wire.record.position().clone());
        loop {
            let offering = Offering::new(Arc::clone(&self.progress));
            let record = wire.record.clone().with_completion(offering.ticket(ticket));
            let started = Instant::now();
            let error: BoxError = match self.guarded("process", call_record(service.clone(), record)).await? {
                Ok(RecordAck::Manual) if offering.is_claimed() => {
                    self.metrics.processed(1, wire.wire_bytes, started.elapsed());
                    if !self.progress.is_finished(ticket) {
                        self.manual.insert(ticket, wire);
                    }
                    break;
                }
                Ok(RecordAck::Manual) => NoCompletion.into(),
                Ok(_) => {
                    offering.retire(ticket);
                    self.progress.finish(ticket);
                    self.metrics.processed(1, wire.wire_bytes, started.elapsed());
                    break;
                }
                Err(error) => error,
            };
            offering.retire(ticket);
            if self.progress.is_finished(ticket) {
                let text = kinesis_core::error_chain(&*error);
                tracing::warn!(shard = %self.shard, error = text, "a handler failed after it had finished its records");
                break;
            }
            let (class, _) = describe(&*error);
            if let Next::DeadLetter = self.after_failure(&mut attempts, class, &error).await? {
                self.send_dead_letter(&wire, reason_of(class), &attempts, &error).await?;
                self.progress.finish(ticket);
                break;
            }
        }
        self.in_hand = None;
        Ok(())
    }

    /// Offers the records again whose completions were dropped: each is a transient failure of that record.
    pub(super) async fn redeliver_dropped(&mut self) -> Result<(), Ending> {
        let unfinished = &self.progress;
        self.manual.retain(|ticket, _| !unfinished.is_finished(*ticket));
        for ticket in self.progress.take_dropped() {
            let HandlerService::Records(service) = &self.handler.service else { continue };
            let service = service.clone();
            let Some(wire) = self.manual.remove(&ticket) else { continue };
            let mut attempts = self.attempts();
            let error: BoxError = CompletionDropped.into();
            self.in_hand = Some(wire.record.position().clone());
            match self.after_failure(&mut attempts, FailureClass::Transient, &error).await? {
                Next::Retry => self.offer_record_again(&service, ticket, wire, attempts).await?,
                Next::DeadLetter => {
                    let reason = DeadLetterReason::AttemptsExhausted;
                    self.send_dead_letter(&wire, reason, &attempts, &error).await?;
                    self.progress.finish(ticket);
                    self.in_hand = None;
                }
            }
        }
        Ok(())
    }

    /// A record whose payload could not be decoded never reaches the handler: it is a permanent failure.
    async fn offer_undecodable(&mut self, mut wire: WireRecord) -> Result<(), Ending> {
        let ticket = self.progress.deliver(wire.record.position());
        let failure = wire.failure.take().expect("the caller has looked");
        let position = wire.record.position();
        let error: BoxError = HandlerError::permanent(failure.error).at(position).into();
        let mut attempts = self.attempts();
        self.in_hand = Some(wire.record.position().clone());
        if !failure.skip {
            self.after_failure(&mut attempts, FailureClass::Permanent, &error).await?;
        }
        self.send_dead_letter(&wire, DeadLetterReason::Undecodable, &attempts, &error).await?;
        self.progress.finish(ticket);
        self.progress.taken(wire.record.position());
        self.in_hand = None;
        Ok(())
    }

    /// Counts, reports and waits as the failure policy says.
    pub(super) async fn after_failure(
        &mut self,
        attempts: &mut Attempts,
        class: FailureClass,
        error: &BoxError,
    ) -> Result<Next, Ending> {
        match attempts.failed(class) {
            Verdict::Retry { after, report } => {
                if report {
                    self.metrics.failed();
                    let text = kinesis_core::error_chain(&**error);
                    tracing::warn!(shard = %self.shard, error = text, attempts = attempts.failures(), "the handler keeps failing, trying again");
                }
                self.pause(after).await?;
                Ok(Next::Retry)
            }
            Verdict::DeadLetter => {
                self.metrics.failed();
                Ok(Next::DeadLetter)
            }
            Verdict::Exhausted => {
                self.metrics.failed();
                // The error is reported where the tenure ends; what is kept of it is its text and its place.
                Err(Ending::Exhausted(Exhausted(kinesis_core::error_chain(&**error)).into()))
            }
        }
    }

    /// The same for callbacks, which cannot be skipped.
    pub(super) async fn after_callback_failure(
        &mut self,
        callback: &'static str,
        attempts: &mut Attempts,
        error: BoxError,
    ) -> Result<(), Ending> {
        let (class, _) = describe(&*error);
        tracing::debug!(shard = %self.shard, callback, "a callback failed");
        match self.after_failure(attempts, class, &error).await? {
            Next::Retry => Ok(()),
            Next::DeadLetter => Err(Ending::Exhausted(error)),
        }
    }

    /// Leaves a record of a batch out: it is finished once the dead-letter service has it.
    pub(super) async fn skip(
        &mut self,
        bad: &WireRecord,
        class: FailureClass,
        attempts: &Attempts,
        error: &BoxError,
    ) -> Result<(), Ending> {
        self.send_dead_letter(bad, reason_of(class), attempts, error).await?;
        self.progress.finish_range(bad.record.position(), bad.record.position());
        self.progress.taken(bad.record.position());
        Ok(())
    }

    /// Gives a record to the dead-letter service; tries until that has accepted it, because the record counts as
    /// finished afterwards.
    async fn send_dead_letter(
        &mut self,
        wire: &WireRecord,
        reason: DeadLetterReason,
        attempts: &Attempts,
        error: &BoxError,
    ) -> Result<(), Ending> {
        let text = kinesis_core::error_chain(&**error);
        let letter = DeadLetter::new(wire.record.clone(), reason, attempts.failures(), text);
        let position = wire.record.position();
        let mut tries = self.attempts();
        loop {
            let Some(service) = self.cx.dead_letter() else {
                return Err(Ending::Exhausted(Exhausted(letter.error).into()));
            };
            let letter = letter.clone();
            match self.guarded("dead_letter", service.oneshot(letter)).await? {
                Ok(()) => {
                    tracing::warn!(shard = %self.shard, %position, "a record was given to the dead-letter service");
                    return Ok(());
                }
                Err(error) => {
                    let text = kinesis_core::error_chain(&*error);
                    tracing::warn!(shard = %self.shard, %position, error = text, "the dead-letter service failed, trying again");
                    self.pause(tries.delay()).await?;
                }
            }
        }
    }
}

/// The text of the error that ended a tenure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Exhausted(String);

pub(super) async fn call_batch(mut service: BatchService, batch: RecordBatch) -> Result<Ack, BoxError> {
    service.ready().await?.call(batch).await
}

async fn call_record(
    mut service: RecordService,
    record: kinesis_core::Record,
) -> Result<RecordAck, BoxError> {
    service.ready().await?.call(record).await
}

/// The class of an error, and where the handler says that it stopped.
pub(super) fn describe(error: &(dyn std::error::Error + 'static)) -> (FailureClass, Option<Position>) {
    match HandlerError::find(error) {
        Some(found) => (found.class(), found.first_unfinished().cloned()),
        None => (FailureClass::Transient, None),
    }
}

fn count_before(records: &[WireRecord], position: &Position) -> usize {
    records.partition_point(|wire| wire.record.position() < position).min(records.len() - 1)
}

fn reason_of(class: FailureClass) -> DeadLetterReason {
    match class {
        FailureClass::Permanent => DeadLetterReason::PermanentFailure,
        _ => DeadLetterReason::AttemptsExhausted,
    }
}
