//! A row that cannot be read, under a running worker.

use kinesis_core::Checkpoint;
use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::conformance::StoreFactory;
use kinesis_lease::{
    HeartbeatMode, Lease, LeaseConfig, LeaseEvent, LeaseStoreExt, LeaseWarning, ScanRequest, StoreError,
};

use super::{FakeDirectory, application, builder, key, millis, secs, shard, stream};

/// A worker takes and keeps the other two of three leases, makes and takes that of a new shard, and warns once of the one
/// that cannot be read.
pub(crate) async fn other_shards_go_on(factory: &impl StoreFactory) {
    let store = factory.client().await;
    store.setup().await.unwrap();
    for number in 0..3 {
        store.create_if_not_exists(Lease::new(key(number), Checkpoint::TrimHorizon)).await.unwrap().unwrap();
    }
    factory.foreign_writer().unwrap().corrupt(&key(1)).await;

    let config = LeaseConfig::default()
        .expiry(secs(4))
        .heartbeat_interval(millis(300))
        .look_interval(millis(200))
        .full_look_interval(millis(400))
        .discovery_interval(secs(1));
    let directory = FakeDirectory::open(3);
    let builder = builder(factory.client().await, &directory, "a").config(config);
    let (coordinator, mut events) = builder.heartbeat(HeartbeatMode::OwnThread).start().await.unwrap();
    let telling = tokio::spawn(async move {
        let (mut held, mut warned) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event {
                LeaseEvent::Acquired(tenure) => held.push(tenure),
                LeaseEvent::Warning(LeaseWarning::Unreadable(error)) => warned.push(error),
                other => panic!("{other:?}"),
            }
        }
        (held, warned)
    });
    directory.set((0..4).map(|number| ShardInfo::new(shard(number))).collect());
    let rows = async || store.scan(&ScanRequest::new(application()).stream(stream())).await.unwrap();
    // A dozen renewals are some ten looks.
    super::until_async("the others are taken and renewed", async || {
        let leases = rows().await.leases;
        leases.len() == 3 && leases.iter().all(|row| row.counter >= 12)
    })
    .await;
    let page = rows().await;
    assert!(matches!(&page.unreadable[..], [StoreError::Corrupt { key: of, .. }] if **of == key(1)));
    assert!(page.leases.iter().all(|row| row.epoch == 1 && row.owner.is_some()));

    assert!(coordinator.shutdown(secs(10)).await.is_complete());
    let (held, warned) = telling.await.unwrap();
    let mut keys: Vec<_> = held.iter().map(|tenure| tenure.key().clone()).collect();
    keys.sort();
    assert_eq!(keys, [0, 2, 3].map(key));
    let [warning] = &warned[..] else { panic!("{warned:?}") };
    assert!(matches!(&**warning, StoreError::Corrupt { key: of, .. } if **of == key(1)), "{warning:?}");
    assert!(rows().await.leases.iter().all(|row| row.owner.is_none()));
}
