//! Workers that share a table.

use kinesis_lease::{LeaseStore as _, LeaseStoreSource, TableLayout};

use crate::common::{at, key, stream, workers_share_leases};
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
