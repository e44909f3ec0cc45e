//! The service with its clock, script and log: what both fronts answer from.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::calls::{Call, CallLog, Outcome};
use crate::clock::{Moment, TestClock};
use crate::error::ServiceError;
use crate::faults::Plan;
use crate::format::Format;
use crate::model::{Operation, Request, Response};
use crate::state::{Kinesis, Settings, Step};
use crate::streaming::{EventStream, Feed};

pub(crate) struct Service {
    pub(crate) clock: TestClock,
    pub(crate) region: String,
    inner: Mutex<Inner>,
    /// Told whenever a call comes in.
    called: watch::Sender<()>,
}

pub(crate) struct Inner {
    pub(crate) kinesis: Kinesis,
    pub(crate) plan: Plan,
    pub(crate) log: CallLog,
    /// Makes request ids only.
    ids: fastrand::Rng,
    /// Who carries the subscriptions.
    wakers: HashMap<u64, Arc<Notify>>,
}

impl Inner {
    /// Tells the carriers of subscriptions that have news.
    fn wake(&mut self) {
        for number in self.kinesis.take_woken() {
            if let Some(waker) = self.wakers.get(&number) {
                waker.notify_one();
            }
        }
    }
}

/// How a call ends.
pub(crate) enum Answer {
    Reply(Result<Response, ServiceError>),
    /// An event stream.
    Stream(Box<EventStream>),
    /// The connection closes without a reply.
    Disconnected,
    /// The connection stays, but this request is refused unread, as HTTP/2 has it.
    RefusedStream,
}

/// How a call ends, and what becomes of its connection.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    /// The connection takes no further requests.
    pub(crate) retire: bool,
}

impl Service {
    pub(crate) fn new(settings: Settings, clock: TestClock) -> Self {
        let seed = settings.seed;
        Self {
            clock,
            region: settings.region.clone(),
            called: watch::Sender::new(()),
            inner: Mutex::new(Inner {
                ids: fastrand::Rng::with_seed(settings.seed),
                kinesis: Kinesis::new(settings),
                plan: Plan::new(seed),
                log: CallLog::default(),
                wakers: HashMap::new(),
            }),
        }
    }

    /// The state. A panic elsewhere leaves it usable: no step of it is left half done on purpose.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the state machine at the present moment. The moment is taken under the lock: arrival times
    /// follow the order of the writes.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Kinesis, Moment) -> T) -> T {
        let mut inner = self.lock();
        let now = self.clock.moment();
        let result = act(&mut inner.kinesis, now);
        inner.wake();
        result
    }

    /// Answers a request as the script wants it.
    ///
    /// Cancel-safe in the service's sense: a caller that goes away during a scripted hang leaves its call undone.
    pub(crate) async fn call(self: &Arc<Self>, request: Request, format: Format) -> Answered {
        let operation = request.operation();
        let (number, mut effect, stream) = {
            let mut inner = self.lock();
            let call = Call::new(self.clock.now(), self.clock.elapsed(), &request);
            let effect =
                inner.plan.effect(call.elapsed, operation, call.stream.as_deref(), call.shard.as_deref());
            let stream = call.stream.clone();
            (inner.log.begin(call), effect, stream)
        };
        self.called.send_replace(());
        let retire = effect.retire;
        let withheld = |answer| Answered { answer, retire };
        if effect.disconnect || effect.refuse_stream {
            self.lock().log.finish(number, Outcome::Disconnected);
            return withheld(if effect.disconnect { Answer::Disconnected } else { Answer::RefusedStream });
        }
        self.clock.sleep(effect.before).await;
        let answer = {
            let mut inner = self.lock();
            let now = self.clock.moment();
            let result = match effect.refuse.take() {
                Some(error) => Err(error),
                None => inner
                    .kinesis
                    .admit(now, operation, stream.as_deref())
                    .and_then(|()| inner.kinesis.call(now, request, &effect.records)),
            };
            inner.wake();
            let outcome = match &result {
                Ok(response) => Outcome::of(response),
                Err(error) => Outcome::Refused { code: error.code().to_owned() },
            };
            tracing::debug!(%operation, stream, refused = result.as_ref().err().map(ServiceError::code), "call");
            inner.log.finish(number, outcome);
            match result {
                Ok(Response::Subscribed(number)) => {
                    let woken = Arc::new(Notify::new());
                    inner.wakers.insert(number, Arc::clone(&woken));
                    drop(inner);
                    let feed = Feed::new(Arc::clone(self), number, woken);
                    let script = std::mem::take(&mut effect.stream);
                    Answer::Stream(Box::new(EventStream::new(feed, format, script)))
                }
                result => Answer::Reply(result),
            }
        };
        self.clock.sleep(effect.after).await;
        withheld(if effect.drop_reply { Answer::Disconnected } else { answer })
    }

    /// The next step of a subscription and the moment at which it was asked for.
    pub(crate) fn step(&self, number: u64) -> (Moment, Step) {
        self.with(|kinesis, now| (now, kinesis.step(now, number)))
    }

    /// Forgets a subscription.
    pub(crate) fn unsubscribe(&self, number: u64) {
        let mut inner = self.lock();
        inner.wakers.remove(&number);
        inner.kinesis.unsubscribe(number);
    }

    /// Changes whenever a call comes in.
    pub(crate) fn calls_seen(&self) -> watch::Receiver<()> {
        self.called.subscribe()
    }

    /// Waits until `operation` was called `count` times. Cancel-safe.
    pub(crate) async fn wait_for_calls(&self, operation: Operation, count: u64) {
        let mut called = self.called.subscribe();
        while self.lock().log.count(operation) < count {
            // The sender lives in `self`, so this ends only by a call.
            let _ = called.changed().await;
        }
    }

    pub(crate) fn account(&self) -> String {
        self.lock().kinesis.account().to_owned()
    }

    /// The id of the next reply: looks like a UUID, comes from the seed.
    pub(crate) fn request_id(&self) -> String {
        let id = self.lock().ids.u128(..);
        let hex = format!("{id:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("clock", &self.clock)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}
