//! What the cases share.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::{CaseResult, StoreFactory, Verdict, Violation};
use crate::lease::{
    Change, FieldWrite, Guard, Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanRequest, StoreError,
    TenureToken,
};
use crate::{ApplicationName, Checkpoint, ShardId, StreamRef, WorkerId};

pub(super) const PASSED: CaseResult = Ok(Verdict::Passed);

/// How many clients race for one row.
pub(super) const RACERS: usize = 16;

/// Fails the case unless `holds`.
pub(super) fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { problem: problem() }) }
}

/// Fails the case unless both are equal.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), Violation> {
    // debug-ok: values that the suite itself has written
    ensure(found == expected, || format!("{what}: found {found:?}, expected {expected:?}"))
}

impl From<StoreError> for Violation {
    fn from(error: StoreError) -> Self {
        let mut problem = format!("unexpected error: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            problem.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self { problem }
    }
}

pub(super) fn application() -> ApplicationName {
    ApplicationName::new("conformance").expect("a valid name")
}

pub(super) fn stream() -> StreamRef {
    StreamRef::new("orders").expect("a valid name")
}

pub(super) fn shard(number: usize) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).expect("a valid id")
}

pub(super) fn key(number: usize) -> LeaseKey {
    LeaseKey::new(application(), stream(), shard(number))
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a valid name")
}

pub(super) fn token(number: u128) -> TenureToken {
    TenureToken::from_random(number)
}

/// An unowned lease.
pub(super) fn fresh(number: usize) -> Lease {
    Lease::new(key(number), Checkpoint::TrimHorizon)
}

/// A lease of worker `a` in tenure 1 with counter 5.
pub(super) fn owned(number: usize) -> Lease {
    let mut lease = fresh(number);
    lease.owner = Some(worker("a"));
    lease.token = Some(token(1));
    lease.counter = 5;
    lease.epoch = 1;
    lease
}

pub(super) fn update(number: usize, guard: Guard, fields: Vec<FieldWrite>) -> LeaseWrite {
    LeaseWrite::new(key(number), guard, Change::Update(fields))
}

/// A client whose table is ready.
pub(super) async fn ready(factory: &dyn StoreFactory) -> Result<Arc<dyn LeaseStore>, Violation> {
    let store = factory.client().await;
    store.setup().await?;
    Ok(store)
}

/// A client whose table is ready and has these rows.
pub(super) async fn with_rows(
    factory: &dyn StoreFactory,
    rows: Vec<Lease>,
) -> Result<Arc<dyn LeaseStore>, Violation> {
    let store = ready(factory).await?;
    for row in rows {
        let key = row.key.clone();
        let made = one(&*store, LeaseWrite::create(row)).await?;
        ensure(matches!(made, Outcome::Applied(_)), || {
            format!("creating {key} in an empty table was refused")
        })?;
    }
    Ok(store)
}

/// Applies one write.
pub(super) async fn one(store: &dyn LeaseStore, write: LeaseWrite) -> Result<Outcome, Violation> {
    let mut results = store.apply(&[write]).await;
    same("number of results of one write", &results.len(), &1)?;
    Ok(results.remove(0)?)
}

/// Applies one write that must be applied.
pub(super) async fn must_apply(
    store: &dyn LeaseStore,
    what: &str,
    write: LeaseWrite,
) -> Result<(), Violation> {
    let outcome = one(store, write).await?;
    ensure(matches!(outcome, Outcome::Applied(_)), || format!("{what} was refused"))
}

/// Applies one write that must be refused.
pub(super) async fn must_refuse(
    store: &dyn LeaseStore,
    what: &str,
    write: LeaseWrite,
) -> Result<(), Violation> {
    let outcome = one(store, write).await?;
    ensure(matches!(outcome, Outcome::Refused { .. }), || format!("{what} was applied"))
}

/// The row as it is stored.
pub(super) async fn stored(store: &dyn LeaseStore, number: usize) -> Result<Option<Lease>, Violation> {
    Ok(store.get(&[key(number)]).await?.into_iter().next().flatten())
}

/// The row as it is stored, which must be there.
pub(super) async fn row(store: &dyn LeaseStore, number: usize) -> Result<Lease, Violation> {
    let found = stored(store, number).await?;
    found.ok_or_else(|| Violation { problem: format!("the row of {} is not there", key(number)) })
}

/// Everything that a scan finds, page by page.
pub(super) async fn scan_all(
    store: &dyn LeaseStore,
    mut request: ScanRequest,
) -> Result<Vec<Lease>, Violation> {
    let mut rows = Vec::new();
    for _ in 0..1_000 {
        let page = store.scan(&request).await?;
        same("unreadable rows", &page.unreadable.len(), &0)?;
        ensure(page.leases.len() <= request.limit, || {
            format!("a page of {} rows, asked for at most {}", page.leases.len(), request.limit)
        })?;
        rows.extend(page.leases);
        match page.cursor {
            None => return Ok(rows),
            cursor => request = request.cursor(cursor),
        }
    }
    Err(Violation { problem: "a scan did not end within 1,000 pages".into() })
}

/// Runs futures at the same time on this task, without a runtime of any kind.
pub(super) async fn at_once<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (slot, result) in running.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
                *slot = None;
            }
        }
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
