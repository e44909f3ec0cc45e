//! The item by which workers tell each other that leases have become free.

use std::collections::BTreeSet;

use kinesis_core::{ApplicationName, Checkpoint};
use kinesis_lease::{
    FieldWrite, Guard, HintRequest, Lease, LeaseEvent, LeaseKey, LeaseStore, LeaseWrite, ScanCost,
    ScanRequest, TableLayout,
};
use tokio::time::{Instant, timeout};

use crate::common::{
    FakeDirectory, acquired, application, builder, key, millis, secs, shard, stream, worker,
};
use crate::support::{Fate, Table, n, s};

fn create(number: u32) -> LeaseWrite {
    LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))
}

fn release(number: u32) -> LeaseWrite {
    let fields = vec![FieldWrite::Owner(None)];
    LeaseWrite::new(key(number), Guard::Exists, kinesis_lease::Change::Update(fields))
}

fn request() -> HintRequest {
    HintRequest::new(application(), stream(), millis(20))
}

fn hints_sent(table: &Table) -> usize {
    let updates = table.wire.sent("UpdateItem");
    updates.iter().filter(|body| body["Key"]["leaseKey"]["S"] == "|billing|orders|").count()
}

/// S-042: each batch that frees something moves the counter once, other writes do not; who reads it hears of it.
#[tokio::test]
async fn a_batch_that_frees_leases_gives_one_hint() {
    let table = Table::new().await;
    let store = table.ready().await;
    assert_eq!(store.profile().scan_cost, ScanCost::PerRow);
    let mut hints = store.hints(&request()).unwrap();
    // The first reading says what was before.
    assert!(timeout(millis(200), hints.next()).await.is_err());
    table.wire.disturb(|_, _| Fate::Pass);
    store.apply(&[create(0), create(1), create(2)]).await;
    assert_eq!(hints_sent(&table), 1);
    timeout(secs(10), hints.next()).await.unwrap().unwrap();
    store.apply(&[release(0), release(1), release(7)]).await;
    assert_eq!(hints_sent(&table), 2);
    timeout(secs(10), hints.next()).await.unwrap().unwrap();
    let add = kinesis_lease::Change::Update(vec![FieldWrite::AddCounter(1)]);
    store.apply(&[LeaseWrite::new(key(0), Guard::Exists, add), create(1), release(7)]).await;
    assert_eq!(hints_sent(&table), 2, "a renewal and writes that are refused free nothing");
    assert!(timeout(millis(200), hints.next()).await.is_err());
    let row = table.row("|billing|orders|").await.unwrap();
    assert_eq!((&row["entityType"], &row["kinesisRs_hints"]), (&s("HINT"), &n(2)));
}

/// The item is no lease, and no row has its key, whatever the names are.
#[tokio::test]
async fn the_item_is_not_taken_for_a_lease() {
    let table = Table::new().await;
    let store = table.ready().await;
    let name = |name: &str| ApplicationName::new(name).unwrap();
    let key_of = |application: &str| LeaseKey::new(name(application), stream(), shard(0));
    for application in ["a", "|a", "a|orders"] {
        let lease = Lease::new(key_of(application), Checkpoint::Latest);
        store.apply(&[LeaseWrite::create(lease)]).await.remove(0).unwrap();
    }
    for application in ["a", "|a", "a|orders"] {
        let page = store.scan(&ScanRequest::new(name(application))).await.unwrap();
        let found: Vec<LeaseKey> = page.leases.into_iter().map(|lease| lease.key).collect();
        assert_eq!((found, page.unreadable.len()), (vec![key_of(application)], 0));
    }
    // It does not count as a row of another layout either.
    store.setup().await.unwrap();
    let items = table.client().scan().table_name(&table.name).send().await.unwrap().items.unwrap();
    let keys: BTreeSet<&String> = items.iter().map(|item| item["leaseKey"].as_s().unwrap()).collect();
    assert_eq!((items.len(), keys.len()), (6, 6));
}

/// In a table that the KCL shares there is no item of ours, and none where it is not wanted.
#[tokio::test]
async fn shared_tables_have_no_item() {
    let shared = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    let unwanted = Table::new().await;
    for (table, store) in
        [(&shared, shared.ready().await), (&unwanted, unwanted.builder().hints(false).build().unwrap())]
    {
        store.setup().await.unwrap();
        assert!(store.hints(&request()).is_none());
        assert_eq!(store.profile().scan_cost, ScanCost::PerRow);
        store.apply(&[create(0)]).await.remove(0).unwrap();
        let items = table.client().scan().table_name(&table.name).send().await.unwrap();
        assert_eq!(items.count(), 1);
    }
}

/// A hint that cannot be written, or is never answered, changes nothing of the writes that it is for.
#[tokio::test]
async fn a_hint_that_fails_costs_no_write() {
    for fate in [Fate::Refused("ProvisionedThroughputExceededException"), Fate::Ignored] {
        let table = Table::new().await;
        let store = table.ready().await;
        store.apply(&[create(0)]).await.remove(0).unwrap();
        // The release comes first, its hint after it.
        table.wire.disturb(move |operation, before| match operation {
            "UpdateItem" if before > 0 => fate,
            _ => Fate::Pass,
        });
        let began = Instant::now();
        assert!(store.apply(&[release(0)]).await.remove(0).is_ok());
        assert!(hints_sent(&table) >= 1);
        assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
    }
}

/// Making the store ready may take as long as the table may.
#[tokio::test]
async fn a_slow_table_is_waited_for() {
    let table = Table::new().await;
    let store = table.builder().table_timeout(secs(600)).build().unwrap();
    assert!(store.profile().setup_timeout > secs(600));
}

/// S-042: what a worker gives back when it stops is held by the next within 2 s, though all rows are read each 20 s only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_is_over_within_two_seconds() {
    let table = Table::new().await;
    let directory = FakeDirectory::open(4);
    let (first, mut events) = builder(table.store(), &directory, "a").start().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(acquired(&mut events).await);
    }
    let (second, mut others) = builder(table.store(), &directory, "b").start().await.unwrap();
    // It asks for two of them.
    for _ in 0..2 {
        let key = loop {
            let event = timeout(secs(60), events.next()).await.unwrap().unwrap();
            if let LeaseEvent::HandOver { key, .. } = event {
                break key;
            }
        };
        let at = held.iter().position(|tenure| *tenure.key() == key).unwrap();
        held.remove(at).release(None).await.unwrap();
        acquired(&mut others).await;
    }
    tokio::time::sleep(secs(3)).await;
    table.wire.disturb(|_, _| Fate::Pass);
    let began = Instant::now();
    assert!(first.shutdown(secs(10)).await.is_complete());
    for _ in 0..2 {
        let tenure = timeout(secs(10), acquired(&mut others)).await.unwrap();
        assert_eq!(tenure.lease().owner, Some(worker("b")));
    }
    let took = began.elapsed();
    assert!(took <= secs(2), "{took:?}");
    assert_eq!(hints_sent(&table), 1, "one for all of the release");
    assert!(second.shutdown(secs(10)).await.is_complete());
}
