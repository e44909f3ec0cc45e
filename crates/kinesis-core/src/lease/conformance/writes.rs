//! What `apply` promises about races, results and independence.

use super::support::{
    PASSED, RACERS, at_once, ensure, fresh, key, must_apply, one, owned, row, same, stored, token, update,
    with_rows, worker,
};
use super::{CaseResult, StoreFactory};
use crate::lease::{Change, FieldWrite, Guard, LeaseWrite, Outcome};

/// Of many who take an unowned lease exactly one does, round after round.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn take_race_has_one_winner(factory: &dyn StoreFactory) -> CaseResult {
    const ROUNDS: usize = 5;
    let store = with_rows(factory, (0..ROUNDS).map(fresh).collect()).await?;
    let mut clients = Vec::new();
    for _ in 0..RACERS {
        clients.push(factory.client().await);
    }
    for round in 0..ROUNDS {
        let takes = clients.iter().enumerate().map(|(number, client)| {
            let fields = vec![
                FieldWrite::Owner(Some(worker(&format!("w{number}")))),
                FieldWrite::Token(Some(token(number as u128))),
                FieldWrite::AddCounter(1),
                FieldWrite::AddEpoch(1),
            ];
            let write = update(round, Guard::OwnerCounter { owner: None, counter: 0 }, fields);
            Box::pin(async move { one(&**client, write).await }) as _
        });
        let mut winners = Vec::new();
        for (number, outcome) in at_once(takes.collect()).await.into_iter().enumerate() {
            if let Outcome::Applied(_) = outcome? {
                winners.push(number);
            }
        }
        same("workers that took the lease", &winners.len(), &1)?;
        let found = row(&*store, round).await?;
        let winner = worker(&format!("w{}", winners[0]));
        same("owner and epoch after the race", &(found.owner, found.epoch), &(Some(winner), 1))?;
    }
    PASSED
}

/// Each renewal adds to the counter, however often.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn renewals_add_to_the_counter(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    for counter in 5..10 {
        let guard = Guard::Tenure { counter, token: token(1) };
        must_apply(&*store, "a renewal", update(0, guard, vec![FieldWrite::AddCounter(1)])).await?;
        same("the counter after a renewal", &row(&*store, 0).await?.counter, &(counter + 1))?;
    }
    PASSED
}

/// An applied write returns the row as it is afterwards, whole.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn applied_writes_return_the_new_row(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    let created = one(&*store, LeaseWrite::create(owned(1))).await?;
    same("the outcome of a creation", &created, &Outcome::Applied(owned(1)))?;
    let fields = vec![FieldWrite::AddCounter(2), FieldWrite::CheckpointOwner(Some(worker("c")))];
    let updated = one(&*store, update(0, Guard::Exists, fields)).await?;
    let mut expected = owned(0);
    expected.counter = 7;
    expected.checkpoint_owner = Some(worker("c"));
    same("the outcome of an update", &updated, &Outcome::Applied(expected))?;
    PASSED
}

/// A refused write returns the row as it is, or that there is none, and changes nothing.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn refusals_return_the_current_row(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    let renewal = update(0, Guard::Counter(4), vec![FieldWrite::AddCounter(1)]);
    let refused = one(&*store, renewal).await?;
    same("the refusal of an update", &refused, &Outcome::Refused { current: Some(owned(0)) })?;
    let refused = one(&*store, LeaseWrite::create(fresh(0))).await?;
    same("the refusal of a creation", &refused, &Outcome::Refused { current: Some(owned(0)) })?;
    let missing = update(1, Guard::Counter(0), vec![FieldWrite::AddCounter(1)]);
    let refused = one(&*store, missing).await?;
    same("the refusal for a missing row", &refused, &Outcome::Refused { current: None })?;
    same("the row after refusals", &row(&*store, 0).await?, &owned(0))?;
    PASSED
}

/// Of many writes in one call each is applied or refused by its own guard alone.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn writes_of_one_call_are_independent(factory: &dyn StoreFactory) -> CaseResult {
    const ROWS: usize = 300;
    let store = with_rows(factory, (0..ROWS).map(owned).collect()).await?;
    let writes: Vec<LeaseWrite> = (0..ROWS)
        .map(|number| {
            // Every third one holds an old counter.
            let counter = if number % 3 == 0 { 4 } else { 5 };
            let guard = Guard::Tenure { counter, token: token(1) };
            update(number, guard, vec![FieldWrite::AddCounter(1)])
        })
        .collect();
    let results = store.apply(&writes).await;
    same("number of results", &results.len(), &ROWS)?;
    for (number, result) in results.into_iter().enumerate() {
        result?;
        let expected = if number % 3 == 0 { 5 } else { 6 };
        same("the counter after a call with many writes", &row(&*store, number).await?.counter, &expected)?;
    }
    same("results of no writes", &store.apply(&[]).await.len(), &0)?;
    PASSED
}

/// The results of one call are in the order of its writes.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn results_are_in_the_order_of_the_writes(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, (0..6).map(owned).collect()).await?;
    let order = [4, 0, 5, 2, 1, 3];
    let writes: Vec<LeaseWrite> =
        order.iter().map(|number| update(*number, Guard::Exists, vec![FieldWrite::AddCounter(1)])).collect();
    let results = store.apply(&writes).await;
    same("number of results", &results.len(), &order.len())?;
    for (number, result) in order.iter().zip(results) {
        let Outcome::Applied(found) = result? else { continue };
        same("the row of a result", &found.key, &key(*number))?;
    }
    PASSED
}

/// A deleted row is gone, its guard is checked, and the row can be made anew.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn deletion_removes_the_row(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0), owned(1)]).await?;
    let delete = |guard| LeaseWrite::new(key(0), guard, Change::Delete);
    let refused = one(&*store, delete(Guard::OwnerCounter { owner: None, counter: 5 })).await?;
    ensure(matches!(refused, Outcome::Refused { .. }), || "a guarded deletion was applied".into())?;
    must_apply(&*store, "a deletion", delete(Guard::Exists)).await?;
    ensure(stored(&*store, 0).await?.is_none(), || "a deleted row is still there".into())?;
    ensure(stored(&*store, 1).await?.is_some(), || "a deletion removed another row".into())?;
    must_apply(&*store, "a creation after a deletion", LeaseWrite::create(fresh(0))).await?;
    same("the row made anew", &row(&*store, 0).await?.counter, &0)?;
    PASSED
}
