//! Handing out batches whose position the handler's own transactions move: the row decides what is finished, whatever
//! a call returned.

use kinesis_core::BoxError;
use kinesis_core::error_chain;
use kinesis_core::processing::CheckpointError;
use tokio::time::{Instant, timeout};

use super::control::Interrupt;
use super::deliver::{Next, call_batch, describe};
use super::shard::{Ending, ShardTask};
use super::wire::WireRecord;
use crate::door::BatchService;

/// The handler says that it is done, but nothing of the batch is stored.
#[derive(Debug, thiserror::Error)]
#[error("the handler returned without having moved the checkpoint in a transaction that was committed")]
struct NotMoved;

impl ShardTask {
    /// Offers a batch until transactions have moved the stored position past it, or the failure policy ends it.
    pub(super) async fn offer_for_transactions(
        &mut self,
        service: &BatchService,
        mut left: Vec<WireRecord>,
    ) -> Result<(), Ending> {
        for wire in &left {
            self.progress.deliver(wire.record.position());
        }
        let mut attempts = self.attempts();
        // Set when attempts are used up: a transaction was rolled back whole, so nobody knows which record is bad.
        let mut single = false;
        while let Some(first) = left.first() {
            self.in_hand = Some(first.record.position().clone());
            let size = if single { 1 } else { left.len() };
            let batch = self.batch_of(&left[..size]);
            let started = Instant::now();
            let result = self.guarded("process", call_batch(service.clone(), batch)).await?;
            self.read_back().await?;
            let progress = &self.progress;
            let done = left.iter().take_while(|wire| progress.is_finished_at(wire.record.position())).count();
            if done > 0 {
                self.progress.taken(left[done - 1].record.position());
                let bytes = left.drain(..done).map(|wire| wire.wire_bytes).sum();
                self.metrics.processed(done as u64, bytes, started.elapsed());
                attempts = self.attempts();
            }
            let error: BoxError = match result {
                Ok(_) if done > 0 => continue,
                Ok(_) => NotMoved.into(),
                Err(error) if left.is_empty() => {
                    let text = error_chain(&*error);
                    tracing::warn!(shard = %self.shard, error = text, "a handler failed after its transaction was committed");
                    break;
                }
                Err(error) => error,
            };
            let (class, _) = describe(&*error);
            match self.after_failure(&mut attempts, class, &error).await? {
                Next::Retry => {}
                Next::DeadLetter if size > 1 => {
                    single = true;
                    attempts = self.attempts();
                }
                Next::DeadLetter => {
                    self.skip(&left.remove(0), class, &attempts, &error).await?;
                    attempts = self.attempts();
                }
            }
        }
        self.in_hand = None;
        Ok(())
    }

    /// Reads the position back until the store answers: without it nobody knows whether the records were finished.
    async fn read_back(&mut self) -> Result<(), Ending> {
        let limit = self.cx.config.lease.call_timeout();
        let mut backoff = self.backoff();
        loop {
            let error = match timeout(limit, self.progress.store()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(CheckpointError::LeaseLost)) => return Err(Ending::Interrupted(Interrupt::Lost)),
                Ok(Err(error)) => error_chain(&error),
                Err(_) => "the lease store did not answer in time".to_owned(),
            };
            tracing::warn!(shard = %self.shard, error, "the stored position cannot be read, trying again");
            self.pause(backoff.next_delay()).await?;
        }
    }
}
