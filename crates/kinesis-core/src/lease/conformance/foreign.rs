//! What others write into the table.

use super::support::{PASSED, application, ensure, key, must_apply, owned, row, same, update, with_rows};
use super::{CaseResult, StoreFactory, Verdict, fields};
use crate::lease::{FieldWrite, Guard, ScanRequest, StoreError};

const NO_WRITER: CaseResult = Ok(Verdict::NotRun("the factory has no foreign writer"));

/// An attribute that the store does not know survives every kind of write.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn unknown_attributes_survive_every_write(factory: &dyn StoreFactory) -> CaseResult {
    let Some(foreign) = factory.foreign_writer() else { return NO_WRITER };
    let store = with_rows(factory, vec![owned(0)]).await?;
    foreign.set_unknown(&key(0), "of a newer version").await;
    for (what, write) in fields::updates_by_kind(0) {
        must_apply(&*store, what, write).await?;
        let kept = foreign.get_unknown(&key(0)).await;
        same(&format!("the unknown attribute after {what}"), &kept.as_deref(), &Some("of a newer version"))?;
    }
    PASSED
}

/// A row that cannot be read is reported by itself; the others are read and written as if it were not there.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn unreadable_rows_are_reported_singly(factory: &dyn StoreFactory) -> CaseResult {
    let Some(foreign) = factory.foreign_writer() else { return NO_WRITER };
    let store = with_rows(factory, vec![owned(0), owned(1), owned(2)]).await?;
    foreign.corrupt(&key(1)).await;

    let page = store.scan(&ScanRequest::new(application())).await?;
    let read: Vec<_> = page.leases.into_iter().map(|row| row.key).collect();
    same("the readable rows of a scan", &read, &vec![key(0), key(2)])?;
    same("the number of unreadable rows of a scan", &page.unreadable.len(), &1)?;
    let is_corrupt =
        |error: &StoreError| matches!(error, StoreError::Corrupt { key: of, .. } if **of == key(1));
    ensure(page.unreadable.iter().all(is_corrupt), || {
        "a scan reports another error than the corrupt row".into()
    })?;

    let got = store.get(&[key(1)]).await;
    ensure(got.as_ref().is_err_and(is_corrupt), || "reading the corrupt row does not say that it is".into())?;

    let renew = |number| update(number, Guard::Exists, vec![FieldWrite::AddCounter(1)]);
    let results = store.apply(&[renew(0), renew(1), renew(2)]).await;
    same("number of results", &results.len(), &3)?;
    ensure(results[1].is_err(), || "a write to the corrupt row was answered as if it were readable".into())?;
    for number in [0, 2] {
        same("the counter of a row beside the corrupt one", &row(&*store, number).await?.counter, &6)?;
    }
    PASSED
}
