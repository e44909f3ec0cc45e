//! A store of one's own: whole rows behind a lock, with the guards and changes of `kinesis-core`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kinesis_core::lease::conformance::StoreFactory;
use kinesis_core::{ApplicationName, Checkpoint, ShardId, StreamRef, WorkerId};
use kinesis_lease::{
    Lease, LeaseKey, LeaseStore, LeaseStoreExt, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
    TenureToken,
};

#[derive(Debug, Clone, Default)]
struct MyStore(Arc<Mutex<BTreeMap<LeaseKey, Lease>>>);

#[async_trait]
impl LeaseStore for MyStore {
    async fn setup(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let rows = self.0.lock().unwrap();
        Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        if request.segment > 0 {
            return Ok(ScanPage::default());
        }
        let skip: usize = request.cursor.as_deref().map_or(0, |cursor| cursor.parse().unwrap());
        let rows = self.0.lock().unwrap();
        let mut matching = rows
            .values()
            .filter(|row| *row.key.application() == request.application)
            .filter(|row| request.stream.as_ref().is_none_or(|stream| row.key.stream() == stream))
            .skip(skip);
        let leases: Vec<Lease> = matching.by_ref().take(request.limit).cloned().collect();
        let cursor = matching.next().is_some().then(|| (skip + leases.len()).to_string());
        Ok(ScanPage::new(leases, cursor))
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let mut rows = self.0.lock().unwrap();
        let mut results = Vec::new();
        for write in writes {
            let current = rows.remove(&write.key);
            let holds = write.guard.check(current.as_ref());
            let next = if holds { write.change.apply_to(current.clone()) } else { current.clone() };
            rows.extend(next.clone().map(|row| (write.key.clone(), row)));
            results.push(Ok(match next.or(current) {
                Some(row) if holds => Outcome::Applied(row),
                current => Outcome::Refused { current },
            }));
        }
        results
    }
}

#[derive(Debug, Default)]
struct Factory(MyStore);

#[async_trait]
impl StoreFactory for Factory {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.0.clone())
    }
}

/// S-054: a store of a user runs the public conformance suite.
mod suite {
    use super::*;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        Factory::default()
    }
}

/// S-054, S-036 to S-041, S-058: the operations by name, on a store behind the trait.
#[tokio::test]
async fn the_operations_are_there_by_name() {
    let store: Arc<dyn LeaseStore> = Arc::new(MyStore::default());
    let (application, stream) = (ApplicationName::new("app").unwrap(), StreamRef::new("stream").unwrap());
    let key = LeaseKey::new(application.clone(), stream.clone(), ShardId::new("shard-1").unwrap());
    let (a, b) = (WorkerId::new("a").unwrap(), WorkerId::new("b").unwrap());
    let (first, second) = (TenureToken::from_random(1), TenureToken::from_random(2));
    let at = |sequence: u128| {
        Checkpoint::At(kinesis_core::Position::from(kinesis_core::SequenceNumber::from(sequence)))
    };

    store.setup().await.unwrap();
    let lease = Lease::new(key, Checkpoint::TrimHorizon);
    assert!(store.create_if_not_exists(lease.clone()).await.unwrap().is_some());
    assert!(store.create_if_not_exists(lease.clone()).await.unwrap().is_none());
    assert_eq!(store.list(&application, &stream).await.unwrap(), std::slice::from_ref(&lease));

    let taken = store.take(&lease, &a, first).await.unwrap().expect("it was unowned");
    assert!(store.take(&lease, &b, second).await.unwrap().is_none(), "one wins");
    assert!(store.take(&taken, &b, second).await.unwrap().is_none(), "it is owned");
    let renewed = store.renew(&taken, first).await.unwrap().expect("it is ours");
    assert_eq!(renewed.counter, taken.counter + 1);
    assert!(store.renew(&renewed, second).await.unwrap().is_none(), "not ours");
    assert!(store.steal(&taken, &b, second).await.unwrap().is_none(), "a heartbeat was later");
    let stored = store.checkpoint(&renewed, first, at(5)).await.unwrap().expect("it is ours");
    let stolen = store.steal(&stored, &b, second).await.unwrap().expect("no heartbeat since");
    assert_eq!((stolen.epoch, stolen.owner_switches, stolen.checkpoint.clone()), (2, 1, at(5)));
    assert!(store.checkpoint(&stored, first, at(6)).await.unwrap().is_none(), "the former owner");
    let released = store.release(&stolen, second).await.unwrap().expect("it is ours");
    assert_eq!((released.owner, released.checkpoint), (None, at(5)));
}
