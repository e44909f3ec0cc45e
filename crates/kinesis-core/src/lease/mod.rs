//! Leases: who works on which shard, and how far the work is. The store trait, its rows, guarded writes.
//!
//! A store is four methods over guarded, field-wise writes; everything that a lease goes through (taking, renewing,
//! checkpointing, handing over) is written once above it. `kinesis-lease` has stores and the coordinator; this
//! module has what other people's stores need, and nothing that changes when a database driver does.

mod change;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod error;
mod guard;
mod profile;
mod row;
mod store;

pub use change::{Change, FieldWrite};
pub use error::StoreError;
pub use guard::Guard;
pub use profile::{HintRequest, LeaseHints, ScanCost, StoreProfile};
pub use row::{CoolDown, Fence, Lease, LeaseKey, PrivateValue, TenureToken};
pub use store::{LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest};
