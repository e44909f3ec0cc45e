//! Receipts: futures of what became of a record.

use std::borrow::Borrow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use kinesis_core::{OutboundRecord, SequenceNumber, ShardId};
use tokio::sync::oneshot;

use crate::error::{Failure, RecordError, RecordErrorKind};

/// A record that the service stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// The shard that holds it.
    pub shard: ShardId,
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// How often it was sent, at least 1. An attempt whose answer was lost may have stored it too.
    pub attempts: u32,
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
pub(crate) struct Pending(Option<(OutboundRecord, oneshot::Sender<Result<Sent, RecordError>>)>);

impl Pending {
    pub(crate) fn new(record: OutboundRecord) -> (Self, Receipt) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some((record, sender))), Receipt(receiver))
    }

    pub(crate) fn record(&self) -> &OutboundRecord {
        let (record, _) = self.0.as_ref().expect("the record is there until it is answered");
        record
    }

    /// Resolves the receipt. Whether there still was one.
    pub(crate) fn answer(mut self, outcome: Result<Sent, Failure>) -> bool {
        self.send(outcome)
    }

    fn send(&mut self, outcome: Result<Sent, Failure>) -> bool {
        self.0.take().is_some_and(|(record, sender)| {
            sender.send(outcome.map_err(|failure| RecordError::new(failure, record))).is_ok()
        })
    }
}

impl Borrow<OutboundRecord> for Pending {
    fn borrow(&self) -> &OutboundRecord {
        self.record()
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
