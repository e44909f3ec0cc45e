//! What `get` and `scan` promise.

use std::collections::BTreeSet;

use super::support::{
    PASSED, application, fresh, key, must_apply, owned, ready, row, same, scan_all, shard, stream, update,
    with_rows,
};
use super::{CaseResult, StoreFactory};
use crate::lease::{FieldWrite, Guard, Lease, LeaseKey, LeaseWrite, ScanRequest};
use crate::{ApplicationName, Checkpoint, StreamRef};

fn keys(rows: &[Lease]) -> BTreeSet<LeaseKey> {
    rows.iter().map(|row| row.key.clone()).collect()
}

/// `get` answers in the order of its keys, with `None` for rows that do not exist.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn get_keeps_the_order(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![fresh(0), fresh(1), fresh(2)]).await?;
    let asked = [2, 7, 0, 9, 1];
    let found = store.get(&asked.map(key)).await?;
    let found: Vec<_> = found.into_iter().map(|row| row.map(|row| row.key)).collect();
    let expected = [Some(key(2)), None, Some(key(0)), None, Some(key(1))];
    same("the rows by their keys", &found, &expected.to_vec())?;
    same("the rows of no keys", &store.get(&[]).await?.len(), &0)?;
    PASSED
}

/// The pages of a scan have every row once, however small they are.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn scan_pages_are_complete(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, (0..23).map(fresh).collect()).await?;
    let expected: BTreeSet<LeaseKey> = (0..23).map(key).collect();
    for limit in [1, 7, 23, 1_000] {
        let rows = scan_all(&*store, ScanRequest::new(application()).limit(limit)).await?;
        same(&format!("the number of rows in pages of {limit}"), &rows.len(), &23)?;
        same(&format!("the rows in pages of {limit}"), &keys(&rows), &expected)?;
    }
    PASSED
}

/// The segments of a scan have every row once in sum.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn scan_segments_divide_the_rows(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, (0..20).map(fresh).collect()).await?;
    let mut rows = Vec::new();
    for segment in 0..4 {
        let mut request = ScanRequest::new(application()).limit(3);
        request.segment = segment;
        request.segments = 4;
        rows.extend(scan_all(&*store, request).await?);
    }
    same("the number of rows in all segments", &rows.len(), &20)?;
    same("the rows in all segments", &keys(&rows), &(0..20).map(key).collect())?;
    PASSED
}

/// A scan of one stream has no rows of another.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn scan_filters_by_stream(factory: &dyn StoreFactory) -> CaseResult {
    let other = StreamRef::new("clicks").expect("a valid name");
    let store = ready(factory).await?;
    for number in 0..5 {
        let elsewhere = LeaseKey::new(application(), other.clone(), shard(number));
        must_apply(&*store, "a creation", LeaseWrite::create(fresh(number))).await?;
        let lease = Lease::new(elsewhere, Checkpoint::Latest);
        must_apply(&*store, "a creation in another stream", LeaseWrite::create(lease)).await?;
    }
    for name in [stream(), other] {
        let rows = scan_all(&*store, ScanRequest::new(application()).stream(name.clone()).limit(2)).await?;
        same("the rows of one stream", &rows.len(), &5)?;
        same("their stream", &rows.iter().all(|row| *row.key.stream() == name), &true)?;
    }
    let all = scan_all(&*store, ScanRequest::new(application()).limit(3)).await?;
    same("the rows of all streams", &all.len(), &10)?;
    PASSED
}

/// One table serves many applications, which do not see each other.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn applications_are_separate(factory: &dyn StoreFactory) -> CaseResult {
    let store = ready(factory).await?;
    // One name is the beginning of the other.
    let names =
        ["conformance", "conformance-2"].map(|name| ApplicationName::new(name).expect("a valid name"));
    for (number, name) in names.iter().enumerate() {
        let mut lease = Lease::new(LeaseKey::new(name.clone(), stream(), shard(0)), Checkpoint::Latest);
        lease.owner_switches = number as u64;
        must_apply(&*store, "a creation for each application", LeaseWrite::create(lease)).await?;
    }
    for (number, name) in names.iter().enumerate() {
        let rows = scan_all(&*store, ScanRequest::new(name.clone())).await?;
        let switches: Vec<u64> = rows.iter().map(|row| row.owner_switches).collect();
        same("the rows of one application", &switches, &vec![number as u64])?;
    }
    PASSED
}

/// What one client stores, another one reads: also one that was made before.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn checkpoint_is_read_by_a_second_client(factory: &dyn StoreFactory) -> CaseResult {
    let second = ready(factory).await?;
    let store = with_rows(factory, vec![owned(0)]).await?;
    same("the checkpoint before", &row(&*second, 0).await?.checkpoint, &Checkpoint::TrimHorizon)?;
    let checkpoint = Checkpoint::At(crate::Position::new(12_345_u128.into(), 0));
    let fields = vec![FieldWrite::Checkpoint(checkpoint.clone()), FieldWrite::AddCounter(1)];
    must_apply(&*store, "a checkpoint", update(0, Guard::Exists, fields)).await?;
    same("the checkpoint in the second client", &row(&*second, 0).await?.checkpoint, &checkpoint)?;
    let third = ready(factory).await?;
    same("the checkpoint in a new client", &row(&*third, 0).await?.checkpoint, &checkpoint)?;
    PASSED
}
