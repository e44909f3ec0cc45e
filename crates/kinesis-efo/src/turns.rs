//! Who reads on: the caller while it waits for an event, or else the reader's own task.
//!
//! What a waiting caller reads itself it takes at once; a task of its own would put it down first, and with many shards
//! as many events would lie about. What the caller does not read, the task does: a subscription that nobody reads holds
//! up every other call on its connection.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use crate::buffer::{Buffer, Item};

/// Reads one shard into its buffer.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The work of one reader, moved on by whoever has the turn.
pub(crate) struct Turns {
    /// Until it is over.
    work: Mutex<Option<Work>>,
    buffer: Arc<Buffer>,
    bell: Arc<Bell>,
    /// The bell's.
    waker: Waker,
}

/// What came of a turn.
enum Turn {
    /// The bell rings when there is more to do.
    Waits,
    /// Somebody else is at it.
    Taken,
    Over,
}

impl Turns {
    pub(crate) fn new(buffer: Arc<Buffer>, work: impl FnOnce(Arc<Bell>) -> Work) -> Self {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        bell.ring_task();
        Self { work: Mutex::new(Some(work(Arc::clone(&bell)))), buffer, bell, waker }
    }

    /// For the caller: the next event; none when everything was taken and nothing more will come.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut taken = self.buffer.take();
        if taken.is_pending() {
            self.bell.state().caller = Some(cx.waker().clone());
            self.read_on();
            taken = self.buffer.take();
            if taken.is_ready() {
                // Whoever does not wait is not woken.
                self.bell.state().caller = None;
            }
        }
        taken
    }

    /// For the task: reads on whenever the caller does not, until the work is over.
    pub(crate) async fn drain(self: Arc<Self>) {
        let mut offered = None;
        poll_fn(|cx| self.poll_drain(cx, &mut offered)).await;
    }

    fn poll_drain(&self, cx: &mut Context<'_>, offered: &mut Option<u64>) -> Poll<()> {
        let Some(turn) = self.bell.listen(cx.waker()) else { return Poll::Pending };
        if *offered != Some(turn) {
            // A caller that waits has been woken too, and goes first.
            *offered = Some(turn);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.read_on() {
            Turn::Waits => {}
            Turn::Taken => cx.waker().wake_by_ref(),
            Turn::Over => return Poll::Ready(()),
        }
        if self.buffer.has_news() {
            let caller = self.bell.state().caller.take();
            caller.into_iter().for_each(Waker::wake);
        }
        Poll::Pending
    }

    /// Drops the work, and with it what is open.
    pub(crate) fn stop(&self) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }

    /// Moves the work on, if the bell rang since it last was.
    fn read_on(&self) -> Turn {
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Turn::Taken,
        };
        if !self.bell.begin_turn() {
            return Turn::Waits;
        }
        // Taken out, so that work that panics is over.
        let Some(mut going) = work.take() else { return Turn::Over };
        if going.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending() {
            *work = Some(going);
        } else {
            self.bell.ring_task();
        }
        Turn::Waits
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

/// Rings when there is something to do; the waker of the work.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// It rang since the last turn began.
    rang: bool,
    /// The number of turns so far.
    turns: u64,
    /// Of the caller, while it waits.
    caller: Option<Waker>,
    task: Option<Waker>,
}

impl Bell {
    /// Ends the turn of whoever moves the work on, which goes on with the next: the caller's, if it waits again by then.
    pub(crate) async fn end_turn(&self) {
        let mut ended = false;
        poll_fn(|_| {
            if std::mem::replace(&mut ended, true) {
                return Poll::Ready(());
            }
            self.ring_task();
            Poll::Pending
        })
        .await;
    }

    fn ring_task(&self) {
        let mut state = self.state();
        state.rang = true;
        let task = state.task.take();
        drop(state);
        task.into_iter().for_each(Waker::wake);
    }

    /// For the task, which is woken by the next ring: the number of the turn that is due, if one is.
    fn listen(&self, task: &Waker) -> Option<u64> {
        let mut state = self.state();
        state.task = Some(task.clone());
        state.rang.then_some(state.turns)
    }

    /// Whether a turn is due; it begins now.
    fn begin_turn(&self) -> bool {
        let mut state = self.state();
        let rang = std::mem::take(&mut state.rang);
        state.turns += u64::from(rang);
        rang
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state();
        state.rang = true;
        let (caller, task) = (state.caller.take(), state.task.take());
        drop(state);
        // In this order, so that on one thread the caller comes first.
        caller.into_iter().chain(task).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use kinesis_core::source::SourceEvent;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::task::{Id, yield_now};

    use super::*;

    /// Closes the buffer however the work ends, as the driver does.
    struct Closing(Arc<Buffer>);

    impl Drop for Closing {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    /// Work that reads what is sent, and the tasks that read each.
    fn reading() -> (UnboundedSender<Item>, Arc<Turns>, UnboundedReceiver<Option<Id>>) {
        let (send, mut subscription) = unbounded_channel();
        let (log, readers) = unbounded_channel();
        let buffer = Arc::new(Buffer::default());
        let closing = Closing(Arc::clone(&buffer));
        let turns = Turns::new(buffer, |bell| {
            Box::pin(async move {
                while let Some(item) = subscription.recv().await {
                    // It wakes itself, as a connection with more to give may.
                    let mut woken = false;
                    poll_fn(|cx| {
                        if std::mem::replace(&mut woken, true) {
                            return Poll::Ready(());
                        }
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                    log.send(tokio::task::try_id()).expect("the test listens");
                    closing.0.push(item);
                    bell.end_turn().await;
                }
            })
        });
        (send, Arc::new(turns), readers)
    }

    async fn next(turns: &Turns) -> Option<Item> {
        poll_fn(|cx| turns.poll_event(cx)).await
    }

    /// A caller that waits reads each event itself; the task reads none, and ends with the work.
    #[tokio::test]
    async fn a_caller_that_waits_reads_on_itself() {
        let (send, turns, mut readers) = reading();
        let task = tokio::spawn(Arc::clone(&turns).drain());
        let caller = tokio::spawn(async move {
            for _ in 0..100 {
                assert!(next(&turns).await.is_some());
            }
            assert!(next(&turns).await.is_none());
        });
        let id = caller.id();
        for _ in 0..50 {
            // A burst of two.
            for _ in 0..2 {
                send.send(Ok(SourceEvent::Recovered)).unwrap();
            }
            yield_now().await;
        }
        drop(send);
        caller.await.unwrap();
        task.await.unwrap();
        for _ in 0..100 {
            assert_eq!(readers.recv().await, Some(Some(id)));
        }
    }

    /// S-107: what a caller does not read, the task does: from the beginning, and when the caller waited and left.
    #[tokio::test]
    async fn without_a_caller_the_task_reads_on() {
        let (send, turns, mut readers) = reading();
        let task = tokio::spawn(Arc::clone(&turns).drain());
        for _ in 0..3 {
            for _ in 0..10 {
                send.send(Ok(SourceEvent::Recovered)).unwrap();
            }
            for _ in 0..10 {
                assert_eq!(readers.recv().await, Some(Some(task.id())));
            }
            for _ in 0..10 {
                assert!(next(&turns).await.is_some());
            }
            let once = poll_fn(|cx| Poll::Ready(turns.poll_event(cx)));
            assert!(once.await.is_pending());
        }
    }

    /// Work that panics is over: it is not moved on again.
    #[tokio::test]
    async fn work_that_panics_is_over() {
        let buffer = Arc::new(Buffer::default());
        let closing = Closing(Arc::clone(&buffer));
        let turns = Arc::new(Turns::new(buffer, |_| {
            Box::pin(async move {
                let _closing = closing;
                panic!("as the test wants it");
            })
        }));
        let caller = Arc::clone(&turns);
        assert!(tokio::spawn(async move { next(&caller).await }).await.unwrap_err().is_panic());
        assert!(next(&turns).await.is_none());
    }
}
