//! How a tenure ends: one callback at most, then nothing more is read, what is finished is stored, the lease is given
//! back. In this order, because the next owner must not read while this one does.

use std::sync::Arc;

use kinesis_core::directory::ShardInfo;
use kinesis_core::error_chain;
use kinesis_core::lease::CoolDown;
use kinesis_core::processing::CheckpointError;
use kinesis_lease::{LeaseError, Tenure};
use tokio::time::{Instant, timeout};

use super::control::Interrupt;
use super::shard::{Ending, Finished, ShardTask};
use crate::door::Lifecycle;
use crate::{ConsumerConfig, OnExhausted, ShardOutcome, ShardReport};

/// The rest of a shard that is given back because it cannot be processed. Progress breaks the row of failures.
pub(super) fn cool_down(config: &ConsumerConfig, tenure: &Tenure, progressed: bool) -> CoolDown {
    let before = tenure.lease().cool_down.filter(|_| !progressed).map_or(0, |before| before.failures);
    CoolDown::new(config.cool_down, before.saturating_add(1))
}

impl ShardTask {
    pub(super) async fn end(&mut self, ending: Ending) -> Finished {
        let mut stop = None;
        let outcome = match ending {
            Ending::Interrupted(Interrupt::Lost) | Ending::GaveUp(Interrupt::Lost) => self.end_lost().await,
            Ending::Interrupted(Interrupt::Drain) => self.give_back(None, true).await,
            Ending::GaveUp(Interrupt::Drain) => self.give_back(None, false).await,
            Ending::ShardEnded(children) => self.end_shard(&children).await,
            Ending::Exhausted(error) => {
                let text = error_chain(&*error);
                tracing::error!(shard = %self.shard, error = text, on_exhausted = self.cx.config.on_exhausted.name(), "the handler failed for good");
                match self.cx.config.on_exhausted {
                    OnExhausted::HoldIdle => self.hold_idle().await,
                    OnExhausted::ReleaseLease => self.give_back(Some(self.cool_down()), false).await,
                    OnExhausted::StopWorker => {
                        stop = Some(error);
                        self.give_back(None, false).await
                    }
                }
                .or_failed(text)
            }
            Ending::Unreadable(error) => {
                let text = error_chain(&error);
                tracing::error!(shard = %self.shard, error = text, "the shard cannot be read, giving it back");
                self.give_back(Some(self.cool_down()), false).await.or_failed(text)
            }
        };
        let report = ShardReport {
            shard: self.shard.clone(),
            outcome,
            stored: self.progress.stored(),
            unfinished: self.progress.unfinished(),
            reader_closed: self.reader_closed,
        };
        tracing::debug!(shard = %self.shard, outcome = report.outcome.name(), unfinished = report.unfinished, "tenure ended");
        Finished { report, stop }
    }

    fn cool_down(&self) -> CoolDown {
        let stored = self.progress.stored();
        let progressed = stored.as_ref() != self.tenure.lease().checkpoint.position();
        cool_down(&self.cx.config, &self.tenure, progressed)
    }

    /// The callbacks, unless the one that ends the tenure was called before.
    fn last_callback(&mut self) -> Option<Arc<dyn Lifecycle>> {
        let lifecycle = self.handler.lifecycle.clone()?;
        (!std::mem::replace(&mut self.ending_called, true)).then_some(lifecycle)
    }

    async fn end_lost(&mut self) -> ShardOutcome {
        self.progress.close();
        self.close_reader().await;
        if let Some(lifecycle) = self.last_callback() {
            let call = self.watched("lease_lost", async {
                lifecycle.lease_lost().await;
                Ok(())
            });
            match timeout(self.cx.config.close_timeout, call).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(shard = %self.shard, error = error_chain(&*error), "the callback lease_lost failed");
                }
                Err(_) => {
                    tracing::warn!(shard = %self.shard, "the callback lease_lost did not return in time");
                }
            }
        }
        ShardOutcome::LeaseLost
    }

    /// Gives the lease back, with everything stored that is finished. With `wait` handlers get the time that there is
    /// to finish what they have.
    async fn give_back(&mut self, cool_down: Option<CoolDown>, wait: bool) -> ShardOutcome {
        let mut outcome = ShardOutcome::Clean;
        if let Some(lifecycle) = self.last_callback() {
            if self.shutdown_requested(&*lifecycle).await.is_err() {
                outcome = ShardOutcome::GaveUp;
            }
        } else if wait {
            tokio::select! {
                biased;
                () = self.progress.settled(self.in_hand.as_ref()) => {}
                _ = self.control.give_up() => {}
            }
        }
        if self.progress.unfinished() > 0 || !wait {
            outcome = ShardOutcome::GaveUp;
        }
        self.close_reader().await;
        let stored = self.store_finally().await;
        self.progress.close();
        if let Err(error) = stored {
            outcome = match error {
                CheckpointError::LeaseLost | CheckpointError::Closed => ShardOutcome::LeaseLost,
                other => ShardOutcome::NotStored { error: error_chain(&other) },
            };
        }
        match timeout(self.cx.config.close_timeout, self.tenure.release(cool_down)).await {
            Ok(Ok(())) => outcome,
            Ok(Err(LeaseError::Lost | LeaseError::Closed)) => ShardOutcome::LeaseLost,
            Ok(Err(error)) => ShardOutcome::NotStored { error: error_chain(&error) },
            Err(_) => ShardOutcome::NotStored { error: "the release did not return in time".to_owned() },
        }
    }

    /// The last chance to finish and store something: until the deadline, and a closing step's time at least.
    async fn shutdown_requested(&self, lifecycle: &dyn Lifecycle) -> Result<(), TooLate> {
        let least = Instant::now() + self.cx.config.close_timeout;
        let limit = async {
            // A shard that is given back because it cannot be processed has no deadline.
            if self.control.interrupted().is_none() || self.control.give_up().await == Interrupt::Drain {
                tokio::time::sleep_until(least).await;
            }
        };
        let checkpointer = self.checkpointer(self.progress.last_taken());
        tokio::select! {
            biased;
            result = self.watched("shutdown_requested", lifecycle.shutdown_requested(&checkpointer)) => {
                if let Err(error) = result {
                    tracing::warn!(shard = %self.shard, error = error_chain(&*error), "the callback shutdown_requested failed");
                }
                Ok(())
            }
            () = limit => {
                tracing::warn!(shard = %self.shard, "the callback shutdown_requested did not return in time");
                Err(TooLate)
            }
        }
    }

    /// Tries to store the position until it works, the lease is lost, or `close_timeout` is over.
    async fn store_finally(&mut self) -> Result<(), CheckpointError> {
        let deadline = Instant::now() + self.cx.config.close_timeout;
        let mut backoff = self.backoff();
        loop {
            let error = match tokio::time::timeout_at(deadline, self.progress.store()).await {
                Ok(Err(error)) if error.is_retryable() => error,
                Ok(result) => return result,
                Err(_) => CheckpointError::Store("the lease store did not answer in time".into()),
            };
            let delay = backoff.next_delay();
            if Instant::now() + delay >= deadline {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
    }

    async fn end_shard(&mut self, children: &[ShardInfo]) -> ShardOutcome {
        if self.control.interrupted() == Some(Interrupt::Lost) {
            return self.end_lost().await;
        }
        if let Some(lifecycle) = self.last_callback()
            && let Err(ending) = self.shard_ended(&*lifecycle).await
        {
            return match ending {
                Ending::Exhausted(error) => {
                    // The records are finished; only the callback is not. The end is kept back, and with it the
                    // children, until somebody looks.
                    let text = error_chain(&*error);
                    tracing::error!(shard = %self.shard, error = text, "the callback shard_ended failed for good");
                    self.hold_idle().await.or_failed(text)
                }
                Ending::Interrupted(Interrupt::Lost) | Ending::GaveUp(Interrupt::Lost) => {
                    self.end_lost().await
                }
                // The next owner reads the end of the shard once more.
                _ => self.give_back(None, false).await,
            };
        }
        self.progress.close();
        self.close_reader().await;
        let mut backoff = self.backoff();
        loop {
            let error = tokio::select! {
                biased;
                result = self.tenure.end_shard(children) => match result {
                    Ok(()) => return ShardOutcome::ShardEnded,
                    Err(LeaseError::Lost | LeaseError::Closed) => return ShardOutcome::LeaseLost,
                    Err(error) => error_chain(&error),
                },
                // The lease task goes on with it for as long as it can; if it fails, the next owner reads the end of
                // the shard once more.
                _ = self.control.give_up() => {
                    let error = "the end of the shard was not stored in time".to_owned();
                    return ShardOutcome::NotStored { error };
                }
            };
            tracing::warn!(shard = %self.shard, error, "the end of the shard could not be stored, trying again");
            if self.pause(backoff.next_delay()).await.is_err() {
                let _ = timeout(self.cx.config.close_timeout, self.tenure.release(None)).await;
                return ShardOutcome::NotStored { error };
            }
        }
    }

    /// Calls the callback until it works.
    async fn shard_ended(&mut self, lifecycle: &dyn Lifecycle) -> Result<(), Ending> {
        let checkpointer = self.checkpointer(self.progress.last_taken());
        let mut attempts = self.attempts();
        loop {
            match self.guarded("shard_ended", lifecycle.shard_ended(&checkpointer)).await? {
                Ok(()) => return Ok(()),
                Err(error) => self.after_callback_failure("shard_ended", &mut attempts, error).await?,
            }
        }
    }

    /// Keeps the lease and processes nothing, until the shard is to be given back.
    async fn hold_idle(&mut self) -> ShardOutcome {
        self.close_reader().await;
        match self.control.interrupt().await {
            Interrupt::Lost => self.end_lost().await,
            Interrupt::Drain => self.give_back(None, false).await,
        }
    }
}

/// A callback was dropped because it took too long.
struct TooLate;

impl ShardOutcome {
    /// A failure of the handler goes before a clean ending.
    fn or_failed(self, error: String) -> Self {
        match self {
            Self::Clean | Self::GaveUp => Self::Failed { error },
            other => other,
        }
    }
}
