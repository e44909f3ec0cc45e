//! The task of a reader: does what the machine says, as far ahead of the caller as is allowed.

use std::sync::Arc;

use kinesis_core::source::SourceEvent;
use tokio::time::{Instant, sleep_until};

use crate::ahead::ReadAhead;
use crate::budget::{Budget, Reservation};
use crate::calls::Calls;
use crate::machine::{Action, Event, PollMachine};
use crate::meters::Meters;
use crate::shelf::Shelf;

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) machine: PollMachine,
    pub(crate) calls: Calls,
    pub(crate) meters: Meters,
    pub(crate) ahead: ReadAhead,
    pub(crate) budget: Budget,
}

impl Task {
    /// Reads until the end of the shard or an error is on the shelf.
    pub(crate) async fn run(mut self, shelf: Arc<Shelf>) {
        // Also when the task is dropped or panics: its caller is not to wait for ever.
        let _closing = CloseOnDrop(Arc::clone(&shelf));
        let mut reserved = None;
        let mut page_bytes = 0;
        let mut happened = None;
        loop {
            let event = match happened.take() {
                Some(event) => event,
                None => {
                    if self.machine.is_idle() {
                        reserved = Some(self.turn(&shelf, reserved).await);
                    }
                    Event::Resume
                }
            };
            self.meters.count(&event);
            if let Event::Page(Ok(page)) = &event {
                page_bytes = self.ahead.learn(page);
                if let Some(reserved) = &mut reserved {
                    reserved.settle(page_bytes);
                }
            }
            match self.machine.step(Instant::now().into_std(), event) {
                Action::GetIterator { start, replaces_expired } => {
                    if replaces_expired {
                        self.meters.iterator_refreshed();
                    }
                    happened = Some(self.calls.get_iterator(&start).await);
                }
                Action::GetRecords { iterator } => {
                    happened = Some(self.calls.get_records(iterator, &self.meters).await);
                }
                Action::WaitUntil(due) => {
                    drop(reserved.take());
                    sleep_until(due.into()).await;
                }
                Action::Emit(event @ SourceEvent::Records(_)) => {
                    shelf.put(Ok(event), page_bytes, reserved.take());
                }
                Action::Emit(event) => shelf.put(Ok(event), 0, None),
                Action::Fail(error) => return shelf.put(Err(error), 0, None),
                Action::Done => return,
            }
        }
    }

    /// Waits until the next call is due and its page may be read. A reservation that is at hand is kept if the call is
    /// due at once.
    async fn turn(&self, shelf: &Shelf, mut reserved: Option<Reservation>) -> Reservation {
        if let Some(due) = self.machine.due().map(Instant::from_std).filter(|due| *due > Instant::now()) {
            drop(reserved.take());
            sleep_until(due).await;
        }
        loop {
            let need = self.ahead.may_read(shelf.held());
            if let (Some(reserved), Some(_)) = (reserved.take(), need) {
                return reserved;
            }
            match need {
                None => shelf.changed().await,
                Some(need) => tokio::select! {
                    biased;
                    reserved = self.budget.reserve(self.ahead.expected(), need) => return reserved,
                    // The caller may have come to wait meanwhile.
                    () = shelf.changed() => {}
                },
            }
        }
    }
}

struct CloseOnDrop(Arc<Shelf>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
