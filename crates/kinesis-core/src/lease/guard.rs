//! The condition of a write.

use super::{Lease, TenureToken};
use crate::WorkerId;

/// What must be true of the row for a write to be applied; checked and applied in one atomic step.
///
/// Each form is one that the KCL uses too, so that every kind of store and a table shared with Java can express it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// There is no row. (KCL: create.)
    Absent,
    /// There is a row. (KCL: update of children or hash range.)
    Exists,
    /// The counter has this value. (KCL: take, renew and checkpoint of version 2.)
    Counter(u64),
    /// Owner and counter have these values.
    OwnerCounter {
        /// The owner; `None` means unowned.
        owner: Option<WorkerId>,
        /// The counter.
        counter: u64,
    },
    /// Counter and tenure token have these values: the write of a holder.
    Tenure {
        /// The counter.
        counter: u64,
        /// The token of the tenure.
        token: TenureToken,
    },
    /// Owner and checkpoint owner have these values. (KCL: assign and evict of version 3.)
    Owners {
        /// The owner; `None` means unowned.
        owner: Option<WorkerId>,
        /// The checkpoint owner; `None` means no hand-over.
        checkpoint_owner: Option<WorkerId>,
    },
    /// The counter has this value and no hand-over is under way. (KCL: renew of version 3.)
    CounterNoHandoff(u64),
}

impl Guard {
    /// Whether a write with this guard may be applied to `current`.
    #[must_use]
    pub fn check(&self, current: Option<&Lease>) -> bool {
        let Some(lease) = current else {
            return *self == Self::Absent;
        };
        match self {
            Self::Absent => false,
            Self::Exists => true,
            Self::Counter(counter) => lease.counter == *counter,
            Self::OwnerCounter { owner, counter } => lease.owner == *owner && lease.counter == *counter,
            Self::Tenure { counter, token } => lease.counter == *counter && lease.token == Some(*token),
            Self::Owners { owner, checkpoint_owner } => {
                lease.owner == *owner && lease.checkpoint_owner == *checkpoint_owner
            }
            Self::CounterNoHandoff(counter) => lease.counter == *counter && lease.checkpoint_owner.is_none(),
        }
    }
}
