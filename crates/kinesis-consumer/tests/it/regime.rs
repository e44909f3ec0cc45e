//! A table that is shared with the KCL changes to its version 3.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_consumer::core::lease::{LeaseStore, StoreError};
use kinesis_consumer::lease::{
    LeaseStoreSource, Regime, RegimeProbe, RegimeSighting, StartError, TableTenants,
};
use kinesis_consumer::{BoxError, ConsumerError, RecordBatch};
use kinesis_core::WorkerId;
use tokio::time::Instant;

use crate::common::{Seen, World, numbers, text};

/// A table whose regime the test sets.
#[derive(Debug, Clone)]
struct Probe {
    regime: Arc<Mutex<Regime>>,
    looks: Arc<AtomicU32>,
}

impl Probe {
    fn new(regime: Regime) -> Self {
        Self { regime: Arc::new(Mutex::new(regime)), looks: Arc::default() }
    }
}

#[async_trait]
impl RegimeProbe for Probe {
    async fn tenants(&self) -> Result<TableTenants, StoreError> {
        Ok(TableTenants::shared(Some("the lease x was made by the KCL".to_owned())))
    }

    async fn regime(&self) -> Result<RegimeSighting, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let regime = self.regime.lock().unwrap().clone();
        Ok(RegimeSighting::new(regime, "billing-CoordinatorState", "Migration3.0", "CLIENT_VERSION_3X"))
    }

    async fn publish(&self, _: &WorkerId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn retire(&self, _: &WorkerId) -> Result<(), StoreError> {
        Ok(())
    }
}

fn source(world: &World, probe: &Probe) -> LeaseStoreSource {
    let store: Arc<dyn LeaseStore> = world.leases.clone();
    LeaseStoreSource::from(store).regime_probe(probe.clone())
}

/// The regime is looked at every 30 s; when a leader begins to assign, the handler finishes what it has, what it finished is
/// stored, the leases are given back, and the run ends with an error that names the table and the item.
#[tokio::test(start_paused = true)]
async fn a_leader_in_mid_run_drains_the_consumer_and_is_reported() {
    let (world, seen, probe) = (World::new(2), Seen::default(), Probe::new(Regime::Takers));
    let log = seen.clone();
    let consumer = world
        .consumer("worker")
        .lease_store(source(&world, &probe))
        .for_each_batch(move |batch: RecordBatch| {
            let log = log.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                batch.records().iter().for_each(|record| log.add(text(record)));
                Ok::<(), BoxError>(())
            }
        })
        .build()
        .unwrap();
    let began = Instant::now();
    let handle = consumer.spawn();
    world.put(0, 6, 6);
    seen.until(|seen| seen.len() == 6).await;
    assert_eq!(probe.looks.load(Ordering::SeqCst), 1, "at the start");
    tokio::time::sleep_until(began + Duration::from_millis(29_500)).await;
    *probe.regime.lock().unwrap() = Regime::Leader;
    world.put(6, 12, 6);
    let ended = handle.finished().await.unwrap_err();
    let ConsumerError::RegimeChanged(found) = &*ended else { panic!("{ended}") };
    assert_eq!((found.table.as_str(), found.item.as_str()), ("billing-CoordinatorState", "Migration3.0"));
    assert!(ended.to_string().contains("CLIENT_VERSION_3X") && !ended.is_retryable(), "{ended}");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(36), "{took:?}");
    assert_eq!(
        crate::common::sorted(seen.all()),
        crate::common::sorted(numbers(0, 12)),
        "what was begun is finished"
    );
    for row in world.rows().await {
        assert_eq!(row.owner, None, "the leader can assign it");
        let records = world.kinesis.records("orders").unwrap();
        let of_shard = records.iter().filter(|record| record.shard_id == row.key.shard().as_str());
        let last = of_shard.map(|record| record.sequence_number.parse().unwrap()).max();
        assert_eq!(
            row.checkpoint.position().map(|at| at.sequence().clone()),
            last,
            "what it finished is stored"
        );
    }
    assert_eq!(probe.looks.load(Ordering::SeqCst), 2, "every 30 s");
}

/// Where a leader assigns already, nothing is begun.
#[tokio::test(start_paused = true)]
async fn a_table_with_a_leader_is_refused() {
    let world = World::new(1);
    let consumer = world
        .consumer("worker")
        .lease_store(source(&world, &Probe::new(Regime::Leader)))
        .for_each_batch(|_: RecordBatch| async { Ok::<(), BoxError>(()) })
        .build()
        .unwrap();
    let ended = consumer.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(&ended, ConsumerError::Start(StartError::Regime(_))), "{ended}");
    assert!(!ended.is_retryable());
    assert_eq!(world.rows().await.len(), 0);
}
