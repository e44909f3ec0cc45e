//! The effect of a write: named fields, and no others.

use bytes::Bytes;

use super::{CoolDown, Lease, PrivateValue, TenureToken};
use crate::{Checkpoint, HashKeyRange, ShardId, Timestamp, WorkerId};

/// What a write does. A store never writes a field that is not named here, and keeps attributes it does not know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Makes the row.
    Create(Box<Lease>),
    /// Writes fields of the row.
    Update(Vec<FieldWrite>),
    /// Removes the row.
    Delete,
}

impl Change {
    /// Makes the row.
    #[must_use]
    pub fn create(lease: Lease) -> Self {
        Self::Create(Box::new(lease))
    }

    /// Applies the change to a row that is held whole, and returns the row as it is then (`None` once deleted).
    ///
    /// A store that keeps whole rows is: lock, load, [`Guard::check`](super::Guard::check), this, save.
    #[must_use]
    pub fn apply_to(&self, current: Option<Lease>) -> Option<Lease> {
        match self {
            Self::Create(lease) => Some((**lease).clone()),
            Self::Delete => None,
            Self::Update(writes) => current.map(|mut lease| {
                for write in writes {
                    write.apply_to(&mut lease);
                }
                lease
            }),
        }
    }
}

/// One field of one write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldWrite {
    /// Sets or clears the owner.
    Owner(Option<WorkerId>),
    /// Adds to the counter.
    AddCounter(u64),
    /// Adds to the epoch.
    AddEpoch(u64),
    /// Sets or clears the token.
    Token(Option<TenureToken>),
    /// Sets the checkpoint.
    Checkpoint(Checkpoint),
    /// Sets or clears the prepared position and the bytes kept with it.
    Pending {
        /// The position.
        checkpoint: Option<Checkpoint>,
        /// The bytes.
        state: Option<Bytes>,
    },
    /// Sets or clears the anchor.
    Anchor(Option<Timestamp>),
    /// Sets the children.
    Children(Vec<ShardId>),
    /// Sets the hash range.
    HashRange(HashKeyRange),
    /// Sets the number of owner switches.
    OwnerSwitches(u64),
    /// Adds to the number of owner switches.
    AddOwnerSwitches(u64),
    /// Sets or clears the checkpoint owner.
    CheckpointOwner(Option<WorkerId>),
    /// Sets the throughput.
    Throughput(f64),
    /// Sets or clears the cool-down.
    CoolDown(Option<CoolDown>),
    /// Sets or removes a private attribute.
    Private {
        /// The attribute's name.
        name: String,
        /// The value; `None` removes the attribute.
        value: Option<PrivateValue>,
    },
}

impl FieldWrite {
    fn apply_to(&self, lease: &mut Lease) {
        match self {
            Self::Owner(owner) => lease.owner.clone_from(owner),
            Self::AddCounter(amount) => lease.counter += amount,
            Self::AddEpoch(amount) => lease.epoch += amount,
            Self::Token(token) => lease.token = *token,
            Self::Checkpoint(checkpoint) => lease.checkpoint.clone_from(checkpoint),
            Self::Pending { checkpoint, state } => {
                lease.pending.clone_from(checkpoint);
                lease.pending_state.clone_from(state);
            }
            Self::Anchor(anchor) => lease.anchor = *anchor,
            Self::Children(children) => lease.children.clone_from(children),
            Self::HashRange(range) => lease.hash_range = Some(*range),
            Self::OwnerSwitches(number) => lease.owner_switches = *number,
            Self::AddOwnerSwitches(amount) => lease.owner_switches += amount,
            Self::CheckpointOwner(owner) => lease.checkpoint_owner.clone_from(owner),
            Self::Throughput(kbps) => lease.throughput_kbps = Some(*kbps),
            Self::CoolDown(cool_down) => lease.cool_down = *cool_down,
            Self::Private { name, value: Some(value) } => {
                lease.private.insert(name.clone(), value.clone());
            }
            Self::Private { name, value: None } => {
                lease.private.remove(name);
            }
        }
    }
}
