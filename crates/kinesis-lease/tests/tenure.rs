//! One coordinator on virtual time: what a tenure can do.

mod common;

use common::*;

/// S-042: what is released at a shutdown can be taken at once, long before it would expire.
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_in_the_next_look() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(3);
    let (first, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    for _ in 0..3 {
        acquired(&mut events).await.checkpoint(at(7)).await.unwrap();
    }
    let (second, mut others) = builder(store.clone(), &directory, "b").start().await.unwrap();
    let report = first.shutdown(secs(5)).await;
    assert!(report.is_complete());
    let before = tokio::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(acquired(&mut others).await.lease().checkpoint, at(7));
    }
    assert!(before.elapsed() < secs(3), "took {:?}", before.elapsed());
    second.shutdown(secs(5)).await;
}
