//! Leases in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use kinesis_core::lease::{
    Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
};

/// Leases in memory: for tests, and for programs of one process that may start from the beginning.
///
/// A clone looks at the same rows.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    rows: Arc<Mutex<BTreeMap<LeaseKey, Lease>>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All rows as they are now, in the order of their keys.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Lease> {
        self.rows().values().cloned().collect()
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Lease>> {
        // Every change is one insertion or removal, so a panic elsewhere leaves no half-written row.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies one write to a map of whole rows.
pub(crate) fn apply_to_rows(rows: &mut BTreeMap<LeaseKey, Lease>, write: &LeaseWrite) -> Outcome {
    let current = rows.get(&write.key).cloned();
    if !write.guard.check(current.as_ref()) {
        return Outcome::Refused { current };
    }
    match write.change.apply_to(current.clone()) {
        Some(lease) => {
            rows.insert(write.key.clone(), lease.clone());
            Outcome::Applied(lease)
        }
        None => {
            let last = rows.remove(&write.key).or(current);
            last.map_or(Outcome::Refused { current: None }, Outcome::Applied)
        }
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn setup(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let rows = self.rows();
        Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        if request.segment > 0 {
            return Ok(ScanPage::default());
        }
        let rows = self.rows();
        let after = match &request.cursor {
            Some(cursor) => Some(cursor_key(request, cursor)?),
            None => None,
        };
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = rows
            .range((start, Bound::Unbounded))
            .filter(|(key, _)| *key.application() == request.application)
            .filter(|(key, _)| request.stream.as_ref().is_none_or(|stream| key.stream() == stream));
        let leases: Vec<Lease> = found.by_ref().take(request.limit).map(|(_, lease)| lease.clone()).collect();
        let more = found.next().is_some();
        let cursor = leases.last().filter(|_| more).map(|lease| cursor_of(&lease.key));
        Ok(ScanPage::new(leases, cursor))
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let mut rows = self.rows();
        writes.iter().map(|write| Ok(apply_to_rows(&mut rows, write))).collect()
    }
}

/// Names have no control characters, so a line break divides them.
pub(crate) fn cursor_of(key: &LeaseKey) -> String {
    format!("{}\n{}", key.stream(), key.shard())
}

pub(crate) fn cursor_key(request: &ScanRequest, cursor: &str) -> Result<LeaseKey, StoreError> {
    let foreign = || StoreError::misconfigured("the scan cursor is not one of this store", None);
    let (stream, shard) = cursor.split_once('\n').ok_or_else(foreign)?;
    let stream = stream.parse().map_err(|_| foreign())?;
    let shard = shard.parse().map_err(|_| foreign())?;
    Ok(LeaseKey::new(request.application.clone(), stream, shard))
}
