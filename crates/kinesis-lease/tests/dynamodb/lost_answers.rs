//! Writes that worked but looked failed.

use kinesis_core::Checkpoint;
use kinesis_core::lease::{
    Change, FieldWrite, Guard, Lease, LeaseStore, LeaseWrite, Outcome, StoreError, TenureToken,
};
use kinesis_lease::{DynamoDbStore, ops};

use crate::common::{at, key, worker};
use crate::support::{Fate, Table};

const TOKEN: TenureToken = TenureToken::from_random(7);

fn fresh() -> Lease {
    Lease::new(key(0), Checkpoint::TrimHorizon)
}

async fn apply(store: &DynamoDbStore, write: LeaseWrite) -> Result<Outcome, StoreError> {
    store.apply(&[write]).await.remove(0)
}

async fn applied(store: &DynamoDbStore, write: LeaseWrite) -> Lease {
    match apply(store, write).await.unwrap() {
        Outcome::Applied(row) => row,
        other => panic!("{other:?}"),
    }
}

async fn row(store: &DynamoDbStore) -> Option<Lease> {
    store.get(&[key(0)]).await.unwrap().remove(0)
}

/// A table with one lease that worker `a` holds.
async fn held() -> (Table, DynamoDbStore, Lease) {
    let table = Table::new().await;
    let store = table.ready().await;
    let lease = applied(&store, LeaseWrite::create(fresh())).await;
    let lease = applied(&store, ops::take(&lease, &worker("a"), TOKEN)).await;
    (table, store, lease)
}

/// F-22: a renewal, a checkpoint and a taking that were carried out but answered with an error are sent again,
/// refused, and recognised; none is carried out twice.
#[tokio::test]
async fn a_repeated_request_recognises_its_first_effect() {
    let (table, store, mut lease) = held().await;
    for fate in [Fate::DoneButFailed, Fate::DoneButCut] {
        for write in [
            ops::renew as fn(&Lease, TenureToken) -> LeaseWrite,
            |lease, token| ops::checkpoint(lease, token, at(5)),
            |lease, token| ops::take(lease, &worker("b"), token),
        ] {
            table.wire.disturb(move |operation, before| match (operation, before) {
                ("UpdateItem", 0) => fate,
                _ => Fate::Pass,
            });
            let next = applied(&store, write(&lease, TOKEN)).await;
            assert_eq!(next.counter, lease.counter + 1);
            assert_eq!(table.wire.sent("UpdateItem").len(), 2);
            assert_eq!(table.wire.sent("GetItem").len(), 0, "the refusal has the row with it");
            assert_eq!(row(&store).await, Some(next.clone()));
            lease = next;
        }
    }
}

/// F-22: where no answer comes at all, the row is read back.
#[tokio::test]
async fn a_write_without_any_answer_is_read_back() {
    let (table, store, lease) = held().await;
    table.wire.disturb(|operation, _| if operation == "UpdateItem" { Fate::DoneButCut } else { Fate::Pass });
    let next = applied(&store, ops::checkpoint(&lease, TOKEN, at(9))).await;
    assert_eq!((next.counter, next.checkpoint.clone()), (lease.counter + 1, at(9)));
    assert_eq!(table.wire.sent("GetItem").len(), 1);
    assert_eq!(table.wire.sent("GetItem")[0]["ConsistentRead"], true);
    assert_eq!(row(&store).await, Some(next));
}

/// A request that may still be on its way is neither applied nor refused.
#[tokio::test]
async fn a_write_that_may_still_come_is_in_doubt() {
    let (table, store, lease) = held().await;
    table.wire.disturb(|operation, _| if operation == "UpdateItem" { Fate::Cut } else { Fate::Pass });
    let error = apply(&store, ops::renew(&lease, TOKEN)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert_eq!(row(&store).await, Some(lease.clone()));

    // Read back in vain.
    table.wire.disturb(|operation, _| {
        if operation == "UpdateItem" || operation == "GetItem" { Fate::Cut } else { Fate::Pass }
    });
    let error = apply(&store, ops::renew(&lease, TOKEN)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

/// A write that can not be applied any more, whether its request arrives or not, is refused.
#[tokio::test]
async fn a_write_that_can_only_be_refused_is_refused() {
    let (table, store, lease) = held().await;
    let next = applied(&store, ops::renew(&lease, TOKEN)).await;
    table.wire.disturb(|operation, _| if operation == "UpdateItem" { Fate::Cut } else { Fate::Pass });
    let outcome = apply(&store, ops::renew(&lease, TOKEN)).await.unwrap();
    assert_eq!(outcome, Outcome::Refused { current: Some(next) });
}

/// A write whose guard still holds after it was applied is not applied a second time by its repeated request.
#[tokio::test]
async fn an_addition_is_not_repeated() {
    let (table, store, lease) = held().await;
    table.wire.disturb(|operation, before| {
        if operation == "UpdateItem" && before == 0 { Fate::DoneButFailed } else { Fate::Pass }
    });
    let write = LeaseWrite::new(key(0), Guard::Exists, Change::Update(vec![FieldWrite::AddOwnerSwitches(1)]));
    let next = applied(&store, write).await;
    assert_eq!(next.owner_switches, lease.owner_switches + 1);
}

/// S-037: a creation whose answer was lost is ours, and one that came second is refused.
#[tokio::test]
async fn a_creation_is_recognised_too() {
    let table = Table::new().await;
    let store = table.ready().await;
    let lost = |operation: &str, before| {
        if operation == "PutItem" && before == 0 { Fate::DoneButCut } else { Fate::Pass }
    };
    table.wire.disturb(lost);
    assert_eq!(applied(&store, LeaseWrite::create(fresh())).await, fresh());
    table.wire.disturb(lost);
    let outcome = apply(&store, LeaseWrite::create(fresh())).await.unwrap();
    assert_eq!(outcome, Outcome::Refused { current: Some(fresh()) });
}

/// An answer that does not come within the limit of an attempt is not waited for.
#[tokio::test]
async fn a_silent_service_is_given_up() {
    let (table, store, lease) = held().await;
    table.wire.disturb(
        |operation, before| if operation == "UpdateItem" && before == 0 { Fate::Ignored } else { Fate::Pass },
    );
    let next = applied(&store, ops::renew(&lease, TOKEN)).await;
    assert_eq!(next.counter, lease.counter + 1);
    assert_eq!(table.wire.sent("UpdateItem").len(), 2);
}

/// A deletion has the last row, also of one that can not be read.
#[tokio::test]
async fn deletions_say_what_was_deleted() {
    let (table, store, lease) = held().await;
    table.set(&crate::support::native(&key(0)), "checkpoint", crate::support::s("garbage")).await;
    assert!(
        matches!(apply(&store, ops::delete(&key(0))).await, Ok(Outcome::Applied(row)) if row.key == lease.key)
    );
    assert_eq!(row(&store).await, None);
    assert_eq!(apply(&store, ops::delete(&key(0))).await.unwrap(), Outcome::Refused { current: None });
}
