//! The service with its clock, script and log: what both fronts answer from.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::calls::{Call, CallLog, Outcome};
use crate::clock::{Moment, TestClock};
use crate::error::ServiceError;
use crate::faults::Plan;
use crate::model::{Operation, Request, Response};
use crate::state::{Kinesis, Settings};

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
}

/// How a call ends.
pub(crate) enum Answer {
    Reply(Result<Response, ServiceError>),
    /// The connection closes without a reply.
    Disconnected,
}

impl Service {
    pub(crate) fn new(settings: Settings, clock: TestClock) -> Self {
        Self {
            clock,
            region: settings.region.clone(),
            called: watch::Sender::new(()),
            inner: Mutex::new(Inner {
                ids: fastrand::Rng::with_seed(settings.seed),
                kinesis: Kinesis::new(settings),
                plan: Plan::default(),
                log: CallLog::default(),
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
        act(&mut inner.kinesis, now)
    }

    /// Answers a request as the script wants it.
    ///
    /// Cancel-safe in the service's sense: a caller that goes away during a scripted hang leaves its call undone.
    pub(crate) async fn call(&self, request: Request) -> Answer {
        let (number, effect) = {
            let mut inner = self.lock();
            let call = Call::new(self.clock.now(), self.clock.elapsed(), &request);
            let effect = inner.plan.effect(call.operation, call.stream.as_deref(), call.shard.as_deref());
            (inner.log.begin(call), effect)
        };
        self.called.send_replace(());
        if effect.disconnect {
            self.lock().log.finish(number, Outcome::Disconnected);
            return Answer::Disconnected;
        }
        self.clock.sleep(effect.before).await;
        let result = {
            let mut inner = self.lock();
            let result = match effect.refuse {
                Some(error) => Err(error),
                None => inner.kinesis.call(self.clock.moment(), request, &effect.records),
            };
            let outcome = match &result {
                Ok(response) => Outcome::of(response),
                Err(error) => Outcome::Refused { code: error.code().to_owned() },
            };
            inner.log.finish(number, outcome);
            result
        };
        self.clock.sleep(effect.after).await;
        if effect.drop_reply { Answer::Disconnected } else { Answer::Reply(result) }
    }

    /// Waits until `operation` was called `count` times. Cancel-safe.
    pub(crate) async fn wait_for_calls(&self, operation: Operation, count: u64) {
        let mut called = self.called.subscribe();
        while self.lock().log.count(operation) < count {
            // The sender lives in `self`, so this ends only by a call.
            let _ = called.changed().await;
        }
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
