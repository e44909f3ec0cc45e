//! Each form of guard, true and false.

use super::support::{
    PASSED, fresh, must_apply, must_refuse, owned, row, same, token, update, with_rows, worker,
};
use super::{CaseResult, StoreFactory};
use crate::WorkerId;
use crate::lease::{Change, FieldWrite, Guard, Lease, LeaseWrite};

/// A write that changes nothing that a guard looks at.
fn touch(number: usize, guard: Guard) -> LeaseWrite {
    update(number, guard, vec![FieldWrite::AddOwnerSwitches(1)])
}

fn owner_counter(owner: Option<WorkerId>, counter: u64) -> Guard {
    Guard::OwnerCounter { owner, counter }
}

fn owners(owner: Option<WorkerId>, checkpoint_owner: Option<WorkerId>) -> Guard {
    Guard::Owners { owner, checkpoint_owner }
}

/// A lease that `a` is handing over to `b`.
fn handed_over(number: usize) -> Lease {
    let mut lease = owned(number);
    lease.owner = Some(worker("b"));
    lease.checkpoint_owner = Some(worker("a"));
    lease
}

/// [`Guard::Exists`] lets writes to existing rows through and makes none.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn guard_exists(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![fresh(0)]).await?;
    must_apply(&*store, "an update of a row that exists", touch(0, Guard::Exists)).await?;
    must_refuse(&*store, "an update of a row that does not exist", touch(1, Guard::Exists)).await?;
    let found = store.get(&[fresh(1).key]).await?;
    same("the row that does not exist", &found, &vec![None])?;
    PASSED
}

/// [`Guard::Counter`]: the KCL's take. Only the counter as it is lets the write through, whoever the owner is.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn guard_counter_of_a_take(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    for wrong in [0, 4, 6, u64::from(u32::MAX)] {
        must_refuse(&*store, "a write with another counter", touch(0, Guard::Counter(wrong))).await?;
    }
    must_apply(&*store, "a write with the right counter", touch(0, Guard::Counter(5))).await?;
    must_refuse(&*store, "a write with a counter to a missing row", touch(1, Guard::Counter(0))).await?;
    PASSED
}

/// [`Guard::OwnerCounter`]: a take. Owner and counter both have to be as read.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn guard_owner_of_a_take(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0), fresh(1)]).await?;
    let (a, b) = (Some(worker("a")), Some(worker("b")));
    let refused = [
        ("another owner", touch(0, owner_counter(b.clone(), 5))),
        ("no owner, though the row has one", touch(0, owner_counter(None, 5))),
        ("an owner, though the row has none", touch(1, owner_counter(a.clone(), 0))),
        ("a missing row", touch(2, owner_counter(None, 0))),
    ];
    for (what, write) in refused {
        must_refuse(&*store, &format!("a write guarded on {what}"), write).await?;
    }
    must_apply(&*store, "a write with the right owner and counter", touch(0, owner_counter(a, 5))).await?;
    must_apply(&*store, "a write to an unowned row", touch(1, owner_counter(None, 0))).await?;
    PASSED
}

/// [`Guard::Tenure`]: the writes of a holder. A tenure that is over can write nothing, even when another worker's
/// tenure happens to be at the same counter.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn renewal_of_a_former_tenure_is_refused(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0), fresh(1)]).await?;
    let renew = |number, counter, token| {
        update(number, Guard::Tenure { counter, token }, vec![FieldWrite::AddCounter(1)])
    };
    must_refuse(&*store, "a renewal with another tenure's token", renew(0, 5, token(2))).await?;
    must_refuse(&*store, "a renewal with an old counter", renew(0, 4, token(1))).await?;
    must_refuse(&*store, "a renewal of an unowned lease", renew(1, 0, token(1))).await?;
    must_refuse(&*store, "a renewal of a missing lease", renew(2, 0, token(1))).await?;
    same("the counter after refused renewals", &row(&*store, 0).await?.counter, &5)?;
    must_apply(&*store, "a renewal by the holder", renew(0, 5, token(1))).await?;
    PASSED
}

/// [`Guard::Owners`]: hand-overs. Owner and checkpoint owner both have to be as read; the counter does not matter.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn guard_owners(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0), handed_over(1), fresh(2)]).await?;
    let (a, b) = (Some(worker("a")), Some(worker("b")));
    let refused = [
        ("a hand-over that does not exist", touch(0, owners(a.clone(), b.clone()))),
        ("another owner", touch(0, owners(b.clone(), None))),
        ("no owner", touch(0, owners(None, None))),
        ("no hand-over, though one is under way", touch(1, owners(b.clone(), None))),
        ("a hand-over from another worker", touch(1, owners(b.clone(), b.clone()))),
        ("an owner of an unowned row", touch(2, owners(a.clone(), None))),
        ("a missing row", touch(3, owners(None, None))),
    ];
    for (what, write) in refused {
        must_refuse(&*store, &format!("a write guarded on {what}"), write).await?;
    }
    must_apply(&*store, "a write to a row without a hand-over", touch(0, owners(a.clone(), None))).await?;
    must_apply(&*store, "a write to a row with a hand-over", touch(1, owners(b, a))).await?;
    must_apply(&*store, "a write to an unowned row", touch(2, owners(None, None))).await?;
    PASSED
}

/// [`Guard::CounterNoHandoff`]: the renewal of the KCL's third version.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn guard_counter_no_handoff(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0), handed_over(1)]).await?;
    let guard = Guard::CounterNoHandoff;
    must_refuse(&*store, "a write during a hand-over", touch(1, guard(5))).await?;
    must_refuse(&*store, "a write with another counter", touch(0, guard(4))).await?;
    must_refuse(&*store, "a write to a missing row", touch(2, guard(0))).await?;
    must_apply(&*store, "a write without a hand-over", touch(0, guard(5))).await?;
    PASSED
}

/// A heartbeat between the look and the steal defeats the steal, and the other way round.
///
/// # Errors
/// [`Violation`](super::Violation).
pub async fn late_heartbeat_defeats_a_steal(factory: &dyn StoreFactory) -> CaseResult {
    let store = with_rows(factory, vec![owned(0)]).await?;
    let other = factory.client().await;
    let heartbeat = |counter| {
        let fields = vec![FieldWrite::AddCounter(1)];
        update(0, Guard::Tenure { counter, token: token(1) }, fields)
    };
    let steal = |counter| {
        let fields = vec![
            FieldWrite::Owner(Some(worker("b"))),
            FieldWrite::Token(Some(token(2))),
            FieldWrite::AddCounter(1),
            FieldWrite::AddEpoch(1),
        ];
        LeaseWrite::new(owned(0).key, owner_counter(Some(worker("a")), counter), Change::Update(fields))
    };
    must_apply(&*store, "a heartbeat", heartbeat(5)).await?;
    must_refuse(&*other, "a steal that did not see the last heartbeat", steal(5)).await?;
    same("the owner after a refused steal", &row(&*store, 0).await?.owner, &Some(worker("a")))?;
    must_apply(&*other, "a steal that saw the last heartbeat", steal(6)).await?;
    must_refuse(&*store, "a heartbeat after the steal", heartbeat(7)).await?;
    must_refuse(&*store, "a heartbeat after the steal", heartbeat(6)).await?;
    let now = row(&*store, 0).await?;
    same("owner and epoch after the steal", &(now.owner, now.epoch), &(Some(worker("b")), 2))?;
    PASSED
}
