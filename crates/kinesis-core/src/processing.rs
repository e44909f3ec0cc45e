//! What handlers answer, and the two ways to say that work is done.
//!
//! Two verbs, never mixed in one consumer: **checkpoint to** a position means everything up to there is finished
//! (the KCL's meaning); **done** means this one record is finished, and the stored position follows the records that
//! are finished without a gap.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{BoxError, Position};

/// What a batch handler answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ack {
    /// Every record of the batch is finished. `()` means the same.
    #[default]
    All,
    /// Everything up to and including this record is finished; the rest of the batch is finished later by hand.
    UpTo(Position),
    /// Nothing yet: the handler finishes the records later through the batch's checkpointer.
    Manual,
}

/// What a batch handler may return: [`Ack`] or `()`.
pub trait IntoAck {
    /// The answer.
    fn into_ack(self) -> Ack;
}

impl IntoAck for Ack {
    fn into_ack(self) -> Ack {
        self
    }
}

impl IntoAck for () {
    fn into_ack(self) -> Ack {
        Ack::All
    }
}

/// What a record handler answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecordAck {
    /// The record is finished. `()` means the same.
    #[default]
    Done,
    /// The handler took the record's [`completion`](crate::Record::completion) and finishes it later.
    Manual,
}

/// What a record handler may return: [`RecordAck`] or `()`.
pub trait IntoRecordAck {
    /// The answer.
    fn into_record_ack(self) -> RecordAck;
}

impl IntoRecordAck for RecordAck {
    fn into_record_ack(self) -> RecordAck {
        self
    }
}

impl IntoRecordAck for () {
    fn into_record_ack(self) -> RecordAck {
        RecordAck::Done
    }
}

/// Which verb a consumer of batches uses; the other one is refused with [`CheckpointError::WrongVerb`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum CheckpointVerb {
    /// [`Checkpointer::checkpoint_to`]: everything up to here.
    #[default]
    UpTo,
    /// [`Checkpointer::done`]: this record.
    Done,
}

impl fmt::Display for CheckpointVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UpTo => "up_to",
            Self::Done => "done",
        })
    }
}

/// Why a position was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is not ours any more: stop the work, the new owner repeats it.
    #[error("the lease was lost: nothing can be stored for this shard any more")]
    LeaseLost,
    /// The position is past the last record that was handed out.
    #[error("position {position} is past the last record that was handed out ({last})")]
    #[non_exhaustive]
    OutOfRange {
        /// The refused position.
        position: Position,
        /// The last record handed out.
        last: Position,
    },
    /// The consumer was built for the other verb.
    #[error("this consumer takes the other verb; see its setting checkpoint_verb ({configured})")]
    #[non_exhaustive]
    WrongVerb {
        /// What the consumer was built for.
        configured: CheckpointVerb,
    },
    /// The lease store did not answer or refused for a reason of its own; the position is kept and tried again.
    #[error("the lease store failed to store the position")]
    Store(#[source] BoxError),
    /// The shard's work has ended.
    #[error("the shard's work has ended")]
    Closed,
    /// The position moves in the handler's own transactions, and in no other way.
    #[error(
        "checkpoints move in the handler's transactions; see the consumer's setting checkpoints (transactional)"
    )]
    Transactional,
}

impl CheckpointError {
    /// A position past the last record that was handed out.
    #[must_use]
    pub fn out_of_range(position: Position, last: Position) -> Self {
        Self::OutOfRange { position, last }
    }

    /// A verb that the consumer was not built for.
    #[must_use]
    pub fn wrong_verb(configured: CheckpointVerb) -> Self {
        Self::WrongVerb { configured }
    }

    /// Whether the same call can succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

/// What an engine does behind a [`Checkpointer`].
#[async_trait]
pub trait CheckpointSink: Send + Sync + 'static {
    /// Stores that everything up to and including `position` is finished; returns once it is stored.
    ///
    /// # Errors
    /// See [`CheckpointError`]. Cancel-safe: a dropped call may or may not have stored the position.
    async fn checkpoint_to(&self, position: &Position) -> Result<(), CheckpointError>;

    /// Notes that the record at `position` is finished; it is stored with the next automatic checkpoint.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    fn done(&self, position: &Position) -> Result<(), CheckpointError>;
}

/// Stores how far the work on a shard is done. Cheap to clone; may outlive the batch.
#[derive(Clone)]
pub struct Checkpointer {
    sink: Arc<dyn CheckpointSink>,
    last: Option<Position>,
}

impl Checkpointer {
    /// A checkpointer over an engine's sink; `last` is the last record of the batch.
    #[must_use]
    pub fn new(sink: Arc<dyn CheckpointSink>, last: Option<Position>) -> Self {
        Self { sink, last }
    }

    /// A checkpointer that accepts everything and stores nothing, for tests.
    #[must_use]
    pub fn detached(last: Option<Position>) -> Self {
        Self::new(Arc::new(Detached), last)
    }

    /// The last record of the batch that this came with.
    #[must_use]
    pub fn last(&self) -> Option<&Position> {
        self.last.as_ref()
    }

    /// Stores that the whole batch, and everything before it, is finished.
    ///
    /// # Errors
    /// As [`checkpoint_to`](Self::checkpoint_to).
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        match &self.last {
            Some(last) => self.sink.checkpoint_to(last).await,
            None => Ok(()),
        }
    }

    /// Stores that everything up to and including `position` is finished; returns once it is stored.
    ///
    /// A position at or before the stored one is accepted and changes nothing: the stored position never goes back.
    ///
    /// # Errors
    /// [`CheckpointError::LeaseLost`] when another worker has the shard, [`CheckpointError::OutOfRange`] past what
    /// was handed out, [`CheckpointError::Store`] when the lease store failed (the position is tried again).
    /// Cancel-safe: a dropped call may or may not have stored the position.
    pub async fn checkpoint_to(&self, position: &Position) -> Result<(), CheckpointError> {
        self.sink.checkpoint_to(position).await
    }

    /// Notes that the record at `position` is finished.
    ///
    /// # Errors
    /// [`CheckpointError::WrongVerb`] when the consumer was built for `checkpoint_to`, [`CheckpointError::LeaseLost`].
    pub fn done(&self, position: &Position) -> Result<(), CheckpointError> {
        self.sink.done(position)
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("last", &self.last).finish_non_exhaustive()
    }
}

struct Detached;

#[async_trait]
impl CheckpointSink for Detached {
    async fn checkpoint_to(&self, _position: &Position) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn done(&self, _position: &Position) -> Result<(), CheckpointError> {
        Ok(())
    }
}

/// How a manually finished record ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompletionOutcome {
    /// The record is finished.
    Done,
    /// The handle was dropped: the record is offered again, as after a transient failure.
    Dropped,
}

/// What an engine does behind a [`Completion`].
pub trait CompletionSink: Send + Sync + 'static {
    /// The handler took the handle of this record.
    fn claimed(&self, ticket: u64);
    /// The record ended; called once for each claimed ticket.
    fn ended(&self, ticket: u64, outcome: CompletionOutcome);
}

/// The unclaimed form of a [`Completion`]: dropping it means nothing. For engines.
pub struct CompletionTicket {
    sink: Arc<dyn CompletionSink>,
    ticket: u64,
}

impl CompletionTicket {
    /// A ticket with a number of the engine's choice.
    #[must_use]
    pub fn new(sink: Arc<dyn CompletionSink>, ticket: u64) -> Self {
        Self { sink, ticket }
    }

    pub(crate) fn claim(self) -> Completion {
        self.sink.claimed(self.ticket);
        Completion { sink: Some(self.sink), ticket: self.ticket }
    }
}

impl fmt::Debug for CompletionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionTicket").field(&self.ticket).finish()
    }
}

/// Finishes one record later. Dropping it unfinished counts as a transient failure of that record.
#[must_use = "dropping a completion offers its record again"]
pub struct Completion {
    sink: Option<Arc<dyn CompletionSink>>,
    ticket: u64,
}

impl Completion {
    /// The record is finished.
    pub fn done(mut self) {
        self.end(CompletionOutcome::Done);
    }

    fn end(&mut self, outcome: CompletionOutcome) {
        if let Some(sink) = self.sink.take() {
            sink.ended(self.ticket, outcome);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.end(CompletionOutcome::Dropped);
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.ticket).finish()
    }
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FailureClass {
    /// Trying again can help: a destination was away.
    #[default]
    Transient,
    /// Trying again cannot help: the record itself is bad.
    Permanent,
}

/// A handler's error that tells the engine more: where the work stopped, and whether trying again can help.
///
/// Any other error counts as transient, with the whole batch unfinished. The engine finds this one anywhere in the
/// chain of sources, so layers may wrap it.
#[derive(Debug)]
pub struct HandlerError {
    class: FailureClass,
    first_unfinished: Option<Position>,
    source: BoxError,
}

impl HandlerError {
    /// Trying again can help.
    pub fn transient(source: impl Into<BoxError>) -> Self {
        Self { class: FailureClass::Transient, first_unfinished: None, source: source.into() }
    }

    /// Trying again cannot help.
    pub fn permanent(source: impl Into<BoxError>) -> Self {
        Self { class: FailureClass::Permanent, first_unfinished: None, source: source.into() }
    }

    /// The first record that is not finished: what lies before it counts as done and is not offered again.
    #[must_use]
    pub fn at(mut self, first_unfinished: &Position) -> Self {
        self.first_unfinished = Some(first_unfinished.clone());
        self
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.class
    }

    /// The first record that is not finished, where the handler said so.
    #[must_use]
    pub fn first_unfinished(&self) -> Option<&Position> {
        self.first_unfinished.as_ref()
    }

    /// Finds a `HandlerError` in `error` or its sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first_unfinished {
            Some(position) => write!(f, "the handler failed at {position}"),
            None => f.write_str("the handler failed"),
        }
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

impl HandlerError {
    /// The text of the root cause, for reports.
    #[must_use]
    pub fn root_cause(&self) -> String {
        let mut error: &(dyn std::error::Error + 'static) = &*self.source;
        while let Some(source) = error.source() {
            error = source;
        }
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl CompletionSink for Log {
        fn claimed(&self, ticket: u64) {
            self.0.lock().unwrap().push(format!("claimed {ticket}"));
        }

        fn ended(&self, ticket: u64, outcome: CompletionOutcome) {
            self.0.lock().unwrap().push(format!("{outcome:?} {ticket}"));
        }
    }

    #[test]
    fn a_completion_ends_once_and_an_unclaimed_ticket_never() {
        let log = Arc::new(Log::default());
        let ticket = |n| CompletionTicket::new(Arc::clone(&log) as Arc<dyn CompletionSink>, n);
        ticket(1).claim().done();
        drop(ticket(2).claim());
        drop(ticket(3));
        assert_eq!(*log.0.lock().unwrap(), ["claimed 1", "Done 1", "claimed 2", "Dropped 2"]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] BoxError);

    #[test]
    fn a_handler_error_is_found_under_other_errors() {
        let position = Position::new(5_u128.into(), 2);
        let wrapped = Outer(HandlerError::permanent("bad").at(&position).into());
        let found = HandlerError::find(&wrapped).unwrap();
        assert_eq!(found.class(), FailureClass::Permanent);
        assert_eq!(found.first_unfinished(), Some(&position));
        assert!(HandlerError::find(&std::fmt::Error).is_none());
    }
}
