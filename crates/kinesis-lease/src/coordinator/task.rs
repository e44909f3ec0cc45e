//! The lease task: carries out what the machine says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{LeaseKey, TenureToken};
use kinesis_core::metrics::Instrument;
use kinesis_core::{BoxError, Ownership, OwnershipGuard, ShardRef, StreamRef};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Discovery, Failure};
use super::command::{Command, Reply, Waiting};
use super::events::EventSender;
use super::hints::Hints;
use super::now;
use super::regime::{RegimeLook, RegimeWatch};
use crate::discovery::Start;
use crate::identity::StreamIdentity;
use crate::machine::{Action, Event, Machine, ReplyId, Request};
use crate::{DiscoveryError, LeaseEvent, LeaseWarning, ReleaseReport, Tenure};

/// Requests that are handled before the machine plans again.
const GATHER: usize = 256;

type Call = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A call that came to its end.
enum Ended {
    Event(Event),
    Regime(RegimeLook),
    /// When the listing began, what was found, and who waits for it.
    Discovered(Instant, Result<Discovery, (&'static str, Failure)>, Vec<Waiting>),
}

/// What the lease task is made of.
pub(super) struct LeaseTask {
    pub(super) machine: Machine,
    /// When others give something up, as far as the store says so.
    pub(super) hints: Hints,
    pub(super) calls: Calls,
    pub(super) start: Start,
    pub(super) identity: StreamIdentity,
    /// The stream as it was given: by name or by ARN.
    pub(super) stream_ref: StreamRef,
    pub(super) seed: u64,
    pub(super) commands: mpsc::Receiver<Command>,
    /// For the tenures that are handed out.
    pub(super) sender: mpsc::Sender<Command>,
    pub(super) events: EventSender,
    /// Asks for a listing of the shards.
    pub(super) discover: mpsc::Sender<Option<Waiting>>,
    pub(super) lost: Arc<dyn Instrument>,
    /// The coordinator was dropped.
    pub(super) cancelled: CancellationToken,
    /// Looks at who shares out the leases, where that may change.
    pub(super) regime: Option<RegimeWatch>,
}

impl LeaseTask {
    /// Runs until it is stopped. Whatever is under way when the future is dropped is dropped with it.
    pub(super) async fn run(self) {
        let running = Running {
            receiver_gone: self.events.receiver_gone(),
            task: self,
            under_way: FuturesUnordered::new(),
            replies: BTreeMap::new(),
            next_reply: 0,
            owned: BTreeMap::new(),
            stopping: None,
        };
        running.run().await;
    }
}

struct Running {
    task: LeaseTask,
    under_way: FuturesUnordered<Call>,
    replies: BTreeMap<ReplyId, Reply>,
    next_reply: ReplyId,
    owned: BTreeMap<(LeaseKey, TenureToken), OwnershipGuard>,
    stopping: Option<(Instant, Option<oneshot::Sender<ReleaseReport>>)>,
    receiver_gone: CancellationToken,
}

impl Running {
    async fn run(mut self) {
        loop {
            for action in self.task.machine.plan(now()) {
                self.act(action);
            }
            let stop_at = self.stopping.as_ref().map(|(deadline, _)| *deadline);
            if self.task.machine.is_stopped() || stop_at.is_some_and(|deadline| now() >= deadline) {
                return self.report();
            }
            if self.stopping.is_none()
                && let Some(look) = self.task.regime.as_mut().and_then(|regime| regime.look_if_due(now()))
            {
                self.call(async move { Ended::Regime(look.await) });
            }
            let regime = self.task.regime.as_ref().and_then(RegimeWatch::next_look);
            let wake = self.task.machine.next_deadline().into_iter().chain(stop_at).chain(regime).min();
            tokio::select! {
                biased;
                Some(ended) = self.under_way.next() => self.ended(ended),
                () = wait_until(wake) => {}
                Some(()) = self.task.hints.next() => self.task.machine.handle(now(), Event::Hinted),
                command = self.task.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                () = self.receiver_gone.cancelled(), if self.stopping.is_none() => {
                    if self.task.cancelled.is_cancelled() {
                        // Whoever drops everything at once crashes, and releases nothing.
                        return;
                    }
                    tracing::debug!("nobody reads the lease events: everything is released");
                    // As long as a store answers at all, this is long enough.
                    self.stop(now() + self.task.calls.timeout * 4, None);
                }
            }
            for _ in 0..GATHER {
                let Ok(command) = self.task.commands.try_recv() else { break };
                self.command(command);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Apply { batch, writes } => {
                let calls = self.task.calls.clone();
                self.call(async move {
                    Ended::Event(Event::Applied { batch, results: calls.apply(&writes).await })
                });
            }
            Action::Look => {
                let calls = self.task.calls.clone();
                self.call(async move { Ended::Event(Event::Looked(calls.look().await)) });
            }
            Action::Read(keys) => {
                let calls = self.task.calls.clone();
                self.call(async move {
                    let rows = calls.get(&keys).await;
                    Ended::Event(Event::Read { keys, rows })
                });
            }
            // When many ask at once, the listing that is already asked for comes after all of them.
            Action::Discover => drop(self.task.discover.try_send(None)),
            Action::Acquired { lease, token, meter } => {
                let (guard, ownership) = Ownership::new();
                self.owned.insert((lease.key.clone(), token), guard);
                let shard = ShardRef::new(self.task.stream_ref.clone(), lease.key.shard().clone());
                let commands = self.task.sender.clone();
                let tenure = Tenure::new(*lease, shard, token, ownership, meter, commands);
                self.task.events.send(LeaseEvent::Acquired(tenure));
            }
            Action::HandOver { key, token, deadline } => {
                self.task.events.send(LeaseEvent::HandOver { key, token, deadline });
            }
            Action::Lost { key, token, reason } => {
                self.owned.remove(&(key.clone(), token));
                self.task.lost.add(1);
                self.task.events.send(LeaseEvent::Lost { key, token, reason });
            }
            Action::Ended { key, token } => {
                self.task.events.ended(&key, token);
                self.owned.remove(&(key, token));
            }
            Action::Reply { id, result } => {
                if let Some(reply) = self.replies.remove(&id) {
                    // A caller that went away needs no answer.
                    drop(reply.send(result));
                }
            }
            Action::Warn(warning) => warn(&self.task.events, warning),
        }
    }

    fn call(&self, call: impl Future<Output = Ended> + Send + 'static) {
        self.under_way.push(Box::pin(call));
    }

    fn ended(&mut self, ended: Ended) {
        let event = match ended {
            Ended::Event(event) => event,
            Ended::Regime(look) => return self.saw_regime(look),
            Ended::Discovered(began, Ok(found), waiting) => {
                tracing::debug!(made = found.made, "shards discovered");
                tell(waiting, &Ok(()));
                Event::Discovered { began, result: Ok(found.found) }
            }
            Ended::Discovered(began, Err((action, failure)), waiting) => {
                tracing::warn!(action, error = %failure, "leases of new shards cannot be made");
                tell(waiting, &Err(DiscoveryError::Store(Arc::clone(&failure))));
                let source: BoxError = Box::new(failure);
                let stream = self.task.calls.stream.clone();
                let error = Arc::new(DirectoryError::unavailable(stream, "CreateLease", source));
                Event::Discovered { began, result: Err(error) }
            }
        };
        self.task.machine.handle(now(), event);
    }

    fn saw_regime(&mut self, look: RegimeLook) {
        let Some(regime) = &mut self.task.regime else { return };
        match regime.judge(now(), look) {
            Ok(warnings) => warnings.into_iter().for_each(|warning| warn(&self.task.events, warning)),
            Err(leader) => {
                tracing::error!(found = %leader, "another way to share the leases has begun, giving them up");
                self.task.machine.handle(now(), Event::Request(Request::StopTaking));
                self.task.events.send(LeaseEvent::RegimeChanged(leader));
            }
        }
    }

    fn command(&mut self, command: Command) {
        let request = match command {
            Command::Checkpoint { key, token, checkpoint, spacing, reply } => {
                Request::Checkpoint { key, token, checkpoint, spacing, reply: self.keep(reply) }
            }
            Command::Release { key, token, cool_down, reply } => {
                Request::Release { key, token, cool_down, reply: self.keep(reply) }
            }
            Command::End { key, token, children, reply } => {
                Request::End { key, token, children, reply: self.keep(reply) }
            }
            Command::Listed { shards, began, waiting } => return self.listed(shards, began, waiting),
            Command::StopTaking => Request::StopTaking,
            Command::Stop { deadline, report } => return self.stop(now() + deadline, Some(report)),
        };
        self.task.machine.handle(now(), Event::Request(request));
    }

    fn listed(
        &mut self,
        shards: Result<Vec<ShardInfo>, Arc<DirectoryError>>,
        began: Instant,
        waiting: Vec<Waiting>,
    ) {
        match shards {
            Ok(shards) => {
                let (calls, start) = (self.task.calls.clone(), self.task.start.clone());
                let identity = self.task.identity.clone();
                self.task.seed = self.task.seed.wrapping_add(1);
                let seed = self.task.seed;
                self.call(async move {
                    let found = calls.discover(&shards, &start, &identity, seed).await;
                    Ended::Discovered(began, found, waiting)
                });
            }
            Err(error) => {
                tell(waiting, &Err(DiscoveryError::Directory(Arc::clone(&error))));
                self.task.machine.handle(now(), Event::Discovered { began, result: Err(error) });
            }
        }
    }

    fn keep(&mut self, reply: Reply) -> ReplyId {
        self.next_reply += 1;
        self.replies.insert(self.next_reply, reply);
        self.next_reply
    }

    fn stop(&mut self, deadline: Instant, report: Option<oneshot::Sender<ReleaseReport>>) {
        self.stopping = Some((deadline, report));
        self.task.machine.handle(now(), Event::Request(Request::Stop));
    }

    fn report(self) {
        let (released, abandoned) = self.task.machine.stop_report();
        for key in &abandoned {
            tracing::warn!(%key, "lease not released in time");
        }
        if let Some((_, Some(report))) = self.stopping {
            drop(report.send(ReleaseReport { released, abandoned, unknown: false }));
        }
    }
}

fn tell(waiting: Vec<Waiting>, result: &Result<(), DiscoveryError>) {
    for reply in waiting {
        drop(reply.send(result.clone()));
    }
}

pub(super) fn warn(events: &EventSender, warning: LeaseWarning) {
    let source = std::error::Error::source(&warning).map(tracing::field::display);
    tracing::warn!(warning = %warning, source, "lease trouble");
    events.warn(warning);
}

async fn wait_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake.into()).await,
        None => std::future::pending().await,
    }
}
