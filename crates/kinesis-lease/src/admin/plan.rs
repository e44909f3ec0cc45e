//! What is to be done to leases, and what became of it.

use std::fmt;

use kinesis_core::lease::{Lease, LeaseKey, StoreError};
use kinesis_core::{Checkpoint, Timestamp};

/// What is to be done to one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlannedChange {
    /// Set to another position, and taken from its holder.
    #[non_exhaustive]
    Reset {
        /// The position.
        to: Checkpoint,
        /// The time that belongs to a start at a time.
        anchor: Option<Timestamp>,
    },
    /// Taken from its holder.
    Release,
    /// Removed.
    Delete,
    /// Made, unless it exists.
    Import,
}

/// What is to be done, before it is done. Its `Display` is one line for each lease, and one for each that is left out
/// because its row cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminPlan {
    changes: Vec<(Lease, PlannedChange)>,
    unreadable: Vec<LeaseKey>,
}

impl AdminPlan {
    pub(super) fn new(changes: Vec<(Lease, PlannedChange)>, unreadable: Vec<LeaseKey>) -> Self {
        Self { changes, unreadable }
    }

    /// Each lease as it was read, and what is to be done to it.
    #[must_use]
    pub fn changes(&self) -> &[(Lease, PlannedChange)] {
        &self.changes
    }

    /// The selected leases whose rows cannot be read. [`LeaseAdmin::apply`](crate::LeaseAdmin::apply) leaves them as they
    /// are.
    #[must_use]
    pub fn unreadable(&self) -> &[LeaseKey] {
        &self.unreadable
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl fmt::Display for AdminPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lease, change) in &self.changes {
            let key = &lease.key;
            let owner = lease.holder().map_or("nobody", |holder| holder.as_str());
            match change {
                PlannedChange::Reset { to, anchor } => {
                    write!(f, "reset {key} from {} to {to}", lease.checkpoint)?;
                    if let Some(anchor) = anchor {
                        write!(f, " {} ms", anchor.as_millis())?;
                    }
                    writeln!(f, ", held by {owner}")?;
                }
                PlannedChange::Release => writeln!(f, "release {key}, held by {owner}")?,
                PlannedChange::Delete => {
                    writeln!(f, "delete {key} at {}, held by {owner}", lease.checkpoint)?
                }
                PlannedChange::Import => writeln!(f, "import {key} at {}", lease.checkpoint)?,
            }
        }
        for key in &self.unreadable {
            writeln!(f, "leave out {key}, whose row cannot be read")?;
        }
        Ok(())
    }
}

/// What became of one change of a plan.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminResult {
    /// It is done.
    Done(LeaseKey),
    /// The lease changed hands since it was planned, or (for an import) exists: it was left alone.
    Changed(LeaseKey),
    /// The store failed; whether the change was made is unknown.
    #[non_exhaustive]
    Failed {
        /// The lease.
        key: LeaseKey,
        /// The store's answer.
        source: StoreError,
    },
}

impl AdminResult {
    /// Whether the change was made.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}
