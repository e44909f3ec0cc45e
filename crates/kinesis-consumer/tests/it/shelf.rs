//! A lease store whose troubles a test chooses, and which remembers what was written.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_consumer::core::lease::{
    Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
};
use kinesis_consumer::lease::MemoryStore;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trouble {
    #[default]
    None,
    /// Every call fails.
    Down,
    /// Every call takes this long; writes are applied first.
    SlowAnswers(Duration),
    /// Every call takes this long before it does anything.
    SlowCalls(Duration),
}

/// Stops a run at its n-th step: whoever comes there goes no further.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    stop_at: AtomicUsize,
    taken: AtomicUsize,
    pub(crate) stopped: Notify,
}

impl Steps {
    pub(crate) fn stop_at(&self, step: usize) {
        self.taken.store(0, Ordering::SeqCst);
        self.stop_at.store(step, Ordering::SeqCst);
    }

    pub(crate) async fn step(&self) {
        let stop_at = self.stop_at.load(Ordering::SeqCst);
        if stop_at > 0 && self.taken.fetch_add(1, Ordering::SeqCst) + 1 >= stop_at {
            self.stopped.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    inner: MemoryStore,
    trouble: Mutex<Trouble>,
    writes: Mutex<Vec<(Instant, Lease)>>,
    pub(crate) scans: AtomicU32,
    pub(crate) steps: Steps,
}

impl Shelf {
    pub(crate) fn trouble(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap() = trouble;
    }

    pub(crate) fn rows(&self) -> Vec<Lease> {
        self.inner.snapshot()
    }

    /// The rows after each write that was applied, with its time.
    pub(crate) fn writes_of(&self, shard: &str) -> Vec<(Instant, Lease)> {
        let writes = self.writes.lock().unwrap();
        writes.iter().filter(|(_, row)| row.key.shard().as_str() == shard).cloned().collect()
    }

    async fn before(&self) -> Result<Duration, StoreError> {
        self.steps.step().await;
        let trouble = *self.trouble.lock().unwrap();
        match trouble {
            Trouble::None => Ok(Duration::ZERO),
            Trouble::Down => Err(StoreError::unavailable("the store is down")),
            Trouble::SlowAnswers(time) => Ok(time),
            Trouble::SlowCalls(time) => {
                tokio::time::sleep(time).await;
                Ok(Duration::ZERO)
            }
        }
    }
}

#[async_trait]
impl LeaseStore for Shelf {
    async fn setup(&self) -> Result<(), StoreError> {
        self.before().await?;
        self.inner.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let late = self.before().await?;
        let rows = self.inner.get(keys).await;
        tokio::time::sleep(late).await;
        rows
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        let late = self.before().await?;
        let page = self.inner.scan(request).await;
        tokio::time::sleep(late).await;
        page
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let late = match self.before().await {
            Ok(late) => late,
            Err(_) => {
                return writes.iter().map(|_| Err(StoreError::unavailable("the store is down"))).collect();
            }
        };
        let outcomes = self.inner.apply(writes).await;
        for outcome in &outcomes {
            if let Ok(Outcome::Applied(row)) = outcome {
                self.writes.lock().unwrap().push((Instant::now(), row.clone()));
            }
        }
        self.steps.step().await;
        tokio::time::sleep(late).await;
        outcomes
    }
}
