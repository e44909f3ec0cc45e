//! Starts and ends shard tasks as leases come and go; one task per shard and process at any time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::lease::LeaseKey;
use kinesis_core::metrics::{Labels, names};
use kinesis_core::{BoxError, StreamRef};
use kinesis_lease::{Coordinator, LeaseEvent, LeaseEvents, Tenure};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::Context;
use super::control::{Control, Drain};
use super::ending::cool_down;
use super::shard::{Finished, ShardTask};
use crate::{ConsumerError, Report, ShardOutcome, ShardReport};

/// The wish to stop: the deadline may be brought forward by asking again.
pub(crate) type StopRequest = Option<Instant>;

/// The steps of an ending after its deadline, each of which may take `close_timeout`: callback, reader, position,
/// release, and one in reserve.
const CLOSING_STEPS: u32 = 5;

/// Owns the coordinator and every shard task of a consumer.
pub(crate) struct Supervisor {
    cx: Arc<Context>,
    stream: StreamRef,
    coordinator: Coordinator,
    events: LeaseEvents,
    tasks: JoinSet<Finished>,
    running: BTreeMap<LeaseKey, Running>,
    /// Leases taken anew while the task of the tenure before is still ending.
    waiting: BTreeMap<LeaseKey, Waiting>,
    started: Instant,
    tenures: u64,
}

struct Running {
    task: Id,
    tenure: Tenure,
    drain: watch::Sender<Option<Drain>>,
}

struct Waiting {
    tenure: Tenure,
    /// It was asked for before it began.
    drain: Option<Drain>,
}

impl Supervisor {
    pub(crate) fn new(
        cx: Arc<Context>,
        stream: StreamRef,
        coordinator: Coordinator,
        events: LeaseEvents,
    ) -> Self {
        Self {
            cx,
            stream,
            coordinator,
            events,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            started: Instant::now(),
            tenures: 0,
        }
    }

    /// Runs until a stop is asked for, a handler says so, the leases are shared out in another way, or the coordinator
    /// ends.
    pub(crate) async fn run(
        mut self,
        mut stop: watch::Receiver<StopRequest>,
    ) -> Result<Report, ConsumerError> {
        let up = self.cx.metrics.instrument(&names::UP, Labels::stream(self.stream.clone()));
        up.set(1.0);
        let failure = loop {
            tokio::select! {
                biased;
                () = asked(&mut stop) => break None,
                event = self.events.next() => match event {
                    Some(LeaseEvent::RegimeChanged(found)) => break Some(ConsumerError::RegimeChanged(found)),
                    Some(event) => self.on_event(event),
                    None => break Some(ConsumerError::coordinator_ended("its task is gone")),
                },
                Some(finished) = self.tasks.join_next_with_id() => {
                    if let Some(failure) = self.on_finished(finished).await {
                        break Some(failure);
                    }
                }
            }
        };
        let Stopped { report, stream, cx } = self.stop(stop).await;
        up.set(0.0);
        let result = if failure.is_none() { "success" } else { "error" };
        let uptime = cx.metrics.instrument(&names::UPTIME, Labels::stream(stream).with("result", result));
        uptime.set(report.uptime.as_secs_f64() * 1_000.0);
        failure.map_or(Ok(report), Err)
    }

    fn on_event(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::Acquired(tenure) => {
                let key = tenure.lease().key.clone();
                if self.running.contains_key(&key) {
                    self.waiting.insert(key, Waiting { tenure, drain: None });
                } else {
                    self.start(tenure, None);
                }
            }
            LeaseEvent::HandOver { key, token, deadline, .. } => {
                let drain = Drain { deadline: deadline.into() };
                match (self.running.get(&key), self.waiting.get_mut(&key)) {
                    (Some(running), _) if running.tenure.token() == token => {
                        running.drain.send_replace(Some(drain));
                    }
                    (_, Some(waiting)) if waiting.tenure.token() == token => waiting.drain = Some(drain),
                    _ => {}
                }
            }
            // Its task learns it from its ownership.
            LeaseEvent::Lost { key, token, .. } => {
                self.waiting.retain(|of, waiting| *of != key || waiting.tenure.token() != token);
            }
            // The coordinator has logged it.
            _ => {}
        }
    }

    fn start(&mut self, tenure: Tenure, asked: Option<Drain>) {
        let key = tenure.lease().key.clone();
        let (drain, asked) = watch::channel(asked);
        let control = Control::new(tenure.ownership(), asked, self.cx.config.lost_lease_grace);
        self.tenures += 1;
        let seed = self.cx.seed.wrapping_add(self.tenures << 32);
        tracing::debug!(%key, checkpoint = %tenure.lease().checkpoint, "tenure begins");
        let (cx, of) = (Arc::clone(&self.cx), tenure.clone());
        // Made inside of its task, because what makes handlers and readers is the user's and may panic.
        let task = async move { Box::pin(ShardTask::new(cx, of, control, seed).run()).await };
        let task = self.tasks.spawn(task).id();
        self.running.insert(key, Running { task, tenure, drain });
    }

    async fn on_finished(&mut self, finished: Result<(Id, Finished), JoinError>) -> Option<ConsumerError> {
        let (key, finished) = self.take_finished(finished).await?;
        if let Some(Waiting { tenure, drain }) = self.waiting.remove(&key)
            && !tenure.ownership().is_lost()
        {
            self.start(tenure, drain);
        }
        let source = finished.stop?;
        Some(ConsumerError::HandlerFailed { shard: finished.report.shard, source })
    }

    /// Takes an ended task off the list. The lease of a task that panicked (what makes handlers, readers or decodes is
    /// the user's) is given back with a rest, so that no lease is renewed for a shard without a live consumer.
    async fn take_finished(
        &mut self,
        finished: Result<(Id, Finished), JoinError>,
    ) -> Option<(LeaseKey, Finished)> {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let key = self.running.iter().find(|(_, running)| running.task == id).map(|(key, _)| key.clone())?;
        let running = self.running.remove(&key)?;
        let finished = match finished {
            Ok((_, finished)) => finished,
            Err(error) => {
                tracing::error!(%key, panicked = error.is_panic(), "a shard task ended without a result, giving its lease back");
                let rest = cool_down(&self.cx.config, &running.tenure, false);
                let release = running.tenure.release(Some(rest));
                let _ = tokio::time::timeout(self.cx.config.close_timeout, release).await;
                let error = BoxError::from("the shard task ended without a result");
                Finished {
                    report: ShardReport {
                        shard: running.tenure.shard_ref().clone(),
                        outcome: ShardOutcome::Failed { error: error.to_string() },
                        stored: None,
                        unfinished: 0,
                        reader_closed: false,
                    },
                    stop: None,
                }
            }
        };
        Some((key, finished))
    }

    /// Drains every shard, then gives the leases back.
    async fn stop(mut self, mut stop: watch::Receiver<StopRequest>) -> Stopped {
        self.coordinator.stop_taking().await;
        let mut deadline =
            (*stop.borrow_and_update()).unwrap_or_else(|| later(self.cx.config.shutdown_timeout));
        let closing = self.cx.config.close_timeout * CLOSING_STEPS;
        let mut shards = Vec::new();
        loop {
            if let Some(asked) = *stop.borrow_and_update() {
                deadline = deadline.min(asked);
            }
            self.drain_all(deadline);
            tokio::select! {
                biased;
                finished = self.tasks.join_next_with_id() => match finished {
                    Some(finished) => {
                        shards.extend(self.take_finished(finished).await.map(|(_, finished)| finished.report));
                    }
                    None => break,
                },
                // A second call may bring the deadline forward.
                Ok(()) = stop.changed() => {}
                // Nothing new is begun: a lease that was taken meanwhile is given back by the coordinator.
                Some(_) = self.events.next() => {}
                () = tokio::time::sleep_until(deadline + closing) => break,
            }
        }
        let stuck = !self.running.is_empty();
        for (key, running) in std::mem::take(&mut self.running) {
            tracing::error!(%key, "a handler blocks its thread, its lease is left to expire");
            let outcome = ShardOutcome::Stuck;
            let shard = running.tenure.shard_ref().clone();
            shards.push(ShardReport { shard, outcome, stored: None, unfinished: 0, reader_closed: false });
        }
        self.tasks.abort_all();
        self.waiting.clear();
        let released = if stuck {
            // A stuck handler may still be at work: its lease must not be given to another worker. So the lease task is
            // ended first; while it runs, it would release everything once nobody listens.
            drop(self.coordinator);
            let ended = async { while self.events.next().await.is_some() {} };
            let _ = tokio::time::timeout(self.cx.config.close_timeout, ended).await;
            false
        } else {
            self.coordinator.shutdown(self.cx.config.close_timeout).await.is_complete()
        };
        shards.sort_by(|a, b| a.shard.cmp(&b.shard));
        let report = Report { shards, uptime: self.started.elapsed(), leases_released: released };
        Stopped { report, stream: self.stream, cx: self.cx }
    }

    /// Asks every task to end by the deadline, or by an earlier one that it knows already.
    fn drain_all(&self, deadline: Instant) {
        for running in self.running.values() {
            running.drain.send_if_modified(|drain| {
                let earlier = drain.is_none_or(|drain| deadline < drain.deadline);
                if earlier {
                    *drain = Some(Drain { deadline });
                }
                earlier
            });
        }
    }
}

/// The end of a time limit that begins now; one without end in sight is some decades.
pub(crate) fn later(limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    Instant::now() + limit.min(FAR)
}

/// Waits until a stop is asked for. Cancel-safe.
///
/// Whoever could ask is gone only when the consumer is dropped. That is no wish to stop: a drop ends this task at its next
/// wait and releases nothing, while a stop begun until then would give back some of the leases.
pub(crate) async fn asked(stop: &mut watch::Receiver<StopRequest>) {
    if stop.wait_for(Option::is_some).await.is_err() {
        std::future::pending().await
    }
}

/// What is left of a supervisor.
struct Stopped {
    report: Report,
    stream: StreamRef,
    cx: Arc<Context>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-004: a handle that is dropped asks for nothing, also when its task is at work at that moment.
    #[tokio::test(start_paused = true)]
    async fn a_dropped_handle_is_no_wish_to_stop() {
        let (stop, mut request) = watch::channel(None);
        drop(stop);
        let waited = tokio::time::timeout(Duration::from_secs(1), asked(&mut request)).await;
        assert!(waited.is_err(), "nobody asked");
        let (stop, mut request) = watch::channel(None);
        stop.send_replace(Some(Instant::now()));
        asked(&mut request).await;
    }
}
