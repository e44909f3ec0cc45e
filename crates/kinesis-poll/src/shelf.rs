//! What was read and not yet taken: between the task that reads and its caller.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kinesis_core::source::{SourceError, SourceEvent};
use tokio::sync::Notify;

use crate::ahead::Held;
use crate::budget::Reservation;

/// What a reader hands out.
pub(crate) type Item = Result<SourceEvent, SourceError>;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Shelved>,
    bytes: u64,
    wanted: bool,
    taker: Option<Waker>,
    closed: bool,
}

#[derive(Debug)]
struct Shelved {
    item: Item,
    bytes: u64,
    /// Given back when the item is taken.
    _reserved: Option<Reservation>,
}

impl Shelf {
    /// What is held, and whether more is wanted.
    pub(crate) fn held(&self) -> Held {
        let state = self.lock();
        Held { events: state.items.len(), bytes: state.bytes, wanted: state.wanted }
    }

    /// Waits until something was taken or is wanted. A change before the call counts as well. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds an item of this many bytes. Of several items that only say how far reading is, the last one stays.
    pub(crate) fn put(&self, item: Item, bytes: u64, reserved: Option<Reservation>) {
        let is_progress = |item: &Item| matches!(item, Ok(SourceEvent::Progress { .. }));
        let taker = {
            let mut state = self.lock();
            if is_progress(&item) {
                state.items.pop_back_if(|last| is_progress(&last.item));
            }
            state.items.push_back(Shelved { item, bytes, _reserved: reserved });
            state.bytes += bytes;
            state.wanted = false;
            state.taker.take()
        };
        if let Some(taker) = taker {
            taker.wake();
        }
    }

    /// Nothing is added any more.
    pub(crate) fn close(&self) {
        let taker = {
            let mut state = self.lock();
            state.closed = true;
            state.taker.take()
        };
        if let Some(taker) = taker {
            taker.wake();
        }
    }

    /// Takes the oldest item; `None` once it is closed and empty.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let taken = {
            let mut state = self.lock();
            match state.items.pop_front() {
                Some(taken) => {
                    state.bytes -= taken.bytes;
                    Some(taken)
                }
                None if state.closed => return Poll::Ready(None),
                None => {
                    state.wanted = true;
                    state.taker = Some(cx.waker().clone());
                    None
                }
            }
        };
        self.changed.notify_one();
        match taken {
            // Unlocked: the reservation wakes other readers.
            Some(Shelved { item, .. }) => Poll::Ready(Some(item)),
            None => Poll::Pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
