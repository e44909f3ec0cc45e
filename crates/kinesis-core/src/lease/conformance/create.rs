//! The table and its rows come into being.

use super::support::{
    PASSED, RACERS, at_once, ensure, fresh, must_apply, one, owned, ready, row, same, token, update,
};
use super::{CaseResult, StoreFactory};
use crate::lease::{FieldWrite, Guard, LeaseWrite, Outcome};

/// `setup` works when many call it at once and again later, and leaves rows alone.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn setup_can_race_and_repeat(factory: &dyn StoreFactory) -> CaseResult {
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(factory.client().await);
    }
    for result in at_once(clients.iter().map(|client| client.setup()).collect()).await {
        result?;
    }
    must_apply(&*clients[0], "creating a row", LeaseWrite::create(owned(0))).await?;
    let late = factory.client().await;
    late.setup().await?;
    same("the row after another setup", &row(&*late, 0).await?.key, &owned(0).key)?;
    PASSED
}

/// Of many who create a row exactly one does, and a row that exists is never changed by a creation.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn creation_never_overwrites(factory: &dyn StoreFactory) -> CaseResult {
    let store = ready(factory).await?;
    let mut clients = Vec::new();
    for _ in 0..RACERS {
        clients.push(factory.client().await);
    }
    let mut rows = Vec::new();
    for number in 0..RACERS {
        let mut lease = fresh(0);
        lease.owner_switches = number as u64;
        rows.push(lease);
    }
    let creations = clients.iter().zip(&rows).map(|(client, lease)| {
        Box::pin(async move { one(&**client, LeaseWrite::create(lease.clone())).await }) as _
    });
    let mut winners = Vec::new();
    for (number, outcome) in at_once(creations.collect()).await.into_iter().enumerate() {
        if let Outcome::Applied(_) = outcome? {
            winners.push(number);
        }
    }
    same("creations that were applied", &winners.len(), &1)?;
    let switches = row(&*store, 0).await?.owner_switches;
    same("the row is the winner's", &switches, &(winners[0] as u64))?;

    // A row that was worked on stays as it is.
    let take = update(0, Guard::Exists, vec![FieldWrite::Token(Some(token(9))), FieldWrite::AddCounter(3)]);
    must_apply(&*store, "an update", take).await?;
    let before = row(&*store, 0).await?;
    let again = one(&*store, LeaseWrite::create(fresh(0))).await?;
    ensure(matches!(again, Outcome::Refused { .. }), || "a row that exists was created again".into())?;
    same("the row after another creation", &row(&*store, 0).await?, &before)?;
    PASSED
}
