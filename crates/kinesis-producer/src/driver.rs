//! The producer's task: owns the records, carries out what the batcher decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::directory::ShardDirectory;
use kinesis_core::{OutboundRecord, StreamRef};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::admission::{Admission, Ledger, Room};
use crate::batcher::{Action, Batcher, CallId, Event, FlushId};
use crate::call::{self, Reply};
use crate::error::{Failure, RecordErrorKind};
use crate::listing::{Listing, Shards};
use crate::meters::Meters;
use crate::packing::Put as _;
use crate::receipt::{Pending, Sent};
use crate::report::{CloseReport, FlushReport};

/// Commands that are taken before calls and timers are looked at again.
const COMMANDS_PER_TURN: usize = 256;

/// What handles ask for.
#[derive(Debug)]
pub(crate) enum Command {
    Put { pending: Pending, room: Room },
    PutBatch { batch: Vec<Pending>, room: Room },
    Flush { deadline: Option<Instant>, answer: oneshot::Sender<FlushReport> },
    Close { deadline: Instant },
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) stream: StreamRef,
    pub(crate) attempt_timeout: Duration,
    pub(crate) directory: Arc<dyn ShardDirectory>,
    pub(crate) listing_timeout: Duration,
    pub(crate) batcher: Batcher<Pending>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) meters: Meters,
    /// Bounded by `admission`: each record in it holds room. Flushes and closings have a waiting caller each.
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) closed: watch::Sender<Option<CloseReport>>,
}

pub(crate) struct Driver {
    parts: Parts,
    ledger: Ledger,
    calls: JoinSet<Reply>,
    call_of: HashMap<Id, CallId>,
    listing: Listing,
    flushes: HashMap<FlushId, oneshot::Sender<FlushReport>>,
    next_flush: u64,
    /// No further command can come.
    drained: bool,
    closing: Option<Closing>,
    /// Whether calls fail as a whole: the first one is warned about, and the end of it told.
    failing: bool,
}

struct Closing {
    deadline: Instant,
    report: CloseReport,
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let listing = Listing::new(Arc::clone(&parts.directory), parts.stream.clone(), parts.listing_timeout);
        Self {
            listing,
            parts,
            ledger: Ledger::default(),
            calls: JoinSet::new(),
            call_of: HashMap::new(),
            flushes: HashMap::new(),
            next_flush: 0,
            drained: false,
            closing: None,
            failing: false,
        }
    }

    /// Runs until the producer is closed. Dropping the future gives up every record.
    pub(crate) async fn run(mut self) {
        let mut inbox = Vec::new();
        while !self.is_finished() {
            let wake = self.next_wake();
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                taken = self.parts.commands.recv_many(&mut inbox, COMMANDS_PER_TURN), if !self.drained => {
                    self.drained = taken == 0;
                    inbox.drain(..).for_each(|command| self.command(command));
                }
                Some(ended) = self.calls.join_next_with_id(), if !self.calls.is_empty() => self.call_ended(ended),
                shards = self.listing.ended(), if self.listing.is_under_way() => self.listed(shards),
                () = timer => self.step(Event::Tick),
            }
            self.give_up_when_late();
            self.settle();
        }
    }

    /// After the last command everything has an answer, or nobody is left who closes the producer.
    fn is_finished(&self) -> bool {
        self.drained && (self.closing.is_none() || self.parts.batcher.held() == 0)
    }

    fn next_wake(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.deadline);
        let batcher = self.parts.batcher.next_wake().map(Instant::from_std);
        closing.into_iter().chain(batcher).min()
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Put { pending, room } => {
                self.ledger.take_over(room);
                self.step(Event::Admitted(pending));
            }
            Command::PutBatch { batch, room } => {
                self.ledger.take_over(room);
                self.step(Event::AdmittedBatch(batch));
            }
            Command::Flush { deadline, answer } => {
                let id = FlushId(self.next_flush);
                self.next_flush += 1;
                self.flushes.insert(id, answer);
                self.step(Event::Flush { id, deadline: deadline.map(Instant::into_std) });
            }
            Command::Close { deadline } => match &mut self.closing {
                Some(closing) => closing.deadline = closing.deadline.min(deadline),
                None => {
                    tracing::debug!(stream = %self.parts.stream, records = self.parts.batcher.held(), "closing");
                    self.closing = Some(Closing { deadline, report: CloseReport::default() });
                    self.step(Event::Drain);
                }
            },
        }
    }

    fn step(&mut self, event: Event<Pending>) {
        let mut unseen = None;
        for action in self.parts.batcher.step(Instant::now().into_std(), event) {
            match action {
                Action::Send(id) => self.start(id),
                Action::ListShards => self.listing.start(),
                Action::Stored { bytes, attempt } => self.parts.meters.stored(bytes, attempt),
                Action::Misplaced(records) => self.parts.meters.misplaced(records),
                Action::Unpredictable => {
                    let stream = &self.parts.stream;
                    tracing::warn!(%stream, "the stream distributes records by itself: they are aggregated by key");
                }
                Action::Done { put, outcome } => {
                    let failed_as = outcome.as_ref().err().map(|failure| failure.kind);
                    self.count(put.record(), &outcome);
                    if !put.answer(outcome)
                        && let Some(kind) = failed_as
                    {
                        let (records, _) = unseen.unwrap_or((0_usize, kind));
                        unseen = Some((records + 1, kind));
                    }
                }
                Action::Retrying(records) => self.parts.meters.retrying(records),
                Action::Flushed { id, report } => {
                    if let Some(answer) = self.flushes.remove(&id) {
                        // It fails when nobody waits for the flush any more.
                        let _ = answer.send(report);
                    }
                }
            }
        }
        if let Some((records, reason)) = unseen {
            tracing::warn!(
                stream = %self.parts.stream, records, %reason, "records lost: they failed and nobody holds their receipts"
            );
        }
    }

    /// Counts the record's end; each record comes here once.
    fn count(&mut self, record: &OutboundRecord, outcome: &Result<Sent, Failure>) {
        match outcome {
            Ok(_) => self.parts.meters.sent(record.data.len()),
            Err(_) => self.parts.meters.failed(),
        }
        let Some(Closing { report, .. }) = &mut self.closing else { return };
        match outcome {
            Ok(_) => report.sent += 1,
            Err(failure) if is_unsent(failure.kind) => report.unsent.push(record.clone()),
            Err(_) => report.failed += 1,
        }
    }

    fn start(&mut self, id: CallId) {
        let parts = &self.parts;
        let entries: Result<Vec<_>, _> = parts.batcher.records(id).map(call::entry).collect();
        let attempt =
            call::put_records(parts.client.clone(), parts.stream.clone(), entries, parts.attempt_timeout);
        let task = self.calls.spawn(attempt).id();
        self.call_of.insert(task, id);
    }

    fn listed(&mut self, shards: Shards) {
        self.parts.meters.listed(shards.is_some());
        self.step(Event::Listed(shards));
    }

    fn call_ended(&mut self, ended: Result<(Id, Reply), JoinError>) {
        let (task, result) = match ended {
            Ok((task, Reply { took, result })) => {
                self.parts.meters.call_took(took);
                (task, result)
            }
            Err(error) => {
                let failure = ServiceFailure::local(FailureKind::Other, error.to_string());
                (error.id(), Err(failure))
            }
        };
        let Some(call) = self.call_of.remove(&task) else { return };
        if result.is_err() {
            self.parts.meters.call_failed();
        }
        self.log_change(result.as_ref().err());
        self.step(Event::Answered { call, result });
    }

    /// One line when calls begin to fail and one when they succeed again, however long that takes.
    fn log_change(&mut self, failure: Option<&ServiceFailure>) {
        let stream = &self.parts.stream;
        match failure {
            Some(failure) if self.failing => tracing::debug!(%stream, %failure, "PutRecords failed again"),
            Some(failure) => tracing::warn!(%stream, %failure, "PutRecords failed"),
            None if self.failing => tracing::info!(%stream, "PutRecords works again"),
            None => {}
        }
        self.failing = failure.is_some();
    }

    fn give_up_when_late(&mut self) {
        if self.closing.as_ref().is_some_and(|closing| closing.deadline <= Instant::now()) {
            self.give_up(RecordErrorKind::Closed);
        }
    }

    /// Answers every record that is here or was put before this, and takes no more.
    fn give_up(&mut self, kind: RecordErrorKind) {
        self.calls.abort_all();
        self.listing.stop();
        self.step(Event::GiveUp(kind));
        self.parts.commands.close();
        while let Ok(command) = self.parts.commands.try_recv() {
            self.command(command);
        }
        self.drained = true;
    }

    /// Makes room for what left, and shows how full the producer is.
    fn settle(&mut self) {
        let (waiting, bytes) = (self.parts.batcher.waiting(), self.parts.batcher.held_bytes());
        self.ledger.settle(&self.parts.admission, waiting, bytes);
        self.parts.meters.utilization(self.parts.admission.utilization(waiting, bytes));
        if self.closing.is_some() {
            self.parts.commands.close();
        }
    }
}

/// Whether the record ended without the service's word.
fn is_unsent(kind: RecordErrorKind) -> bool {
    matches!(kind, RecordErrorKind::Closed | RecordErrorKind::Abandoned)
}

impl Drop for Driver {
    /// The end, one way or another: whatever is still here gets its answer, and whoever waits for the closing too.
    fn drop(&mut self) {
        self.parts.admission.close();
        let start = Closing { deadline: Instant::now(), report: CloseReport::default() };
        let closed_in_order = self.closing.is_some() && self.is_finished();
        self.closing.get_or_insert(start);
        if !closed_in_order {
            self.give_up(RecordErrorKind::Abandoned);
        }
        let report = self.closing.take().map(|closing| closing.report).unwrap_or_default();
        if !closed_in_order && !report.unsent.is_empty() {
            tracing::warn!(
                stream = %self.parts.stream,
                records = report.unsent.len(),
                "the producer was dropped without being closed: its records are lost"
            );
        }
        self.parts.closed.send_replace(Some(report));
    }
}
