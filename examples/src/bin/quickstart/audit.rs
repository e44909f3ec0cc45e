//! A lease store around another: writes down what was accepted, and breaks a guarantee when told to.

use std::sync::Arc;

use async_trait::async_trait;
use kinesis_core::lease::{
    Change, Guard, HintRequest, Lease, LeaseHints, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage,
    ScanRequest, StoreError, StoreProfile,
};

use crate::args::Break;
use crate::log::{Line, Log};

#[derive(Debug)]
pub(crate) struct AuditedStore<S> {
    inner: S,
    log: Arc<Log>,
    broken: Option<Break>,
}

impl<S> AuditedStore<S> {
    pub(crate) fn new(inner: S, log: Arc<Log>, broken: Option<Break>) -> Self {
        Self { inner, log, broken }
    }

    fn break_write(&self, write: &LeaseWrite) -> LeaseWrite {
        match (self.broken, &write.guard, &write.change) {
            // Whoever wrote last is right, as in a store without conditions.
            (Some(Break::Fence), Guard::Tenure { .. }, change) => {
                LeaseWrite::new(write.key.clone(), Guard::Exists, change.clone())
            }
            // A child that forgot where it came from waits for nobody.
            (Some(Break::Parents), _, Change::Create(lease)) => {
                let mut orphan: Lease = (**lease).clone();
                orphan.parents.clear();
                LeaseWrite::create(orphan)
            }
            _ => write.clone(),
        }
    }
}

#[async_trait]
impl<S: LeaseStore> LeaseStore for AuditedStore<S> {
    async fn setup(&self) -> Result<(), StoreError> {
        self.inner.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.inner.get(keys).await
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.inner.scan(request).await
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let sent: Vec<LeaseWrite> = writes.iter().map(|write| self.break_write(write)).collect();
        let results = self.inner.apply(&sent).await;
        let mut lines = Vec::new();
        for (write, result) in writes.iter().zip(&results) {
            let (Guard::Tenure { token, .. }, Ok(Outcome::Applied(lease))) = (&write.guard, result) else {
                continue;
            };
            // A release clears the token and belongs to the tenure that it ends.
            let stale = lease.token.is_some_and(|current| current != *token);
            lines.push(Line::Written {
                shard: lease.key.shard().to_string(),
                epoch: lease.epoch,
                counter: lease.counter,
                checkpoint: lease.checkpoint.to_string(),
                stale,
            });
        }
        // A worker that cannot write its log must not go on: its work would not count.
        match self.log.write(&lines) {
            Ok(()) => results,
            Err(error) => {
                let text = error.to_string();
                writes.iter().map(|_| Err(StoreError::unavailable(text.clone()))).collect()
            }
        }
    }

    fn profile(&self) -> StoreProfile {
        self.inner.profile()
    }

    fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
        self.inner.hints(request)
    }
}
