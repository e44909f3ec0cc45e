//! The queue between the lease task, which must never wait for the consumer, and the consumer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinesis_core::lease::{LeaseKey, TenureToken};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{LeaseEvent, LeaseWarning};

/// The most warnings that wait to be read; older ones make room.
const WARNINGS: usize = 64;

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    receiver_gone: CancellationToken,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<LeaseEvent>,
    closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Each change of the queue is complete in itself.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a coordinator tells its consumer, in order.
///
/// Bounded: for each lease at most the events of one tenure that was read and one that was not are kept, because a
/// tenure that ended before anybody read of its beginning leaves no trace; of warnings the newest 64 are kept.
/// Dropping it makes the coordinator release everything.
#[derive(Debug)]
pub struct LeaseEvents(Arc<Shared>);

impl LeaseEvents {
    /// The next event; `None` once the coordinator is gone.
    ///
    /// Cancel-safe: an event is either returned or kept.
    pub async fn next(&mut self) -> Option<LeaseEvent> {
        loop {
            {
                let mut queue = self.0.queue();
                if let Some(event) = queue.events.pop_front() {
                    return Some(event);
                }
                if queue.closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }
}

impl Drop for LeaseEvents {
    fn drop(&mut self) {
        self.0.receiver_gone.cancel();
    }
}

/// The lease task's end.
#[derive(Debug)]
pub(super) struct EventSender(Arc<Shared>);

impl EventSender {
    pub(super) fn channel() -> (Self, LeaseEvents) {
        let shared = Arc::new(Shared::default());
        (Self(Arc::clone(&shared)), LeaseEvents(shared))
    }

    pub(super) fn receiver_gone(&self) -> CancellationToken {
        self.0.receiver_gone.clone()
    }

    pub(super) fn send(&self, event: LeaseEvent) {
        let mut queue = self.0.queue();
        match &event {
            LeaseEvent::Lost { key, token, .. } => {
                if queue.forget(key, *token) {
                    return;
                }
            }
            LeaseEvent::Warning(_) => queue.make_room_for_warning(),
            LeaseEvent::Acquired(_) | LeaseEvent::HandOver { .. } | LeaseEvent::RegimeChanged(_) => {}
        }
        queue.events.push_back(event);
        drop(queue);
        self.0.changed.notify_one();
    }

    pub(super) fn warn(&self, warning: LeaseWarning) {
        self.send(LeaseEvent::Warning(warning));
    }

    /// The tenure ended: what is still to be read of it is of no use.
    pub(super) fn ended(&self, key: &LeaseKey, token: TenureToken) {
        self.0.queue().forget(key, token);
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.changed.notify_one();
    }
}

impl Queue {
    /// Removes what is to be read of a tenure, and returns whether its beginning was among that.
    fn forget(&mut self, key: &LeaseKey, token: TenureToken) -> bool {
        let mut unread = false;
        self.events.retain(|event| match event {
            LeaseEvent::Acquired(tenure) if tenure.key() == key && tenure.token() == token => {
                unread = true;
                false
            }
            LeaseEvent::HandOver { key: of, token: by, .. } => !(of == key && *by == token),
            _ => true,
        });
        unread
    }

    fn make_room_for_warning(&mut self) {
        let is_warning = |event: &LeaseEvent| matches!(event, LeaseEvent::Warning(_));
        if self.events.iter().filter(|event| is_warning(event)).count() >= WARNINGS
            && let Some(oldest) = self.events.iter().position(is_warning)
        {
            self.events.remove(oldest);
        }
    }
}
