//! Whether a lease is still ours: readable at any time, and awaitable.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The reader's side: carried by every batch, cheap to clone.
///
/// A handler that does slow work outside of the engine (a long query, a call to another system) looks here before
/// it makes its effects final. A fence that another system can check is [`RecordBatch::fence`](crate::RecordBatch::fence).
#[derive(Debug, Clone)]
pub struct Ownership(Arc<State>);

#[derive(Debug, Default)]
struct State {
    lost: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// Wakers by ticket; a waiter that goes away takes its waker with it.
#[derive(Debug, Default)]
struct Waiting {
    next_ticket: u64,
    wakers: Vec<(u64, Waker)>,
}

impl State {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock was held leaves at worst a stale waker behind.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's side; dropping it means that the lease is no longer held.
#[derive(Debug)]
pub struct OwnershipGuard(Arc<State>);

struct Ticket<'a> {
    state: &'a State,
    number: Option<u64>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.state.waiting().wakers.retain(|(ticket, _)| *ticket != number);
        }
    }
}

impl Ownership {
    /// A new ownership, held until the guard says otherwise or is dropped.
    #[must_use]
    pub fn new() -> (OwnershipGuard, Self) {
        let state = Arc::new(State::default());
        (OwnershipGuard(Arc::clone(&state)), Self(state))
    }

    /// An ownership that nobody can lose: for batches that come without a lease.
    #[must_use]
    pub fn unowned() -> Self {
        Self(Arc::default())
    }

    /// Whether the lease was lost or given back. Once true it stays true.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }

    /// Waits until the lease is lost or given back.
    ///
    /// Cancel-safe: it holds nothing but a waker.
    pub async fn lost(&self) {
        let mut ticket = Ticket { state: &self.0, number: None };
        poll_fn(|context| {
            let mut waiting = self.0.waiting();
            if self.is_lost() {
                return Poll::Ready(());
            }
            let number = *ticket.number.get_or_insert_with(|| {
                waiting.next_ticket += 1;
                waiting.next_ticket
            });
            match waiting.wakers.iter_mut().find(|(ticket, _)| *ticket == number) {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => waiting.wakers.push((number, context.waker().clone())),
            }
            Poll::Pending
        })
        .await;
    }
}

impl OwnershipGuard {
    /// Declares the lease lost and wakes everyone who waits for it.
    pub fn lose(&self) {
        let wakers = {
            let mut waiting = self.0.waiting();
            self.0.lost.store(true, Ordering::Release);
            std::mem::take(&mut waiting.wakers)
        };
        for (_, waker) in wakers {
            waker.wake();
        }
    }
}

impl Drop for OwnershipGuard {
    fn drop(&mut self) {
        self.lose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn losing_wakes_every_waiter_and_stays() {
        let (guard, ownership) = Ownership::new();
        assert!(!ownership.is_lost());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let ownership = ownership.clone();
                tokio::spawn(async move { ownership.lost().await })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(guard);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert!(ownership.is_lost());
        ownership.lost().await;
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_leaves_no_waker() {
        let (guard, ownership) = Ownership::new();
        for _ in 0..10 {
            tokio::select! {
                biased;
                () = ownership.lost() => unreachable!("still held"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(guard.0.waiting().wakers.len(), 0);
    }
}
