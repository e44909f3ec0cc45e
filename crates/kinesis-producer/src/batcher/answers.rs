//! What becomes of records when calls end.

use std::sync::Arc;
use std::time::Instant;

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::{SequenceNumber, ShardId};

use super::{Action, Batcher, Call, CallId, EntryResult};
use crate::aggregation::Misplaced;
use crate::error::{Failure, RecordErrorKind};
use crate::packing::{Load, Parcel, Put, held_cost};
use crate::receipt::Sent;

/// An aggregate that was stored in another shard than the one it was made for.
#[derive(Debug)]
pub(super) struct Stray<P> {
    parcel: Parcel<P>,
    shard: ShardId,
    sequence: SequenceNumber,
}

impl<P> Stray<P> {
    pub(super) fn admitted(&self) -> Instant {
        self.parcel.admitted
    }

    /// Given up: readers may have it or not.
    pub(super) fn into_parcel(mut self) -> Parcel<P> {
        self.parcel.in_doubt = true;
        self.parcel
    }
}

impl<P: Put> Batcher<P> {
    pub(super) fn answered(
        &mut self,
        now: Instant,
        id: CallId,
        result: Result<Vec<EntryResult>, ServiceFailure>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Calls that were given up have answers already.
        let Some(Call { items, .. }) = self.calls.remove(&id) else { return };
        self.queue.release_lanes(&items);
        match result {
            Ok(results) if results.len() == items.len() => self.answered_each(now, items, results, actions),
            Ok(results) => {
                let problem = format!("the answer has {} results for {} records", results.len(), items.len());
                let failure = ServiceFailure::local(FailureKind::Other, problem);
                self.failed_as_a_whole(now, items, failure, actions);
            }
            Err(failure) => self.failed_as_a_whole(now, items, failure, actions),
        }
    }

    /// The service took the call; each record's own result decides.
    fn answered_each(
        &mut self,
        now: Instant,
        items: Vec<Parcel<P>>,
        results: Vec<EntryResult>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.pace.call_succeeded();
        let delays = self.pace.delays();
        let mut retrying = 0;
        let mut strays = Vec::new();
        for (item, result) in items.into_iter().zip(results) {
            match result {
                Ok((shard, sequence)) => {
                    actions.push(Action::Stored { bytes: item.wire.data.len(), attempt: item.attempts });
                    if self.landed_as_expected(now, &item, &shard) {
                        self.finish(item, &shard, &sequence, actions);
                    } else {
                        strays.push(Stray { parcel: item, shard, sequence });
                    }
                }
                Err(failure) => {
                    let records = item.loads().len();
                    let due = now + delays.before_retry(item.attempts);
                    let retried =
                        self.retry(item, due, RecordErrorKind::Refused, &Arc::new(failure), actions);
                    retrying += if retried { records } else { 0 };
                }
            }
        }
        // One listing explains them all, if it is on its way.
        let news = self.atlas.is_news_coming(now);
        for stray in strays {
            if news && self.atlas.range(&stray.shard).is_none() {
                self.strays.push(stray);
            } else {
                self.judge(now, stray, actions);
            }
        }
        if retrying > 0 {
            actions.push(Action::Retrying(retrying));
        }
    }

    /// Whether all readers find the records where the parcel was stored; where it was not expected, the list of shards
    /// is out of date.
    fn landed_as_expected(&mut self, now: Instant, item: &Parcel<P>, shard: &ShardId) -> bool {
        let Some(expected) = item.shard.as_ref().filter(|expected| *expected != shard) else { return true };
        self.atlas.surprise(now, expected, shard);
        !item.mixed || self.settings.misplaced == Misplaced::Accept
    }

    /// A stray whose records all belong to its shard is at home there. Another one is packed anew, all of it, also where
    /// nobody knows the shard: a reader that drops one record of an aggregate drops all.
    pub(super) fn judge(&mut self, now: Instant, stray: Stray<P>, actions: &mut Vec<Action<P>>) {
        let Stray { mut parcel, shard, sequence } = stray;
        if self.atlas.range(&shard).is_some_and(|range| parcel.is_at_home_in(range)) {
            return self.finish(parcel, &shard, &sequence, actions);
        }
        // There is a copy.
        parcel.in_doubt = true;
        if parcel.admitted + self.settings.delivery_timeout <= now {
            return self.fail(parcel, RecordErrorKind::Expired, None, actions);
        }
        self.held_bytes -= parcel.own_bytes;
        actions.push(Action::Misplaced(parcel.loads().len()));
        parcel.unpack().for_each(|load| self.pack(load));
    }

    /// The call failed: all its records share the failure and come back together.
    fn failed_as_a_whole(
        &mut self,
        now: Instant,
        items: Vec<Parcel<P>>,
        failure: ServiceFailure,
        actions: &mut Vec<Action<P>>,
    ) {
        let in_doubt = may_have_had_effect(failure.kind());
        // Only the request is at fault when it is invalid; anything else would hit the next call too.
        let due = match failure.kind() {
            FailureKind::Invalid => now,
            _ => self.pace.call_failed(now),
        };
        let failure = Arc::new(failure);
        for mut item in items {
            item.in_doubt |= in_doubt;
            self.retry(item, due, RecordErrorKind::CallFailed, &failure, actions);
        }
    }

    /// Repeats the parcel as it is at `due`, or gives it up. Whether it will be repeated.
    fn retry(
        &mut self,
        item: Parcel<P>,
        due: Instant,
        kind: RecordErrorKind,
        failure: &Arc<ServiceFailure>,
        actions: &mut Vec<Action<P>>,
    ) -> bool {
        let kind = if !failure.is_retryable() || item.attempts >= self.settings.max_attempts {
            kind
        } else if due >= item.admitted + self.settings.delivery_timeout {
            RecordErrorKind::Expired
        } else {
            self.queue.push_retry(due, item);
            return true;
        };
        self.fail(item, kind, Some(failure), actions);
        false
    }

    pub(super) fn give_up(&mut self, kind: RecordErrorKind, actions: &mut Vec<Action<P>>) {
        let mut parcels = self.queue.take_all();
        for mut item in std::mem::take(&mut self.calls).into_values().flat_map(|call| call.items) {
            item.in_doubt = true;
            parcels.push(item);
        }
        parcels.extend(std::mem::take(&mut self.strays).into_iter().map(Stray::into_parcel));
        let mut loads = self.packer.take_all();
        loads.extend(self.unaddressed.drain(..));
        for parcel in parcels {
            self.held_bytes -= parcel.own_bytes;
            loads.extend(parcel.unpack());
        }
        loads.sort_by_key(|load| load.serial);
        loads.into_iter().for_each(|load| self.fail_load(load, kind, None, actions));
    }

    pub(super) fn fail(
        &mut self,
        parcel: Parcel<P>,
        kind: RecordErrorKind,
        cause: Option<&Arc<ServiceFailure>>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.held_bytes -= parcel.own_bytes;
        parcel.unpack().for_each(|load| self.fail_load(load, kind, cause, actions));
    }

    pub(super) fn fail_load(
        &mut self,
        load: Load<P>,
        kind: RecordErrorKind,
        cause: Option<&Arc<ServiceFailure>>,
        actions: &mut Vec<Action<P>>,
    ) {
        let cause = cause.map(Arc::clone);
        let failure = Failure { kind, attempts: load.attempts, in_doubt: load.in_doubt, cause };
        self.answer(load, Err(failure), actions);
    }

    /// The service has the parcel.
    fn finish(
        &mut self,
        parcel: Parcel<P>,
        shard: &ShardId,
        sequence: &SequenceNumber,
        actions: &mut Vec<Action<P>>,
    ) {
        self.held_bytes -= parcel.own_bytes;
        for (place, load) in parcel.unpack().enumerate() {
            let sent = Sent {
                shard: shard.clone(),
                sequence: sequence.clone(),
                sub_sequence: place as u64,
                attempts: load.attempts,
            };
            self.answer(load, Ok(sent), actions);
        }
    }

    fn answer(&mut self, load: Load<P>, outcome: Result<Sent, Failure>, actions: &mut Vec<Action<P>>) {
        self.held -= 1;
        self.held_bytes -= held_cost(&load.put);
        self.flushes.record_done(load.serial, outcome.is_ok());
        actions.push(Action::Done { put: load.put, outcome });
    }
}

/// Whether records of a call that failed this way may be stored all the same.
fn may_have_had_effect(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Timeout | FailureKind::Transport | FailureKind::Server | FailureKind::Other)
}
