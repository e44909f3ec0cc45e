//! Workers that share a table.

use kinesis_lease::{HeartbeatMode, LeaseConfig, LeaseEvent, LeaseStore as _, LeaseStoreSource, TableLayout};

use crate::common::{FakeDirectory, acquired, at, builder, key, millis, secs, stream};
use crate::support::Table;

/// S-042, S-046: two workers of one table in the KCL's layout share its leases, one takes over what the other
/// releases, and checkpoints go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_the_leases_of_one_table() {
    let table = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    let directory = FakeDirectory::open(4);
    let config = LeaseConfig::default().look_interval(millis(100));
    let start = |name: &'static str| {
        let table = table.clone();
        let source = LeaseStoreSource::factory(move || {
            let store = table.store();
            async move { Ok(store) }
        });
        builder(source, &directory, name).heartbeat(HeartbeatMode::OwnThread).config(config.clone()).start()
    };
    let (first, mut events) = start("a").await.unwrap();
    let mut held = Vec::new();
    for number in 0..4 {
        let tenure = acquired(&mut events).await;
        tenure.checkpoint(at(100 + number)).await.unwrap();
        held.push(tenure);
    }
    let (second, mut others) = start("b").await.unwrap();
    let releasing = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let LeaseEvent::HandOver { key, .. } = event {
                let tenure = held.iter().find(|tenure| *tenure.key() == key).unwrap();
                tenure.release(None).await.unwrap();
            }
        }
    });
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(acquired(&mut others).await);
    }
    assert!(first.shutdown(secs(10)).await.is_complete());
    releasing.await.unwrap();
    for _ in 0..2 {
        taken.push(acquired(&mut others).await);
    }
    assert!(taken.iter().all(|tenure| tenure.lease().checkpoint >= at(100)));
    assert!(second.shutdown(secs(10)).await.is_complete());
    let rows = table.store().get(&[0, 1, 2, 3].map(key)).await.unwrap();
    assert!(rows.into_iter().flatten().all(|row| row.owner.is_none() && row.checkpoint >= at(100)));
}
