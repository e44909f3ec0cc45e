//! Looking after leases from outside: what an operator does to a running or stopped application.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinesis_core::lease::{Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanRequest, StoreError};
use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, Timestamp};
use tokio::time::Instant;

use crate::{ops, worker_row};
pub use plan::{AdminPlan, AdminResult, PlannedChange};

/// The most writes of one call.
const BATCH: usize = 100;
/// How often a change is tried anew because a live holder renewed its lease in between.
const TRIES: u32 = 5;

/// Which leases.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// All of the application, or of the stream that the [`LeaseAdmin`] is limited to.
    All,
    /// Those of these shards.
    Shards(Vec<ShardId>),
}

/// Where a lease is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetTo {
    /// The oldest record that the service still has.
    TrimHorizon,
    /// The first record that arrived at this time or later. For the tip, take the service's time.
    Timestamp(Timestamp),
    /// After this place: everything up to and including it counts as finished.
    Position(Position),
}

/// A lease as a listing found it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LeaseEntry {
    /// Its row.
    pub lease: Lease,
    /// For how long its counter has stood still since this [`LeaseAdmin`] first saw it like that. Rows hold no time, so
    /// the first listing knows of none.
    pub age: Duration,
}

/// All leases, and those that cannot be read.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// In the order of their keys.
    pub leases: Vec<LeaseEntry>,
    /// Rows that cannot be read; the others are not affected.
    pub unreadable: Vec<StoreError>,
}

/// Lists and changes the leases of an application in any store.
///
/// Every change is made in two steps: a `plan_*` method reads the rows and says what it would do, and
/// [`apply`](Self::apply) does it. Each write is guarded: a lease that changed hands since it was planned is left alone
/// and reported. A worker that holds a changed lease stops its work within one look, with the reason
/// [`LossReason::Changed`](crate::LossReason::Changed) or [`Deleted`](crate::LossReason::Deleted).
///
/// ```
/// use kinesis_core::{ApplicationName, Checkpoint, ShardId, StreamRef};
/// use kinesis_lease::{Lease, LeaseAdmin, LeaseKey, LeaseStoreExt, MemoryStore, ResetTo, Selection};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let application = ApplicationName::new("billing")?;
/// let store = MemoryStore::new();
/// let key = LeaseKey::new(application.clone(), StreamRef::new("orders")?, ShardId::new("shardId-000000000000")?);
/// store.create_if_not_exists(Lease::new(key, Checkpoint::Latest)).await?;
///
/// let admin = LeaseAdmin::new(store, application);
/// let plan = admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await?;
/// println!("{plan}");
/// assert!(admin.apply(plan).await.iter().all(|result| result.is_done()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaseAdmin {
    store: Arc<dyn LeaseStore>,
    application: ApplicationName,
    stream: Option<StreamRef>,
    /// What was seen when, for ages.
    seen: Mutex<BTreeMap<LeaseKey, (u64, Instant)>>,
}

impl LeaseAdmin {
    /// For all leases of an application.
    pub fn new(store: impl LeaseStore, application: ApplicationName) -> Self {
        Self { store: Arc::new(store), application, stream: None, seen: Mutex::default() }
    }

    /// Only for the leases of one stream, given by name or by ARN.
    #[must_use]
    pub fn stream(mut self, stream: &StreamRef) -> Self {
        self.stream = Some(crate::coordinator::by_name(stream));
        self
    }

    /// All leases with owner, position and age.
    ///
    /// # Errors
    /// [`StoreError`]. Rows that cannot be read are listed and do not fail the call. Cancel-safe.
    pub async fn list(&self) -> Result<Listing, StoreError> {
        let (rows, unreadable) = self.rows().await?;
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entry = |lease: Lease| {
            let at = seen.entry(lease.key.clone()).or_insert((lease.counter, now));
            if at.0 != lease.counter {
                *at = (lease.counter, now);
            }
            LeaseEntry { age: now - at.1, lease }
        };
        let leases = rows.into_iter().map(&mut entry).collect();
        Ok(Listing { leases, unreadable })
    }

    /// All leases as they are, for [`plan_import`](Self::plan_import) into another store.
    ///
    /// # Errors
    /// [`StoreError`], also for a row that cannot be read: an export is complete or it is none. Cancel-safe.
    pub async fn export(&self) -> Result<Vec<Lease>, StoreError> {
        let (rows, unreadable) = self.rows().await?;
        match unreadable.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(rows),
        }
    }

    /// Plans to set leases to another position, also back, and to take them from their holders. Finished shards are
    /// read again, as far as the service still has them; their children wait for them.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be listed. A single row that cannot be read is left out and shown in the plan.
    /// Nothing is written.
    pub async fn plan_reset(&self, selection: &Selection, to: &ResetTo) -> Result<AdminPlan, StoreError> {
        let (checkpoint, anchor) = match to {
            ResetTo::TrimHorizon => (Checkpoint::TrimHorizon, None),
            ResetTo::Timestamp(timestamp) => (Checkpoint::AtTimestamp, Some(*timestamp)),
            ResetTo::Position(position) => (Checkpoint::At(position.clone()), None),
        };
        let change = PlannedChange::Reset { to: checkpoint, anchor };
        self.plan(selection, &change, |_| true).await
    }

    /// Plans to take leases from their holders, so that any worker can take them at once.
    ///
    /// # Errors
    /// As for [`plan_reset`](Self::plan_reset).
    pub async fn plan_release(&self, selection: &Selection) -> Result<AdminPlan, StoreError> {
        self.plan(selection, &PlannedChange::Release, |lease| lease.owner.is_some()).await
    }

    /// Plans to remove leases. What the service still lists gets a new one with the next discovery of a running worker,
    /// from its start position or, behind a known shard, from its first record. Its epoch begins anew then: systems that
    /// fence by it have to be told.
    ///
    /// # Errors
    /// As for [`plan_reset`](Self::plan_reset).
    pub async fn plan_delete(&self, selection: &Selection) -> Result<AdminPlan, StoreError> {
        self.plan(selection, &PlannedChange::Delete, |_| true).await
    }

    /// Plans to make leases that were exported from another store: with their positions, and without owners. Leases
    /// that exist are never changed; they are reported when the plan is applied.
    #[must_use]
    pub fn plan_import(&self, leases: Vec<Lease>) -> AdminPlan {
        let import = |mut lease: Lease| {
            let stream = self.stream.clone().unwrap_or_else(|| lease.key.stream().clone());
            lease.key = LeaseKey::new(self.application.clone(), stream, lease.key.shard().clone());
            (lease.owner, lease.token, lease.checkpoint_owner) = (None, None, None);
            (lease, PlannedChange::Import)
        };
        AdminPlan::new(leases.into_iter().map(import).collect(), Vec::new())
    }

    async fn plan(
        &self,
        selection: &Selection,
        change: &PlannedChange,
        concerns: impl Fn(&Lease) -> bool + Send,
    ) -> Result<AdminPlan, StoreError> {
        let (rows, errors) = self.rows().await?;
        let is_selected = |key: &LeaseKey| match selection {
            Selection::All => true,
            Selection::Shards(shards) => shards.contains(key.shard()),
        };
        let mut unreadable = Vec::new();
        for error in errors {
            match error {
                StoreError::Corrupt { key, .. } if is_selected(&key) => unreadable.push(*key),
                StoreError::Corrupt { .. } => {}
                other => return Err(other),
            }
        }
        unreadable.sort();
        let rows = rows.into_iter().filter(|lease| is_selected(&lease.key) && concerns(lease));
        Ok(AdminPlan::new(rows.map(|lease| (lease, change.clone())).collect(), unreadable))
    }

    /// Does what was planned, and says of each lease what became of it, in the order of the plan.
    ///
    /// Dropping the future leaves some of the changes made and others not.
    pub async fn apply(&self, plan: AdminPlan) -> Vec<AdminResult> {
        let mut results = Vec::new();
        for planned in plan.changes().chunks(BATCH) {
            let writes: Vec<LeaseWrite> = planned.iter().map(|(lease, change)| change.write(lease)).collect();
            let outcomes = self.store.apply(&writes).await;
            let mut outcomes = outcomes.into_iter();
            for (lease, change) in planned {
                let too_few = || Err(StoreError::unavailable("the store gave too few results"));
                let outcome = outcomes.next().unwrap_or_else(too_few);
                results.push(self.settle(lease, change, outcome).await);
            }
        }
        results
    }

    /// A live holder renews its lease between plan and write; as long as the lease is still that tenure's, the change is
    /// tried again.
    async fn settle(
        &self,
        planned: &Lease,
        change: &PlannedChange,
        mut outcome: Result<Outcome, StoreError>,
    ) -> AdminResult {
        let key = planned.key.clone();
        let mut tries = 0;
        loop {
            let current = match outcome {
                Ok(Outcome::Applied(_)) => return AdminResult::Done(key),
                Ok(Outcome::Refused { current }) => current,
                Ok(_) => None,
                Err(source) => return AdminResult::Failed { key, source },
            };
            tries += 1;
            let same_tenure = |row: &Lease| row.epoch == planned.epoch && row.owner == planned.owner;
            let may_repeat = tries < TRIES && !matches!(change, PlannedChange::Import);
            let Some(row) = current.filter(|row| may_repeat && same_tenure(row)) else {
                return AdminResult::Changed(key);
            };
            let results = self.store.apply(&[change.write(&row)]).await;
            let too_few = || Err(StoreError::unavailable("the store gave no result"));
            outcome = results.into_iter().next().unwrap_or_else(too_few);
        }
    }

    async fn rows(&self) -> Result<(Vec<Lease>, Vec<StoreError>), StoreError> {
        let mut request = ScanRequest::new(self.application.clone());
        request.stream.clone_from(&self.stream);
        let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
        loop {
            let page = self.store.scan(&request).await?;
            rows.extend(page.leases.into_iter().filter(|row| !worker_row::is_one(&row.key)));
            let is_lease = |error: &StoreError| !matches!(error, StoreError::Corrupt { key, .. } if worker_row::is_one(key));
            unreadable.extend(page.unreadable.into_iter().filter(is_lease));
            match page.cursor {
                None => break,
                cursor => request = request.cursor(cursor),
            }
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok((rows, unreadable))
    }
}

impl PlannedChange {
    fn write(&self, lease: &Lease) -> LeaseWrite {
        match self {
            Self::Reset { to, anchor } => ops::reset(lease, to.clone(), *anchor),
            Self::Release => ops::evict(lease),
            Self::Delete => ops::collect(lease),
            Self::Import => ops::create(lease.clone()),
        }
    }
}
