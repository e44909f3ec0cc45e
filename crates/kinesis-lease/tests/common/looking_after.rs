//! What an operator does to leases, on any store.

use kinesis_core::lease::conformance::StoreFactory;
use kinesis_core::{Checkpoint, Position, Timestamp};
use kinesis_lease::{
    AdminPlan, AdminResult, Lease, LeaseAdmin, LeaseStoreExt, ResetTo, Selection, TenureToken,
};

use super::{application, at, key, millis, shard, stream, worker};

fn one(number: u32) -> Selection {
    Selection::Shards(vec![shard(number)])
}

/// Applies a plan of which everything can be done.
async fn done(admin: &LeaseAdmin, plan: AdminPlan, changes: usize) {
    let results = admin.apply(plan).await;
    assert!(results.len() == changes && results.iter().all(AdminResult::is_done), "{results:?}");
}

/// Lists, resets to each kind of place, releases, refuses plans that are out of date, exports, imports into another table,
/// deletes, and leaves out by name what cannot be read.
pub(crate) async fn admin_on(factory: &impl StoreFactory, another: &impl StoreFactory) {
    let (store, target) = (factory.client().await, another.client().await);
    store.setup().await.unwrap();
    target.setup().await.unwrap();
    for number in 0..4 {
        let mut lease = Lease::new(key(number), at(u128::from(number) + 1));
        lease.children = vec![shard(number + 100)];
        store.create_if_not_exists(lease).await.unwrap().unwrap();
    }
    let admin = LeaseAdmin::new(store.clone(), application()).stream(&stream());
    let rows = async || store.list(&application(), &stream()).await.unwrap();
    let take = async |number: u32, name: &str, token: u128| {
        let row = rows().await.into_iter().find(|row| row.key == key(number)).unwrap();
        store.take(&row, &worker(name), TenureToken::from_random(token)).await.unwrap().unwrap()
    };

    let taken = take(0, "a", 1).await;
    let listed = admin.list().await.unwrap();
    let shown: Vec<_> = listed
        .leases
        .iter()
        .map(|entry| (entry.lease.owner.clone(), entry.lease.checkpoint.clone()))
        .collect();
    assert_eq!(shown, [(Some(worker("a")), at(1)), (None, at(2)), (None, at(3)), (None, at(4))]);
    tokio::time::sleep(millis(20)).await;
    store.renew(&taken, TenureToken::from_random(1)).await.unwrap().unwrap();
    let ages: Vec<_> = admin.list().await.unwrap().leases.into_iter().map(|entry| entry.age).collect();
    assert_eq!(ages[0], millis(0), "it was renewed");
    assert!(ages[1..].iter().all(|age| *age >= millis(20)), "{ages:?}");

    let before = rows().await;
    let at_time = Timestamp::from_millis(7_000);
    done(&admin, admin.plan_reset(&one(1), &ResetTo::Timestamp(at_time)).await.unwrap(), 1).await;
    let position = Position::new(9_u128.into(), 2);
    done(&admin, admin.plan_reset(&one(2), &ResetTo::Position(position.clone())).await.unwrap(), 1).await;
    let after = rows().await;
    assert_eq!((&after[1].checkpoint, after[1].anchor), (&Checkpoint::AtTimestamp, Some(at_time)));
    assert_eq!(after[2].checkpoint, Checkpoint::At(position));
    assert_eq!(after[1].children, before[1].children, "what the plan does not name is kept");
    assert_eq!((&after[0], &after[3]), (&before[0], &before[3]), "what was not selected is left alone");
    done(&admin, admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await.unwrap(), 4).await;
    let after = rows().await;
    assert!(after.iter().all(|row| row.checkpoint == Checkpoint::TrimHorizon && row.anchor.is_none()));
    assert!(after.iter().all(|row| row.owner.is_none()), "whoever held one begins anew");

    take(0, "a", 2).await;
    let stale = [
        admin.plan_reset(&one(0), &ResetTo::TrimHorizon).await.unwrap(),
        admin.plan_release(&one(0)).await.unwrap(),
        admin.plan_delete(&one(0)).await.unwrap(),
    ];
    // Only what somebody holds.
    done(&admin, admin.plan_release(&Selection::All).await.unwrap(), 1).await;
    let freed = &rows().await[0];
    assert_eq!((&freed.owner, freed.token, &freed.checkpoint), (&None, None, &Checkpoint::TrimHorizon));
    let held = take(0, "b", 3).await;
    for plan in stale {
        let results = admin.apply(plan).await;
        assert!(matches!(&results[..], [AdminResult::Changed(of)] if *of == key(0)), "{results:?}");
    }
    assert_eq!(rows().await[0], held);

    let existing =
        target.create_if_not_exists(Lease::new(key(3), Checkpoint::ShardEnd)).await.unwrap().unwrap();
    let import = LeaseAdmin::new(target.clone(), application()).stream(&stream());
    let results = import.apply(import.plan_import(admin.export().await.unwrap())).await;
    assert!(matches!(&results[3], AdminResult::Changed(of) if *of == key(3)), "{results:?}");
    assert!(results.len() == 4 && results[..3].iter().all(AdminResult::is_done), "{results:?}");
    let mut expected = rows().await;
    (expected[0].owner, expected[0].token, expected[3]) = (None, None, existing);
    assert_eq!(target.list(&application(), &stream()).await.unwrap(), expected);

    done(&admin, admin.plan_delete(&one(3)).await.unwrap(), 1).await;
    assert_eq!(rows().await.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [0, 1, 2].map(key));

    factory.foreign_writer().unwrap().corrupt(&key(1)).await;
    let plan = admin.plan_reset(&Selection::All, &ResetTo::TrimHorizon).await.unwrap();
    assert_eq!(plan.unreadable(), [key(1)]);
    let shown = plan.to_string();
    let last = "leave out billing:orders/shardId-000000000001, whose row cannot be read";
    assert_eq!((shown.lines().count(), shown.lines().last()), (3, Some(last)));
    done(&admin, plan, 2).await;
    let other = admin.plan_delete(&one(2)).await.unwrap();
    assert_eq!((other.changes().len(), other.unreadable()), (1, &[][..]), "it was not selected");
    assert_eq!(admin.list().await.unwrap().unreadable.len(), 1);
    assert!(admin.export().await.is_err(), "an export is complete or it is none");
}
