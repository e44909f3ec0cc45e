//! What is written is what is read, and nothing else changes.

use std::time::Duration;

use bytes::Bytes;

use super::support::{
    PASSED, fresh, key, must_apply, owned, row, same, shard, token, update, with_rows, worker,
};
use super::{CaseResult, StoreFactory, Violation};
use crate::lease::{Change, CoolDown, FieldWrite, Guard, Lease, LeaseStore, LeaseWrite, PrivateValue};
use crate::{Checkpoint, HashKey, HashKeyRange, Position, SequenceNumber, Timestamp};

fn place(text: &str, sub: u64) -> Checkpoint {
    let sequence: SequenceNumber = text.parse().expect("digits");
    Checkpoint::At(Position::new(sequence, sub))
}

fn binary() -> Bytes {
    Bytes::from_static(b"\x00\xff'\"\n;")
}

/// A lease with something in every field but the private attributes and the sub-sequence number, which have cases of
/// their own.
fn full(number: usize) -> Lease {
    let mut lease = owned(number);
    lease.owner = Some(worker("host-1: \"quoted\" 'ü'"));
    lease.counter = u64::from(u32::MAX) + 7;
    lease.epoch = u64::from(u32::MAX) + 8;
    lease.token = Some(token(u128::MAX - 3));
    lease.checkpoint = place("49590338271490256608559692538361571095921575989136588898", 0);
    lease.pending = Some(place("49590338271490256608559692538361571095921575989136588899", 0));
    lease.pending_state = Some(binary());
    lease.anchor = Some(Timestamp::from_millis(1_750_000_000_123));
    lease.parents = vec![shard(101), shard(102)];
    lease.children = vec![shard(103), shard(104)];
    lease.hash_range = HashKeyRange::new(HashKey::new(1), HashKey::MAX);
    lease.owner_switches = 3;
    lease.checkpoint_owner = Some(worker("host-2"));
    lease.throughput_kbps = Some(12.25);
    lease.cool_down = Some(CoolDown::new(Duration::from_millis(90_500), 4));
    lease
}

/// Every field of a created row is read back as it was written.
///
/// # Errors
/// [`Violation`].
pub async fn every_field_round_trips(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![full(0), fresh(1)]).await?;
    same("the full row", &row(&*store, 0).await?, &full(0))?;
    same("the bare row", &row(&*store, 1).await?, &fresh(1))?;
    PASSED
}

fn all_fields(of: &Lease) -> Vec<FieldWrite> {
    vec![
        FieldWrite::Owner(of.owner.clone()),
        FieldWrite::AddCounter(of.counter),
        FieldWrite::AddEpoch(of.epoch),
        FieldWrite::Token(of.token),
        FieldWrite::Checkpoint(of.checkpoint.clone()),
        FieldWrite::Pending { checkpoint: of.pending.clone(), state: of.pending_state.clone() },
        FieldWrite::Anchor(of.anchor),
        FieldWrite::Children(of.children.clone()),
        FieldWrite::OwnerSwitches(of.owner_switches),
        FieldWrite::CheckpointOwner(of.checkpoint_owner.clone()),
        FieldWrite::CoolDown(of.cool_down),
    ]
}

/// Every field can be written by an update, one at a time.
///
/// # Errors
/// [`Violation`].
pub async fn every_field_can_be_written(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![fresh(0)]).await?;
    let mut expected = fresh(0);
    let target = full(0);
    let mut fields = all_fields(&target);
    fields.extend(target.hash_range.map(FieldWrite::HashRange));
    fields.extend(target.throughput_kbps.map(FieldWrite::Throughput));
    fields.push(FieldWrite::AddOwnerSwitches(2));
    for field in fields {
        let write = update(0, Guard::Exists, vec![field]);
        expected = applied_by_hand(&write, expected);
        must_apply(&*store, "an update of one field", write).await?;
        same("the row after an update of one field", &row(&*store, 0).await?, &expected)?;
    }
    PASSED
}

/// Every field that may be empty can be emptied.
///
/// # Errors
/// [`Violation`].
pub async fn every_field_can_be_cleared(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![full(0)]).await?;
    let mut bare = row(&*store, 0).await?;
    bare.owner = None;
    bare.token = None;
    bare.pending = None;
    bare.pending_state = None;
    bare.anchor = None;
    bare.children = Vec::new();
    bare.owner_switches = 0;
    bare.checkpoint_owner = None;
    bare.cool_down = None;
    let mut fields = all_fields(&bare);
    fields.retain(|field| !matches!(field, FieldWrite::AddCounter(_) | FieldWrite::AddEpoch(_)));
    must_apply(&*store, "clearing fields", update(0, Guard::Exists, fields)).await?;
    same("the row after clearing fields", &row(&*store, 0).await?, &bare)?;
    PASSED
}

/// Every sentinel and both parts of a position survive, as the checkpoint and as the prepared one.
///
/// # Errors
/// [`Violation`].
pub async fn checkpoints_round_trip(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    let checkpoints = [
        Checkpoint::AtTimestamp,
        Checkpoint::TrimHorizon,
        Checkpoint::Latest,
        place("0", 0),
        place("99", 47),
        place("100", u64::from(u32::MAX)),
        place("49590338271490256608559692538361571095921575989136588898", 99),
        Checkpoint::ShardEnd,
    ];
    for checkpoint in checkpoints {
        let fields = vec![
            FieldWrite::Checkpoint(checkpoint.clone()),
            FieldWrite::Pending { checkpoint: Some(checkpoint.clone()), state: None },
        ];
        must_apply(&*store, "a checkpoint", update(0, Guard::Exists, fields)).await?;
        let found = row(&*store, 0).await?;
        same("the checkpoint", &found.checkpoint, &checkpoint)?;
        same("the prepared checkpoint", &found.pending, &Some(checkpoint))?;
    }
    PASSED
}

/// The kinds of updates that a lease goes through.
fn updates() -> Vec<(&'static str, Vec<FieldWrite>)> {
    vec![
        ("a renewal", vec![FieldWrite::AddCounter(1)]),
        ("a checkpoint", vec![FieldWrite::Checkpoint(place("77", 0)), FieldWrite::AddCounter(1)]),
        (
            "a take",
            vec![
                FieldWrite::Owner(Some(worker("b"))),
                FieldWrite::Token(Some(token(2))),
                FieldWrite::AddCounter(1),
                FieldWrite::AddEpoch(1),
            ],
        ),
        (
            "a hand-over",
            vec![FieldWrite::Owner(Some(worker("c"))), FieldWrite::CheckpointOwner(Some(worker("b")))],
        ),
        (
            "a release",
            vec![
                FieldWrite::Owner(None),
                FieldWrite::CheckpointOwner(None),
                FieldWrite::Token(None),
                FieldWrite::AddCounter(1),
            ],
        ),
    ]
}

fn applied_by_hand(write: &LeaseWrite, lease: Lease) -> Lease {
    write.change.apply_to(Some(lease)).expect("an update keeps the row")
}

/// A write changes the fields that it names and no others.
///
/// # Errors
/// [`Violation`].
pub async fn unnamed_fields_stay(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![full(0)]).await?;
    let mut expected = row(&*store, 0).await?;
    for (what, fields) in updates() {
        let write = update(0, Guard::Exists, fields);
        expected = applied_by_hand(&write, expected);
        must_apply(&*store, what, write).await?;
        same(&format!("the row after {what}"), &row(&*store, 0).await?, &expected)?;
    }
    PASSED
}

/// Private attributes are written, read, replaced and removed by name, and survive every other kind of write.
///
/// # Errors
/// [`Violation`].
pub async fn private_attributes_survive_every_write(factory: &dyn StoreFactory) -> CaseResult {
    let mut lease = owned(0);
    lease.private.insert("note".into(), PrivateValue::Text("it's \"here\"\n".into()));
    lease.private.insert("count".into(), PrivateValue::Number(i64::MIN));
    lease.private.insert("blob".into(), PrivateValue::Binary(binary()));
    let mut expected = lease.private.clone();
    let store = with_rows(factory, vec![lease]).await?;
    same("private attributes after creation", &row(&*store, 0).await?.private, &expected)?;
    for (what, fields) in updates() {
        must_apply(&*store, what, update(0, Guard::Exists, fields)).await?;
        same(&format!("private attributes after {what}"), &row(&*store, 0).await?.private, &expected)?;
    }
    let changes = [
        ("note", Some(PrivateValue::Number(1))),
        ("more", Some(PrivateValue::Text(String::new()))),
        ("count", None),
        ("absent", None),
    ];
    for (name, value) in changes {
        match &value {
            Some(value) => drop(expected.insert(name.into(), value.clone())),
            None => drop(expected.remove(name)),
        }
        private_write(&*store, name, value).await?;
        same("private attributes after writing one", &row(&*store, 0).await?.private, &expected)?;
    }
    PASSED
}

async fn private_write(
    store: &dyn LeaseStore,
    name: &str,
    value: Option<PrivateValue>,
) -> Result<(), Violation> {
    let field = FieldWrite::Private { name: name.into(), value };
    must_apply(store, "a private attribute", update(0, Guard::Exists, vec![field])).await
}

pub(super) fn updates_by_kind(number: usize) -> Vec<(&'static str, LeaseWrite)> {
    updates()
        .into_iter()
        .map(|(what, fields)| (what, LeaseWrite::new(key(number), Guard::Exists, Change::Update(fields))))
        .collect()
}
