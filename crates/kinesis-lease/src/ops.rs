//! Everything that a lease goes through, written once: each operation is a guarded write, next to the condition that
//! the KCL uses for the same.
//!
//! | operation | guard here | condition of the KCL |
//! | --- | --- | --- |
//! | [`create`] | row absent | row absent |
//! | [`take`] | owner and counter as read | counter as read |
//! | [`renew`] | counter and token of the tenure | counter as read (version 3: and no hand-over) |
//! | [`checkpoint`] | counter and token of the tenure | counter as read |
//! | [`release`], no hand-over | counter and token of the tenure | owners as read (evict) |
//! | [`release`], hand-over | counter and token of the tenure | owners as read (assign by the old owner) |
//! | [`request`] | owner as read, no hand-over | owner as read, no hand-over |
//! | [`withdraw`] | both owners as written by the request | (no such write) |
//! | [`forget_request`] | both owners as read | (no such write) |
//! | [`decline`] | owner and counter as read | owner as read (evict) |
//! | [`end`] | counter and token of the tenure | counter as read |
//! | [`close_gone`] | owner and counter as read | (deletes the row) |
//! | [`describe`] | row exists | row exists |
//! | [`evict`], [`reset`] | owner and counter as read | owners as read (evict) |
//! | [`collect`] | owner and counter as read | none |
//! | [`delete`] | row exists | none |
//! | [`beat`], on the row of a worker | counter and token of the worker | (no such row) |
//! | [`ask`], on the row of a worker | row exists | (no such row) |

use kinesis_core::lease::{
    Change, CoolDown, FieldWrite, Guard, Lease, LeaseKey, LeaseWrite, PrivateValue, TenureToken,
};
use kinesis_core::{Checkpoint, HashKeyRange, ShardId, Timestamp, WorkerId};

use crate::mutant::{self, Mutant};
use crate::worker_row;

fn update(key: &LeaseKey, guard: Guard, fields: Vec<FieldWrite>) -> LeaseWrite {
    LeaseWrite::new(key.clone(), guard, Change::Update(fields))
}

fn as_read(row: &Lease) -> Guard {
    if mutant::is_on(Mutant::TakeUnguarded) {
        return Guard::Exists;
    }
    Guard::OwnerCounter { owner: row.owner.clone(), counter: row.counter }
}

fn of_tenure(row: &Lease, token: TenureToken) -> Guard {
    if mutant::is_on(Mutant::FenceDropped) {
        return Guard::Exists;
    }
    Guard::Tenure { counter: row.counter, token }
}

/// Makes the row unless it exists; an existing row is never changed.
#[must_use]
pub fn create(lease: Lease) -> LeaseWrite {
    LeaseWrite::create(lease)
}

/// Starts a tenure on a row that is unowned, expired, addressed to us, or taken by force; a heartbeat since `row` was
/// read defeats it. The epoch grows and the token is new, so that no write of an earlier tenure is accepted.
#[must_use]
pub fn take(row: &Lease, worker: &WorkerId, token: TenureToken) -> LeaseWrite {
    let mut fields = vec![
        FieldWrite::Owner(Some(worker.clone())),
        FieldWrite::CheckpointOwner(None),
        FieldWrite::Token(Some(token)),
        FieldWrite::AddCounter(1),
    ];
    if !mutant::is_on(Mutant::EpochKept) {
        fields.push(FieldWrite::AddEpoch(1));
    }
    if row.holder().is_some_and(|holder| holder != worker) {
        fields.push(FieldWrite::AddOwnerSwitches(1));
    }
    let write = update(&row.key, as_read(row), fields);
    if mutant::is_on(Mutant::CounterReset) {
        let mut whole = write.change.apply_to(Some(row.clone())).unwrap_or_else(|| row.clone());
        whole.counter = 1;
        return LeaseWrite::new(row.key.clone(), as_read(row), Change::create(whole));
    }
    write
}

/// Shows that the holder is alive.
#[must_use]
pub fn renew(row: &Lease, token: TenureToken) -> LeaseWrite {
    update(&row.key, of_tenure(row, token), vec![FieldWrite::AddCounter(1)])
}

/// Stores how far the shard is finished; also shows that the holder is alive.
#[must_use]
pub fn checkpoint(row: &Lease, token: TenureToken, checkpoint: Checkpoint) -> LeaseWrite {
    update(&row.key, of_tenure(row, token), checkpoint_fields(row, checkpoint))
}

fn checkpoint_fields(row: &Lease, checkpoint: Checkpoint) -> Vec<FieldWrite> {
    let mut fields = vec![FieldWrite::Checkpoint(checkpoint), FieldWrite::AddCounter(1)];
    if row.pending.is_some() {
        fields.push(FieldWrite::Pending { checkpoint: None, state: None });
    }
    if row.owner_switches != 0 {
        fields.push(FieldWrite::OwnerSwitches(0));
    }
    if row.cool_down.is_some() {
        // Progress: whatever was wrong with the shard is over.
        fields.push(FieldWrite::CoolDown(None));
    }
    fields
}

/// Gives the lease up, together with a last checkpoint. During a hand-over it goes to the worker that asked for it,
/// unless the shard is to rest; otherwise to nobody, and anybody can take it at once.
#[must_use]
pub fn release(
    row: &Lease,
    token: TenureToken,
    last: Option<Checkpoint>,
    cool_down: Option<CoolDown>,
) -> LeaseWrite {
    let mut fields = match last {
        Some(checkpoint) => checkpoint_fields(row, checkpoint),
        None => vec![FieldWrite::AddCounter(1)],
    };
    fields.retain(|field| !matches!(field, FieldWrite::CoolDown(_)));
    if row.checkpoint_owner.is_some() && cool_down.is_none() {
        fields.push(FieldWrite::AddEpoch(1));
        fields.push(FieldWrite::AddOwnerSwitches(1));
    } else if !mutant::is_on(Mutant::ReleaseKeepsOwner) {
        fields.push(FieldWrite::Owner(None));
    }
    fields.push(FieldWrite::CheckpointOwner(None));
    fields.push(FieldWrite::Token(None));
    fields.push(FieldWrite::CoolDown(cool_down));
    update(&row.key, of_tenure(row, token), fields)
}

/// Asks the holder for the lease: it is the next owner's from now on, but the holder works on and may still write.
/// The counter is left alone, so that the holder's next write is not refused.
#[must_use]
pub fn request(row: &Lease, worker: &WorkerId) -> LeaseWrite {
    let guard = Guard::Owners { owner: row.owner.clone(), checkpoint_owner: None };
    let fields =
        vec![FieldWrite::Owner(Some(worker.clone())), FieldWrite::CheckpointOwner(row.owner.clone())];
    if mutant::is_on(Mutant::RequestRobs) {
        return update(&row.key, guard, [fields, vec![FieldWrite::Token(None)]].concat());
    }
    update(&row.key, guard, fields)
}

/// Takes back a [`request`] that was not answered yet.
#[must_use]
pub fn withdraw(row: &Lease) -> LeaseWrite {
    let guard = Guard::Owners { owner: row.owner.clone(), checkpoint_owner: row.checkpoint_owner.clone() };
    let fields = vec![FieldWrite::Owner(row.checkpoint_owner.clone()), FieldWrite::CheckpointOwner(None)];
    update(&row.key, guard, fields)
}

/// Removes what a hand-over by us has left in a lease that somebody took who does not know of hand-overs.
#[must_use]
pub fn forget_request(row: &Lease) -> LeaseWrite {
    let guard = Guard::Owners { owner: row.owner.clone(), checkpoint_owner: row.checkpoint_owner.clone() };
    update(&row.key, guard, vec![FieldWrite::CheckpointOwner(None)])
}

/// Gives back a lease that was handed over to us and that we do not want any more.
#[must_use]
pub fn decline(row: &Lease) -> LeaseWrite {
    update(&row.key, as_read(row), vec![FieldWrite::Owner(None), FieldWrite::AddCounter(1)])
}

/// Stores that the shard is closed and finished, and gives the lease up.
#[must_use]
pub fn end(row: &Lease, token: TenureToken, children: Vec<ShardId>) -> LeaseWrite {
    update(&row.key, of_tenure(row, token), end_fields(children))
}

/// Closes the row of a shard that the service does not have any more, whoever had it.
#[must_use]
pub fn close_gone(row: &Lease) -> LeaseWrite {
    let mut fields = end_fields(row.children.clone());
    fields.push(FieldWrite::AddEpoch(1));
    update(&row.key, as_read(row), fields)
}

fn end_fields(children: Vec<ShardId>) -> Vec<FieldWrite> {
    vec![
        FieldWrite::Checkpoint(Checkpoint::ShardEnd),
        FieldWrite::Pending { checkpoint: None, state: None },
        FieldWrite::Children(children),
        FieldWrite::Owner(None),
        FieldWrite::CheckpointOwner(None),
        FieldWrite::Token(None),
        FieldWrite::OwnerSwitches(0),
        FieldWrite::CoolDown(None),
        FieldWrite::AddCounter(1),
    ]
}

/// Adds what was learned about the shard; any worker may, and nobody's heartbeat is disturbed.
#[must_use]
pub fn describe(
    key: &LeaseKey,
    hash_range: Option<HashKeyRange>,
    children: Option<Vec<ShardId>>,
) -> LeaseWrite {
    let mut fields: Vec<FieldWrite> = hash_range.map(FieldWrite::HashRange).into_iter().collect();
    fields.extend(children.map(FieldWrite::Children));
    update(key, Guard::Exists, fields)
}

/// Takes the lease from whoever has it, so that anybody can take it at once: for operators. The epoch grows, and with
/// the token every write of the former holder is refused.
#[must_use]
pub fn evict(row: &Lease) -> LeaseWrite {
    update(&row.key, as_read(row), evict_fields())
}

fn evict_fields() -> Vec<FieldWrite> {
    vec![
        FieldWrite::Owner(None),
        FieldWrite::CheckpointOwner(None),
        FieldWrite::Token(None),
        FieldWrite::CoolDown(None),
        FieldWrite::AddCounter(1),
        FieldWrite::AddEpoch(1),
    ]
}

/// Sets the position, also back, and takes the lease from whoever has it: for operators.
#[must_use]
pub fn reset(row: &Lease, to: Checkpoint, anchor: Option<Timestamp>) -> LeaseWrite {
    let mut fields = evict_fields();
    fields.push(FieldWrite::Checkpoint(to));
    fields.push(FieldWrite::Anchor(anchor));
    fields.push(FieldWrite::Pending { checkpoint: None, state: None });
    fields.push(FieldWrite::OwnerSwitches(0));
    update(&row.key, as_read(row), fields)
}

/// Removes the row of a finished shard that nothing needs any more.
#[must_use]
pub fn collect(row: &Lease) -> LeaseWrite {
    LeaseWrite::new(row.key.clone(), as_read(row), Change::Delete)
}

/// Removes the row.
#[must_use]
pub fn delete(key: &LeaseKey) -> LeaseWrite {
    LeaseWrite::new(key.clone(), Guard::Exists, Change::Delete)
}

/// Shows that a worker is alive, in the row that it has beside its leases; takes back what was [asked](ask) of it.
#[must_use]
pub fn beat(row: &Lease, token: TenureToken) -> LeaseWrite {
    let mut fields = vec![FieldWrite::AddCounter(1)];
    if row.private.contains_key(worker_row::ASKED_FOR) {
        fields.push(FieldWrite::Private { name: worker_row::ASKED_FOR.to_owned(), value: None });
    }
    update(&row.key, of_tenure(row, token), fields)
}

/// Names a shard in the row of the worker that holds its lease, after a [`request`]: the worker sees it with its next
/// heartbeat. A hint, so that a later one may overwrite it.
#[must_use]
pub fn ask(worker: &LeaseKey, shard: &ShardId) -> LeaseWrite {
    let value = Some(PrivateValue::Text(shard.to_string()));
    let field = FieldWrite::Private { name: worker_row::ASKED_FOR.to_owned(), value };
    update(worker, Guard::Exists, vec![field])
}
