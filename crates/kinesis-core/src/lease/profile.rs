//! What a store may tell about itself besides its rows: what reads cost, and hints that a look is worth while.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Change, FieldWrite, LeaseWrite, StoreError};
use crate::{ApplicationName, StreamRef};

/// What reading all rows costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ScanCost {
    /// One cheap statement, however many rows: workers read all of them each second.
    #[default]
    PerScan,
    /// Each row read is paid for: workers read all rows now and then, and in between by key those that something hangs
    /// on.
    PerRow,
}

/// What a store says about itself, so that workers can be sparing with it and patient with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreProfile {
    /// What reading all rows costs. Default: one cheap statement.
    pub scan_cost: ScanCost,
    /// How long [`setup`](super::LeaseStore::setup) may take. Default: [`DEFAULT_SETUP_TIMEOUT`](Self::DEFAULT_SETUP_TIMEOUT).
    pub setup_timeout: Duration,
}

impl StoreProfile {
    /// How long `setup` may take unless the store says otherwise.
    pub const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(60);

    /// Sets [`scan_cost`](Self::scan_cost).
    #[must_use]
    pub fn scan_cost(mut self, cost: ScanCost) -> Self {
        self.scan_cost = cost;
        self
    }

    /// Sets [`setup_timeout`](Self::setup_timeout).
    #[must_use]
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.setup_timeout = timeout;
        self
    }
}

impl Default for StoreProfile {
    fn default() -> Self {
        Self { scan_cost: ScanCost::default(), setup_timeout: Self::DEFAULT_SETUP_TIMEOUT }
    }
}

/// Which hints a worker wants.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HintRequest {
    /// The application.
    pub application: ApplicationName,
    /// The stream.
    pub stream: StreamRef,
    /// How often a store that has to ask for hints asks.
    pub interval: Duration,
}

impl HintRequest {
    /// Hints about the leases of a stream.
    #[must_use]
    pub fn new(application: ApplicationName, stream: StreamRef, interval: Duration) -> Self {
        Self { application, stream, interval }
    }
}

/// Hints that leases may have become free, so that workers need not wait for their next look.
///
/// Only a hint: one that is missed costs the time until the next look, one too many costs a look.
#[async_trait]
pub trait LeaseHints: fmt::Debug + Send {
    /// Returns when a lease may have become free since the last call. Nothing is lost when the future is dropped and
    /// made anew.
    ///
    /// # Errors
    /// [`StoreError`] when there can be no hint right now; the caller waits for a while before it calls again.
    async fn next(&mut self) -> Result<(), StoreError>;
}

impl LeaseWrite {
    /// Whether the write, once applied, leaves something that any worker may take at once: a lease without an owner, a
    /// new one, or the end of a shard whose children wait for it. A store with [hints](super::LeaseStore::hints) gives
    /// one after such writes, one for all of a call.
    #[must_use]
    pub fn frees(&self) -> bool {
        match &self.change {
            Change::Create(lease) => lease.owner.is_none(),
            Change::Update(fields) => {
                fields.iter().any(|field| matches!(field, FieldWrite::Owner(None)))
                    && !fields.iter().any(|field| matches!(field, FieldWrite::CoolDown(Some(_))))
            }
            Change::Delete => false,
        }
    }
}
