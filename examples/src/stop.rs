//! When an example stops.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Completes at the first SIGTERM (a deploy, `kill`) or SIGINT (ctrl-c). Both count from the moment of the call.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Completes at the first stop signal, or when `tally` has counted `enough` records.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn stop_signal_or(tally: Tally, enough: Option<u64>) -> io::Result<impl Future<Output = ()> + Send> {
    let signal = stop_signal()?;
    Ok(async move {
        tokio::select! {
            () = signal => {}
            () = tally.reached(enough) => {}
        }
    })
}

/// Counts records, so that an example can stop by itself. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally(watch::Sender<u64>);

impl Tally {
    /// Counts from zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `records` more.
    pub fn add(&self, records: usize) {
        self.0.send_modify(|seen| *seen += u64::try_from(records).unwrap_or(u64::MAX));
    }

    /// How many were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits until `enough` were counted; for ever if that is `None`. Cancel-safe.
    pub async fn reached(&self, enough: Option<u64>) {
        let Some(enough) = enough else { return std::future::pending().await };
        let mut seen = self.0.subscribe();
        // The sender lives in `self`, so this ends only when there were enough.
        let _ = seen.wait_for(|seen| *seen >= enough).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tally_is_reached_when_enough_were_counted() {
        let tally = Tally::new();
        let day = Duration::from_secs(86_400);
        tally.add(2);
        assert!(tokio::time::timeout(day, tally.reached(Some(3))).await.is_err());
        tally.clone().add(1);
        assert_eq!(tally.total(), 3);
        tally.reached(Some(3)).await;
        assert!(tokio::time::timeout(day, tally.reached(None)).await.is_err());
    }
}
