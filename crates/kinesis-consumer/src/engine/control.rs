//! What can interrupt the work on a shard: the lease is lost, or the shard is to be given back.

use std::time::Duration;

use kinesis_core::Ownership;
use tokio::sync::watch;
use tokio::time::Instant;

/// The wish to end the work, by a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drain {
    pub(crate) deadline: Instant,
}

/// Why work was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    Lost,
    Drain,
}

#[derive(Debug, Clone)]
pub(crate) struct Control {
    ownership: Ownership,
    drain: watch::Receiver<Option<Drain>>,
    lost_grace: Duration,
}

impl Control {
    pub(crate) fn new(
        ownership: Ownership,
        drain: watch::Receiver<Option<Drain>>,
        lost_grace: Duration,
    ) -> Self {
        Self { ownership, drain, lost_grace }
    }

    /// What has interrupted the work already; a lost lease goes before a drain.
    pub(crate) fn interrupted(&self) -> Option<Interrupt> {
        if self.ownership.is_lost() {
            return Some(Interrupt::Lost);
        }
        self.drain.borrow().is_some().then_some(Interrupt::Drain)
    }

    /// Waits for an interrupt. Cancel-safe.
    pub(crate) async fn interrupt(&self) -> Interrupt {
        let mut drain = self.drain.clone();
        let asked = async {
            if drain.wait_for(Option::is_some).await.is_err() {
                // Whoever could ask is gone, and with it this task before long.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = self.ownership.lost() => Interrupt::Lost,
            () = asked => Interrupt::Drain,
        }
    }

    /// Waits until work that was interrupted must be given up: the drain's deadline, or the grace after a lost lease.
    /// Cancel-safe.
    pub(crate) async fn give_up(&self) -> Interrupt {
        let mut drain = self.drain.clone();
        loop {
            let deadline = drain.borrow_and_update().map(|drain| drain.deadline);
            tokio::select! {
                biased;
                () = self.ownership.lost() => {
                    tokio::time::sleep(self.lost_grace).await;
                    return Interrupt::Lost;
                }
                // The deadline may be brought forward.
                Ok(()) = drain.changed() => {}
                () = until(deadline) => return Interrupt::Drain,
            }
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
