//! The operations on leases by name, for programs that work with a store directly.

use std::future::Future;

use kinesis_core::lease::{Lease, LeaseStore, LeaseWrite, Outcome, ScanRequest, StoreError, TenureToken};
use kinesis_core::{ApplicationName, Checkpoint, StreamRef, WorkerId};

use crate::{ops, worker_row};

/// The operations on leases by name, on every store. `setup` is the store's own.
///
/// Each writes what [`ops`] says, and returns the row after the write, or `None` when its condition did not hold:
/// another worker was faster. A [`Coordinator`](crate::Coordinator) does all this by itself.
///
/// # Errors
/// All return [`StoreError`] when the store fails; whether a write was applied is unknown then.
pub trait LeaseStoreExt: LeaseStore {
    /// Makes the row; `None` when there is one already, which stays as it is.
    fn create_if_not_exists(
        &self,
        lease: Lease,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        one(self, ops::create(lease))
    }

    /// All leases of a stream. A row that cannot be read fails the call.
    fn list(
        &self,
        application: &ApplicationName,
        stream: &StreamRef,
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>> + Send {
        async move {
            let mut leases = Vec::new();
            let mut request = ScanRequest::new(application.clone()).stream(stream.clone());
            loop {
                let page = self.scan(&request).await?;
                if let Some(error) = page.unreadable.into_iter().next() {
                    return Err(error);
                }
                leases.extend(page.leases.into_iter().filter(|row| !worker_row::is_one(&row.key)));
                match page.cursor {
                    None => return Ok(leases),
                    cursor => request = request.cursor(cursor),
                }
            }
        }
    }

    /// Takes an unowned lease as it was read; of racing workers exactly one wins.
    fn take(
        &self,
        row: &Lease,
        worker: &WorkerId,
        token: TenureToken,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        let write = row.owner.is_none().then(|| ops::take(row, worker, token));
        async move {
            match write {
                Some(write) => one(self, write).await,
                None => Ok(None),
            }
        }
    }

    /// Takes a lease that has expired, as it was read; a heartbeat since then defeats it.
    fn steal(
        &self,
        row: &Lease,
        worker: &WorkerId,
        token: TenureToken,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        one(self, ops::take(row, worker, token))
    }

    /// Shows that the holder is alive.
    fn renew(
        &self,
        row: &Lease,
        token: TenureToken,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        one(self, ops::renew(row, token))
    }

    /// Stores how far the shard is finished.
    fn checkpoint(
        &self,
        row: &Lease,
        token: TenureToken,
        checkpoint: Checkpoint,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        one(self, ops::checkpoint(row, token, checkpoint))
    }

    /// Gives the lease up, so that anybody can take it at once.
    fn release(
        &self,
        row: &Lease,
        token: TenureToken,
    ) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send {
        one(self, ops::release(row, token, None, None))
    }
}

impl<S: LeaseStore + ?Sized> LeaseStoreExt for S {}

async fn one<S: LeaseStore + ?Sized>(store: &S, write: LeaseWrite) -> Result<Option<Lease>, StoreError> {
    let results = store.apply(std::slice::from_ref(&write)).await;
    let too_few = || StoreError::unavailable("the store gave no result");
    match results.into_iter().next().ok_or_else(too_few)?? {
        Outcome::Applied(row) => Ok(Some(row)),
        _ => Ok(None),
    }
}
