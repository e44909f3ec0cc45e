//! Calls to the store: each with a time limit, none waiting for another.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::{Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanRequest, StoreError};
use kinesis_core::{ApplicationName, Checkpoint, StreamRef};

use crate::discovery::{self, Start};
use crate::identity::StreamIdentity;
use crate::machine::{Found, Look};
use crate::{Coordination, RegimeProbe, TableTenants, ops, worker_row};

/// The most leases made by one call.
const CREATE_BATCH: usize = 100;
/// Tries of a call of a discovery; a discovery that fails is repeated by its owner.
const TRIES: u32 = 5;

/// The delays between these tries.
const RETRY: BackoffConfig = BackoffConfig::new(Duration::from_millis(200), Duration::from_secs(2));

pub(super) type Failure = Arc<StoreError>;

/// The store of the lease task.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) application: ApplicationName,
    pub(super) stream: StreamRef,
    pub(super) timeout: Duration,
    /// How leases are shared; known once the table was looked at.
    pub(super) coordination: Coordination,
}

/// What a discovery found.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) made: usize,
    pub(super) found: Found,
}

pub(super) async fn limited<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(Arc::new),
        Err(_) => Err(too_late(limit)),
    }
}

fn too_late(limit: Duration) -> Failure {
    // debug-ok: a duration
    Arc::new(StoreError::unavailable(format!("no answer within {limit:?}")))
}

impl Calls {
    pub(super) async fn setup(&self) -> Result<(), Failure> {
        limited(self.store.profile().setup_timeout, self.store.setup()).await
    }

    pub(super) async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, Failure>> {
        match tokio::time::timeout(self.timeout, self.store.apply(writes)).await {
            Ok(results) => results.into_iter().map(|result| result.map_err(Arc::new)).collect(),
            Err(_) => {
                let failure = too_late(self.timeout);
                writes.iter().map(|_| Err(Arc::clone(&failure))).collect()
            }
        }
    }

    pub(super) async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, Failure> {
        limited(self.timeout, self.store.get(keys)).await
    }

    /// All rows of our stream.
    pub(super) async fn look(&self) -> Result<Look, Failure> {
        let started = super::now();
        let mut look = Look { started, rows: Vec::new(), unreadable: Vec::new() };
        let mut cursor = None;
        loop {
            let request =
                ScanRequest::new(self.application.clone()).stream(self.stream.clone()).cursor(cursor);
            let page = limited(self.timeout, self.store.scan(&request)).await?;
            look.rows.extend(page.leases);
            look.unreadable.extend(page.unreadable.into_iter().map(Arc::new));
            match page.cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(look),
            }
        }
    }

    /// Whether the KCL uses the table, tried a few times.
    pub(super) async fn tenants(
        &self,
        probe: &Arc<dyn RegimeProbe>,
        seed: u64,
    ) -> Result<TableTenants, (&'static str, Failure)> {
        let mut backoff = backoff(seed);
        loop {
            match limited(self.store.profile().setup_timeout, probe.tenants()).await {
                Ok(tenants) => return Ok(tenants),
                Err(error) => pause(&mut backoff, "scan", error).await?,
            }
        }
    }

    /// All rows of our stream, tried a few times.
    pub(super) async fn look_surely(&self, seed: u64) -> Result<Look, (&'static str, Failure)> {
        let mut backoff = backoff(seed);
        loop {
            match self.look().await {
                Ok(look) => return Ok(look),
                Err(error) => pause(&mut backoff, "scan", error).await?,
            }
        }
    }

    /// Reads the rows and makes the leases that a listing of the shards calls for.
    pub(super) async fn discover(
        &self,
        shards: &[ShardInfo],
        start: &Start,
        identity: &StreamIdentity,
        seed: u64,
    ) -> Result<Discovery, (&'static str, Failure)> {
        let look = self.look_surely(seed).await?;
        self.make(look, shards, start, identity, seed).await
    }

    /// Makes the leases that a listing of the shards calls for.
    pub(super) async fn make(
        &self,
        look: Look,
        shards: &[ShardInfo],
        start: &Start,
        identity: &StreamIdentity,
        seed: u64,
    ) -> Result<Discovery, (&'static str, Failure)> {
        let mut backoff = backoff(seed);
        let mut rows: BTreeMap<LeaseKey, Lease> =
            discovery::leases(&look.rows).map(|row| (row.key.clone(), row.clone())).collect();
        let Some(template) = shards.first().map(|shard| self.key(shard)) else {
            return Ok(Discovery { made: 0, found: Found::default() });
        };
        // A row that cannot be read is there nevertheless: it is not made anew, and what follows its shard is known.
        let unreadable: Vec<LeaseKey> = look.unreadable.iter().filter_map(|error| lease_of(error)).collect();
        let unread = |key: &LeaseKey| Lease::new(key.clone(), Checkpoint::TrimHorizon);
        rows.extend(unreadable.iter().map(|key| (key.clone(), unread(key))));
        let mut made = 0;
        let missing = match self.coordination {
            Coordination::Native => Cow::Borrowed(shards),
            Coordination::KclCompatible => discovery::without_followed(shards, &rows).into(),
        };
        let mut planned = discovery::plan(&template, &missing, &rows, start);
        planned.iter_mut().flatten().for_each(|lease| identity.mark(lease));
        for generation in &planned {
            let writes: Vec<LeaseWrite> = generation.iter().cloned().map(ops::create).collect();
            for writes in writes.chunks(CREATE_BATCH) {
                made += self.create(writes, &mut backoff).await?;
            }
        }
        for key in &unreadable {
            rows.remove(key);
        }
        let gone = discovery::gone(shards, &rows).cloned().collect();
        let spent = discovery::spent(shards, &rows).cloned().collect();
        rows.extend(planned.into_iter().flatten().map(|lease| (lease.key.clone(), lease)));
        // Which part of the key space such a row has is not known.
        let hole = discovery::hole(rows.values()).filter(|_| unreadable.is_empty());
        let look = (made == 0).then_some(look);
        Ok(Discovery { made, found: Found { gone, spent, look, hole } })
    }

    async fn create(
        &self,
        writes: &[LeaseWrite],
        backoff: &mut Backoff,
    ) -> Result<usize, (&'static str, Failure)> {
        backoff.reset();
        loop {
            let results = self.apply(writes).await;
            match results.iter().find_map(|result| result.as_ref().err()) {
                // Making a row twice is harmless, so all are tried again.
                Some(error) => pause(backoff, "apply", Arc::clone(error)).await?,
                None => {
                    return Ok(results.iter().filter(|made| matches!(made, Ok(Outcome::Applied(_)))).count());
                }
            }
        }
    }

    fn key(&self, shard: &ShardInfo) -> LeaseKey {
        LeaseKey::new(self.application.clone(), self.stream.clone(), shard.id.clone())
    }
}

/// The lease whose row cannot be read.
fn lease_of(error: &StoreError) -> Option<LeaseKey> {
    match error {
        StoreError::Corrupt { key, .. } if !worker_row::is_one(key) => Some((**key).clone()),
        _ => None,
    }
}

fn backoff(seed: u64) -> Backoff {
    Backoff::new(RETRY, seed)
}

/// Waits before the next try, or gives up.
async fn pause(
    backoff: &mut Backoff,
    action: &'static str,
    error: Failure,
) -> Result<(), (&'static str, Failure)> {
    if !error.is_retryable() || backoff.failures() + 1 >= TRIES {
        return Err((action, error));
    }
    let delay = backoff.next_delay().max(error.retry_after().unwrap_or_default());
    tokio::time::sleep(delay).await;
    Ok(())
}
