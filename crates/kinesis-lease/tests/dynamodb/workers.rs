//! Workers that share a table.

use kinesis_lease::{LeaseConfig, LeaseStore as _, LeaseStoreSource, TableLayout};

use crate::common::{
    FakeDirectory, at, bad_rows, builder, key, looking_after, one_write_keeps_all_leases, stream,
    workers_share_leases,
};
use crate::support::Table;

/// S-042, S-046: two workers of one table in the KCL's layout share its leases, one takes over what the other
/// releases, and checkpoints go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_the_leases_of_one_table() {
    let table = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    workers_share_leases(|| {
        let table = table.clone();
        LeaseStoreSource::factory(move || {
            let store = table.store();
            async move { Ok(store) }
        })
    })
    .await;
    let rows = table.store().get(&[0, 1, 2, 3].map(key)).await.unwrap();
    assert!(rows.into_iter().flatten().all(|row| row.owner.is_none() && row.checkpoint >= at(100)));
}

/// S-026: idle leases cost one write each heartbeat interval where the whole worker has one heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_leases_cost_one_write_each_interval() {
    // In memory and in SQLite it is a thousand; this server takes a while for so many.
    let table = Table::new().await;
    one_write_keeps_all_leases(table.ready().await, 100).await;
}

/// A worker of the KCL would take the row of a worker for a lease: a start is refused that names the setting and what the
/// table needs.
#[tokio::test]
async fn tables_that_the_kcl_can_use_have_no_rows_of_workers() {
    let table = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    let config = LeaseConfig::default().worker_heartbeat(true);
    let start = builder(table.ready().await, &FakeDirectory::open(1), "a").config(config).start();
    let refused = start.await.unwrap_err();
    assert!(!refused.is_retryable());
    let said = refused.to_string();
    assert!(said.contains("`worker_heartbeat`") && said.contains("coordination = native"), "{said}");
}

/// S-036, S-053: everything that an operator can do works on this store, in tables of its own and in those of the KCL.
#[tokio::test]
async fn leases_are_looked_after() {
    for layout in [TableLayout::Native, TableLayout::kcl_single_stream(stream())] {
        let (table, another) = (Table::new().await, Table::new().await);
        looking_after::admin_on(&table.layout(layout.clone()), &another.layout(layout)).await;
    }
}

/// S-117: garbage in a row costs that shard alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_shards_go_on_beside_an_unreadable_row() {
    bad_rows::other_shards_go_on(&Table::new().await).await;
}
