//! A lease store of one's own, over something that keeps whole rows under text keys: here a map, elsewhere etcd,
//! Redis, FoundationDB or a table that a team already has.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use kinesis_core::lease::{
    Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
};

type Rows = BTreeMap<String, Lease>;

/// The rows, in the order of their keys. A clone has the same rows, as another worker would.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyValueStore {
    rows: Arc<Mutex<Rows>>,
}

impl KeyValueStore {
    /// The lock makes each write below atomic. A database has a transaction or a compare-and-set for that.
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names have no control characters, so line breaks divide them.
fn text(key: &LeaseKey) -> String {
    format!("{}\n{}\n{}", key.application(), key.stream(), key.shard())
}

/// Lock, load, check, apply, save: the rules are in `Guard` and `Change`, a store only has to be atomic.
fn apply_one(rows: &mut Rows, write: &LeaseWrite) -> Outcome {
    let key = text(&write.key);
    let current = rows.get(&key).cloned();
    if !write.guard.check(current.as_ref()) {
        return Outcome::Refused { current };
    }
    match write.change.apply_to(current.clone()) {
        Some(row) => {
            rows.insert(key, row.clone());
            Outcome::Applied(row)
        }
        None => {
            rows.remove(&key);
            current.map_or(Outcome::Refused { current: None }, Outcome::Applied)
        }
    }
}

#[async_trait]
impl LeaseStore for KeyValueStore {
    /// Makes tables and checks permissions, so that a mistake shows at the start.
    async fn setup(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let rows = self.lock();
        Ok(keys.iter().map(|key| rows.get(&text(key)).cloned()).collect())
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        // A store that does not divide its rows has them all in the first segment.
        if request.segment > 0 {
            return Ok(ScanPage::default());
        }
        let rows = self.lock();
        let after = request.cursor.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut wanted = rows
            .range((after, Bound::Unbounded))
            .filter(|(_, row)| *row.key.application() == request.application)
            .filter(|(_, row)| request.stream.as_ref().is_none_or(|stream| row.key.stream() == stream));
        let page: Vec<(&String, &Lease)> = wanted.by_ref().take(request.limit).collect();
        let cursor = wanted.next().and(page.last()).map(|(key, _)| (*key).clone());
        Ok(ScanPage::new(page.into_iter().map(|(_, row)| row.clone()).collect(), cursor))
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let mut rows = self.lock();
        writes.iter().map(|write| Ok(apply_one(&mut rows, write))).collect()
    }
}
