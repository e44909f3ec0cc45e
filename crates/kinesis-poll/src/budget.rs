//! The bytes that all readers of a source may hold together.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Why bytes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// To read ahead: waits for its turn.
    Ahead,
    /// A caller waits for this page and its reader holds nothing. It never waits for callers of other readers, who may
    /// take their time: one such page at a time may exceed the budget.
    Demand,
}

/// A budget of bytes, first come first served. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Mutex<State>>);

struct State {
    total: u64,
    used: u64,
    /// The one page beyond the budget is under way or held.
    beyond: bool,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    bytes: u64,
    need: Need,
    granted: oneshot::Sender<Reservation>,
}

impl Budget {
    pub(crate) fn new(total: u64) -> Self {
        Self(Arc::new(Mutex::new(State { total, used: 0, beyond: false, waiting: VecDeque::new() })))
    }

    /// Waits for `bytes`, or for all of the budget if it is smaller. Dropping the future gives up the place in the
    /// queue.
    pub(crate) fn reserve(&self, bytes: u64, need: Need) -> Reserving {
        let (granted, receiver) = oneshot::channel();
        self.lock().waiting.push_back(Waiter { bytes, need, granted });
        self.grant();
        Reserving { budget: self.clone(), receiver: Some(receiver) }
    }

    /// The bytes that are reserved; more than the total while pages turned out larger than expected.
    #[cfg(test)]
    fn used(&self) -> u64 {
        self.lock().used
    }

    fn grant(&self) {
        loop {
            let Some((waiter, beyond)) = self.lock().next() else { return };
            let bytes = waiter.bytes;
            let reservation = Reservation { budget: self.clone(), bytes, beyond };
            // Unlocked: if nobody waits any more, the reservation comes back through its drop.
            drop(waiter.granted.send(reservation));
        }
    }

    fn give_back(&self, bytes: u64, beyond: bool) {
        {
            let mut state = self.lock();
            state.used -= bytes;
            state.beyond &= !beyond;
        }
        self.grant();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the next waiter that can go on out of the queue, its bytes counted.
    fn next(&mut self) -> Option<(Waiter, bool)> {
        self.waiting.retain(|waiter| !waiter.granted.is_closed());
        let fits =
            |state: &Self, bytes: u64| state.used.saturating_add(bytes.min(state.total)) <= state.total;
        let first = self.waiting.front()?;
        // Whoever needs much is not overtaken by those that need little.
        let (place, beyond) = if fits(self, first.bytes) {
            (0, false)
        } else if self.beyond {
            return None;
        } else {
            (self.waiting.iter().position(|waiter| waiter.need == Need::Demand)?, true)
        };
        let waiter = self.waiting.remove(place)?;
        self.used += waiter.bytes;
        self.beyond |= beyond;
        Some((waiter, beyond))
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "Budget({} of {} bytes, {} waiting)", state.used, state.total, state.waiting.len())
    }
}

/// Waits for bytes.
pub(crate) struct Reserving {
    budget: Budget,
    receiver: Option<oneshot::Receiver<Reservation>>,
}

impl Future for Reserving {
    type Output = Reservation;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reservation> {
        let Some(receiver) = &mut self.receiver else { return Poll::Pending };
        match Pin::new(receiver).poll(cx) {
            Poll::Ready(Ok(reservation)) => {
                self.receiver = None;
                Poll::Ready(reservation)
            }
            // The sender is dropped only after it sent, or after this side had closed.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            drop(receiver);
            // It may have stood before others that can go on without it.
            self.budget.grant();
        }
    }
}

/// Reserved bytes; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    bytes: u64,
    beyond: bool,
}

impl Reservation {
    /// What was reserved turned out to be this many bytes.
    pub(crate) fn settle(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        {
            let mut state = self.budget.lock();
            state.used = state.used - before + bytes;
        }
        self.budget.grant();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes, self.beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(reserving: &mut Reserving) -> Option<Reservation> {
        match Pin::new(reserving).poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(reservation) => Some(reservation),
            Poll::Pending => None,
        }
    }

    fn take(budget: &Budget, bytes: u64) -> Reservation {
        poll(&mut budget.reserve(bytes, Need::Ahead)).unwrap()
    }

    #[test]
    fn bytes_are_given_up_to_the_total_and_come_back() {
        let budget = Budget::new(100);
        let held = take(&budget, 60);
        let mut waiting = budget.reserve(50, Need::Ahead);
        assert!(poll(&mut waiting).is_none());
        drop(held);
        let second = poll(&mut waiting).unwrap();
        assert_eq!(budget.used(), 50);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    /// A page larger than the whole budget is read when nothing else is held.
    #[test]
    fn more_than_the_total_waits_until_nothing_else_is_held() {
        let budget = Budget::new(100);
        let held = take(&budget, 1);
        let mut large = budget.reserve(1_000, Need::Ahead);
        assert!(poll(&mut large).is_none());
        drop(held);
        let large = poll(&mut large).unwrap();
        assert_eq!(budget.used(), 1_000);
        let mut next = budget.reserve(1, Need::Ahead);
        assert!(poll(&mut next).is_none());
        drop(large);
        assert!(poll(&mut next).is_some());
    }

    #[test]
    fn who_needs_much_is_not_overtaken() {
        let budget = Budget::new(100);
        let held = take(&budget, 60);
        let mut large = budget.reserve(90, Need::Ahead);
        let mut small = budget.reserve(10, Need::Ahead);
        assert!(poll(&mut small).is_none(), "it would fit, and the large one would wait for ever");
        drop(held);
        let large = poll(&mut large).unwrap();
        assert!(poll(&mut small).is_some());
        drop(large);
    }

    /// Readers whose callers never take what they hold keep no other caller waiting.
    #[test]
    fn one_page_on_demand_may_exceed_the_budget() {
        let budget = Budget::new(100);
        let _stuck = take(&budget, 100);
        let mut ahead = budget.reserve(10, Need::Ahead);
        let demanded = poll(&mut budget.reserve(40, Need::Demand)).unwrap();
        assert_eq!(budget.used(), 140);
        let mut second = budget.reserve(40, Need::Demand);
        assert!(poll(&mut second).is_none(), "one at a time");
        drop(demanded);
        assert!(poll(&mut second).is_some());
        assert!(poll(&mut ahead).is_none());
    }

    #[test]
    fn a_page_larger_than_expected_is_paid_back_before_the_next() {
        let budget = Budget::new(100);
        let mut page = take(&budget, 10);
        page.settle(250);
        let mut next = budget.reserve(10, Need::Ahead);
        assert!(poll(&mut next).is_none());
        page.settle(90);
        assert!(poll(&mut next).is_some());
    }

    #[test]
    fn who_gives_up_waiting_gives_up_its_place() {
        let budget = Budget::new(100);
        let held = take(&budget, 50);
        let large = budget.reserve(100, Need::Ahead);
        let mut small = budget.reserve(10, Need::Ahead);
        assert!(poll(&mut small).is_none());
        drop(large);
        assert!(poll(&mut small).is_some());
        // A grant that nobody picked up comes back as well.
        let unclaimed = budget.reserve(40, Need::Ahead);
        assert_eq!(budget.used(), 90);
        drop(unclaimed);
        assert_eq!(budget.used(), 50);
        drop(held);
        assert_eq!(budget.used(), 0);
    }
}
