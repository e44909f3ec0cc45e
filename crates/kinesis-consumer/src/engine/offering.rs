//! One offering of a record on the record door, and the handle that its handler may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kinesis_core::processing::{CompletionOutcome, CompletionSink, CompletionTicket};

use super::progress::Progress;

/// A record that is offered again gets a new one, so that a handle of the try before means nothing when it is dropped.
pub(super) struct Offering {
    progress: Arc<Progress>,
    claimed: AtomicBool,
    over: AtomicBool,
}

impl Offering {
    pub(super) fn new(progress: Arc<Progress>) -> Arc<Self> {
        Arc::new(Self { progress, claimed: AtomicBool::new(false), over: AtomicBool::new(false) })
    }

    pub(super) fn ticket(self: &Arc<Self>, ticket: u64) -> CompletionTicket {
        let sink: Arc<dyn CompletionSink> = Arc::clone(self) as _;
        CompletionTicket::new(sink, ticket)
    }

    /// Whether the handler took the handle.
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// From now on dropping the handle means nothing.
    pub(super) fn retire(&self, ticket: u64) {
        self.over.store(true, Ordering::Release);
        self.progress.forget_dropped(ticket);
    }
}

impl CompletionSink for Offering {
    fn claimed(&self, _ticket: u64) {
        self.claimed.store(true, Ordering::Release);
    }

    fn ended(&self, ticket: u64, outcome: CompletionOutcome) {
        match outcome {
            // Finished is finished, whichever try it came from.
            CompletionOutcome::Done => self.progress.finish(ticket),
            _ if self.over.load(Ordering::Acquire) => {}
            _ => self.progress.handle_dropped(ticket),
        }
    }
}
