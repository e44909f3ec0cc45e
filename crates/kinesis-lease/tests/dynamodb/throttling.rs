//! A service that asks for fewer calls.

use kinesis_core::Checkpoint;
use kinesis_core::lease::{Lease, LeaseStore, LeaseWrite, Outcome, StoreError};
use kinesis_lease::{LeaseConfig, LeaseEvent};

use crate::common::{FakeDirectory, acquired, at, builder, key, millis, secs};
use crate::support::{Fate, Table};

const THROTTLED: Fate = Fate::Refused("ProvisionedThroughputExceededException");

fn creations(count: u32) -> Vec<LeaseWrite> {
    (0..count).map(|number| LeaseWrite::create(Lease::new(key(number), Checkpoint::Latest))).collect()
}

/// F-15: throttling is its own error, is repeated once at most, and one write's says nothing of the others.
#[tokio::test]
async fn throttled_writes_are_errors_of_their_own() {
    let table = Table::new().await;
    let store = table.ready().await;
    // One call at a time, so that the third request and its repetition are those of the third write.
    let store = {
        drop(store);
        table.builder().max_concurrency(1).build().unwrap()
    };
    table.wire.disturb(|operation, before| {
        if operation == "PutItem" && (before == 2 || before == 3) { THROTTLED } else { Fate::Pass }
    });
    let mut results = store.apply(&creations(5)).await;
    let error = results.remove(2).unwrap_err();
    assert!(matches!(error, StoreError::Throttled { .. }) && error.is_retryable(), "{error}");
    assert!(results.iter().all(|result| matches!(result, Ok(Outcome::Applied(_)))), "{results:?}");
    assert_eq!(table.wire.sent("PutItem").len(), 6, "a throttled write is sent twice at most");
    assert_eq!(table.wire.sent("GetItem").len(), 0, "nothing is read under throttling");
    assert_eq!(store.get(&[key(2)]).await.unwrap(), [None]);
}

#[tokio::test]
async fn throttled_reads_are_errors_that_pass() {
    let table = Table::new().await;
    let store = table.ready().await;
    table.wire.disturb(|_, _| Fate::Refused("ThrottlingException"));
    let request = kinesis_core::lease::ScanRequest::new(crate::common::application());
    for error in [store.get(&[key(0)]).await.unwrap_err(), store.scan(&request).await.unwrap_err()] {
        assert!(matches!(error, StoreError::Throttled { .. }), "{error}");
    }
}

/// Rows that the service leaves out of a batch for lack of capacity are asked for again, and only they.
#[tokio::test]
async fn rows_that_were_left_out_are_asked_for_again() {
    let table = Table::new().await;
    let store = table.ready().await;
    assert!(store.apply(&creations(130)).await.iter().all(Result::is_ok));
    table.wire.disturb(|operation, before| {
        if operation == "BatchGetItem" && before < 2 { Fate::Unprocessed } else { Fate::Pass }
    });
    let keys: Vec<_> = (0..130).chain([0]).map(key).collect();
    let rows = store.get(&keys).await.unwrap();
    assert_eq!(rows.into_iter().map(|row| row.unwrap().key).collect::<Vec<_>>(), keys);
    let sent = table.wire.sent("BatchGetItem");
    let mut sizes: Vec<usize> =
        sent.iter().map(|body| body["RequestItems"][&table.name]["Keys"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [30, 30, 100, 100]);

    table.wire.disturb(|_, _| Fate::Unprocessed);
    let error = store.get(&[key(0)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Throttled { .. }), "{error}");
    assert_eq!(table.wire.sent("BatchGetItem").len(), 5, "the caller hears of it after some tries");
}

/// F-15: a worker whose calls are throttled two times of five keeps its leases, heartbeats and checkpoints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttling_costs_no_lease() {
    let table = Table::new().await;
    let store = table.ready().await;
    let directory = FakeDirectory::open(8);
    let config = LeaseConfig::default().heartbeat_interval(millis(200)).look_interval(millis(200));
    let (coordinator, mut events) =
        builder(table.store(), &directory, "a").config(config).start().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(acquired(&mut events).await);
    }
    table.wire.disturb(|_, before| if before % 5 < 2 { THROTTLED } else { Fate::Pass });
    let keys: Vec<_> = (0..8).map(key).collect();
    let others = tokio::spawn(async move {
        let mut others = Vec::new();
        while let Some(event) = events.next().await {
            others.extend((!matches!(event, LeaseEvent::Warning(_))).then(|| format!("{event:?}")));
        }
        others
    });
    loop {
        // Reads are throttled as well.
        let Ok(rows) = store.get(&keys).await else { continue };
        if rows.iter().flatten().all(|row| row.counter > 12) {
            break;
        }
        tokio::time::sleep(millis(50)).await;
    }
    for tenure in &held {
        assert!(!tenure.ownership().is_lost());
        tenure.checkpoint(at(5)).await.unwrap();
    }
    drop(held);
    assert!(coordinator.shutdown(secs(30)).await.is_complete());
    let events = others.await.unwrap();
    assert!(!events.iter().any(|event| event.starts_with("Lost")), "{events:?}");
    let mut rows = store.get(&keys).await;
    while rows.is_err() {
        rows = store.get(&keys).await;
    }
    assert!(rows.unwrap().iter().flatten().all(|row| row.epoch == 1 && row.checkpoint == at(5)));
}
