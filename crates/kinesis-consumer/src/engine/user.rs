//! Running what users wrote: panics are contained, what takes long is reported, what runs out of time is dropped.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt as _;
use kinesis_core::BoxError;
use tokio::time::Instant;

use super::shard::{Ending, ShardTask};
use super::supervisor::later;

/// The handler panicked; the panic is contained to its shard.
#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
struct Panicked(String);

impl ShardTask {
    /// Runs a handler or a callback: an interrupt that runs out of time drops it.
    pub(super) async fn guarded<T>(
        &self,
        call: &'static str,
        running: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<Result<T, BoxError>, Ending> {
        tokio::select! {
            biased;
            result = self.watched(call, running) => Ok(result),
            interrupt = self.control.give_up() => Err(Ending::GaveUp(interrupt)),
        }
    }

    /// Runs a handler or a callback: a panic becomes an error, and one that does not return is reported now and then.
    pub(super) async fn watched<T>(
        &self,
        call: &'static str,
        running: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        let started = Instant::now();
        let mut busy = self.busy(started);
        let mut stuck_at = later(self.cx.config.stuck_after);
        let mut running = pin!(contained(running));
        loop {
            let wake = busy.report_at().map_or(stuck_at, |at| at.min(stuck_at));
            match tokio::time::timeout_at(wake, &mut running).await {
                Ok(result) => return result,
                Err(_) if Instant::now() < stuck_at => busy.report(),
                Err(_) => {
                    stuck_at = later(self.cx.config.stuck_after);
                    let first = self.in_hand.as_ref().map(tracing::field::display);
                    // debug-ok: a duration
                    tracing::warn!(shard = %self.shard, call, first, running = ?started.elapsed(), "a handler has not returned for long");
                }
            }
        }
    }
}

async fn contained<T>(running: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match AssertUnwindSafe(running).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Panicked(text.unwrap_or_else(|| "no message".to_owned())).into())
        }
    }
}
