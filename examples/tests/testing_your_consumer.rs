//! How to test a consumer of your own: a Kinesis inside of the test, scripted faults, and time that passes at once.
//!
//! `start_paused` makes tokio's time virtual: whenever everything waits, it jumps to the next timer. Hours of retries
//! take milliseconds, and the same run happens every time. Two things go with it: the in-process client of
//! `TestKinesis` (no sockets), and `HeartbeatMode::Inline` (no thread with a clock of its own).
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::lease::{HeartbeatMode, MemoryStore};
use kinesis_consumer::{BoxError, Consumer, ConsumerBuilder, NoDoor, Record};
use kinesis_testkit::{Fault, Operation, TestKinesis};

/// What is tested: adds up the amounts of orders. An amount that is no number is refused for good.
#[derive(Debug, Clone, Default)]
struct Turnover(Arc<Mutex<u64>>);

impl Turnover {
    async fn add(self, record: Record) -> Result<(), BoxError> {
        let amount: u64 = std::str::from_utf8(record.data())?.parse()?;
        *self.0.lock().unwrap() += amount;
        Ok(())
    }

    /// Waits until the sum is right. An hour that passes at once, and then the test fails.
    async fn becomes(&self, sum: u64) {
        let waited = tokio::time::timeout(Duration::from_secs(3_600), async {
            while *self.0.lock().unwrap() != sum {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        assert!(waited.await.is_ok(), "the sum stays at {} instead of {sum}", self.0.lock().unwrap());
    }
}

fn kinesis() -> TestKinesis {
    let kinesis = TestKinesis::new();
    kinesis.create_stream("orders", 1).unwrap();
    kinesis
}

fn builder(kinesis: &TestKinesis) -> ConsumerBuilder<NoDoor> {
    Consumer::builder(kinesis.client(), "billing", "orders")
        .lease_store(MemoryStore::new())
        .heartbeat(HeartbeatMode::Inline)
}

/// The plain case: put, consume, stop, look at the report.
#[tokio::test(start_paused = true)]
async fn amounts_are_added_up() {
    let kinesis = kinesis();
    kinesis.put("orders", "customer-7", "12").unwrap();
    kinesis.put("orders", "customer-8", "30").unwrap();

    let turnover = Turnover::default();
    let handler = turnover.clone();
    let consumer =
        builder(&kinesis).for_each(move |record| handler.clone().add(record)).build().unwrap().spawn();
    turnover.becomes(42).await;

    let report = consumer.shutdown(Duration::from_secs(10)).await.unwrap();
    assert!(report.is_clean());
    let stored = report.shards[0].stored.as_ref().unwrap().to_string();
    assert_eq!(stored, kinesis.records("orders").unwrap()[1].sequence_number);
}

/// The service misbehaves: reads are throttled, fail, lose their reply, and their iterators expire.
#[tokio::test(start_paused = true)]
async fn a_bad_day_of_the_service_changes_nothing() {
    let kinesis = kinesis();
    for fault in [Fault::Throttle, Fault::InternalFailure, Fault::DropReply, Fault::ExpireIterator] {
        kinesis.faults().next(Operation::GetRecords, 3, fault);
    }
    kinesis.put("orders", "customer-7", "42").unwrap();

    let turnover = Turnover::default();
    let handler = turnover.clone();
    let consumer =
        builder(&kinesis).for_each(move |record| handler.clone().add(record)).build().unwrap().spawn();
    turnover.becomes(42).await;
    assert_eq!(kinesis.faults().pending(), 0, "every fault was met");
    assert!(consumer.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
}

/// The handler fails for a while: the record is offered again, and what follows it waits.
#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_for_ten_minutes_loses_nothing() {
    let kinesis = kinesis();
    kinesis.put("orders", "customer-7", "12").unwrap();
    kinesis.put("orders", "customer-7", "30").unwrap();

    let start = tokio::time::Instant::now();
    let turnover = Turnover::default();
    let handler = turnover.clone();
    let consumer = builder(&kinesis)
        .for_each(move |record| {
            let handler = handler.clone();
            async move {
                if start.elapsed() < Duration::from_secs(600) {
                    return Err("the database does not answer".into());
                }
                handler.add(record).await
            }
        })
        .build()
        .unwrap()
        .spawn();
    turnover.becomes(42).await;
    assert!(start.elapsed() >= Duration::from_secs(600), "virtual time has passed");
    assert!(consumer.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
}

/// The stream is resharded under the running consumer.
#[tokio::test(start_paused = true)]
async fn a_split_and_a_merge_lose_nothing() {
    let kinesis = kinesis();
    let turnover = Turnover::default();
    let handler = turnover.clone();
    let consumer =
        builder(&kinesis).for_each(move |record| handler.clone().add(record)).build().unwrap().spawn();

    kinesis.put("orders", "customer-7", "12").unwrap();
    turnover.becomes(12).await;
    let halves = kinesis.split("orders", "shardId-000000000000").unwrap();
    kinesis.put("orders", "customer-7", "10").unwrap();
    kinesis.merge("orders", &halves[0], &halves[1]).unwrap();
    kinesis.put("orders", "customer-7", "20").unwrap();
    turnover.becomes(42).await;
    assert!(consumer.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
}
