//! Receipts: futures of what became of a record.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use kinesis_core::{OutboundRecord, Position, SequenceNumber, ShardId};
use tokio::sync::oneshot;

use crate::error::{Failure, RecordError, RecordErrorKind};
use crate::packing::Put;

/// A record that the service stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// The shard that holds it.
    pub shard: ShardId,
    /// The sequence number of the Kinesis record that holds it: the records of an aggregate share it.
    pub sequence: SequenceNumber,
    /// Its place in the aggregate, counted from zero; zero for a record that was sent alone.
    pub sub_sequence: u64,
    /// How often it was sent, at least 1. An attempt whose answer was lost may have stored it too.
    pub attempts: u32,
}

impl Sent {
    /// Where readers find it: sequence number and place in the aggregate.
    #[must_use]
    pub fn position(&self) -> Position {
        Position::new(self.sequence.clone(), self.sub_sequence)
    }
}

/// The answer for one record, once there is one: a future that every admitted record resolves exactly once.
///
/// Dropping it has no effect on the record; failures that nobody sees this way still show in `records_failed_total`
/// and in the log. It is cancel-safe: poll it again after a timeout, by reference. It must not be polled again after
/// it has resolved.
pub struct Receipt(oneshot::Receiver<Result<Sent, RecordError>>);

impl Future for Receipt {
    type Output = Result<Sent, RecordError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer.expect("a pending record answers at the latest when it is dropped"))
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
    }
}

/// A record in the producer with its way back to the caller. It answers exactly once: at the latest when dropped.
pub(crate) struct Pending(Option<Inside>);

struct Inside {
    record: OutboundRecord,
    encoded: Option<Bytes>,
    sender: oneshot::Sender<Result<Sent, RecordError>>,
}

impl Pending {
    /// `encoded` is the payload as it is to be sent, where that is not how it was put.
    pub(crate) fn new(record: OutboundRecord, encoded: Option<Bytes>) -> (Self, Receipt) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(Inside { record, encoded, sender })), Receipt(receiver))
    }

    fn inside(&self) -> &Inside {
        self.0.as_ref().expect("the record is there until it is answered")
    }

    /// Resolves the receipt. Whether there still was one.
    pub(crate) fn answer(mut self, outcome: Result<Sent, Failure>) -> bool {
        self.send(outcome)
    }

    fn send(&mut self, outcome: Result<Sent, Failure>) -> bool {
        self.0.take().is_some_and(|Inside { record, sender, .. }| {
            sender.send(outcome.map_err(|failure| RecordError::new(failure, record))).is_ok()
        })
    }
}

impl Put for Pending {
    fn record(&self) -> &OutboundRecord {
        &self.inside().record
    }

    fn encoded(&self) -> Option<&Bytes> {
        self.inside().encoded.as_ref()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let kind = RecordErrorKind::Abandoned;
        self.send(Err(Failure { kind, attempts: 0, in_doubt: false, cause: None }));
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
