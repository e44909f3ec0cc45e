//! Many tasks at once, with random timing and random trouble.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use kinesis_producer::{CloseReport, PutError, RecordErrorKind};
use kinesis_testkit::{Fault, Operation};
use proptest::prelude::*;
use support::*;

#[derive(Debug, Clone)]
struct Plan {
    tasks: usize,
    puts: usize,
    pause: u64,
    flush_every: usize,
    batch_every: usize,
    batch_records: usize,
    buffer_records: usize,
    in_flight: usize,
    close_after: u64,
    close_limit: u64,
    faults: Vec<(u64, Fault)>,
}

fn faults() -> impl Strategy<Value = Vec<(u64, Fault)>> {
    let fault = prop_oneof![
        Just(Fault::partial_failure(2, THROTTLED)),
        Just(Fault::partial_failure(3, "InternalFailure")),
        Just(Fault::InternalFailure),
        Just(Fault::Disconnect),
        Just(Fault::AccessDenied),
        Just(Fault::Hang(Duration::MAX)),
        Just(Fault::LateReply(Duration::from_millis(300))),
    ];
    prop::collection::vec((2_u64..6, fault), 0..4)
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        (1_usize..6, 1_usize..40, 0_u64..60, 2_usize..9, 2_usize..9),
        (1_usize..20, 1_usize..40, 1_usize..5, 0_u64..1_500, 0_u64..4_000),
        faults(),
    )
        .prop_map(|(first, second, faults)| Plan {
            tasks: first.0,
            puts: first.1,
            pause: first.2,
            flush_every: first.3,
            batch_every: first.4,
            batch_records: second.0,
            buffer_records: second.1,
            in_flight: second.2,
            close_after: second.3,
            close_limit: second.4,
            faults,
        })
}

/// What became of one record, as its task saw it.
#[derive(Debug, PartialEq)]
enum End {
    Sent,
    Failed(RecordErrorKind),
    Refused,
}

async fn run(plan: Plan) {
    let kinesis = service(2);
    for (every, fault) in plan.faults {
        kinesis.faults().on(Operation::PutRecords).every(every).always().inject(fault);
    }
    let producer = builder(&kinesis)
        .batch_records(plan.batch_records)
        .buffer_records(plan.buffer_records)
        .in_flight(plan.in_flight)
        .attempt_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..plan.tasks {
        let producer = producer.clone();
        tasks.spawn(async move {
            let mut ends = Vec::new();
            let mut receipts = Vec::new();
            for number in (0..plan.puts).map(|number| task * 1_000 + number) {
                if number % plan.batch_every == 0 {
                    match producer.put_batch(vec![record(number)]).await {
                        Ok(mut results) => ends.push((number, end(results.remove(0).map(|_| ())))),
                        Err(error) => ends.push((number, refused(&error))),
                    }
                } else {
                    match producer.put(record(number)).await {
                        Ok(receipt) => receipts.push((number, receipt)),
                        Err(error) => ends.push((number, refused(&error))),
                    }
                }
                if number % plan.flush_every == 0 {
                    producer.flush_within(Duration::from_millis(200)).await;
                }
                after(plan.pause).await;
            }
            for (number, receipt) in receipts {
                ends.push((number, end(receipt.await.map(|_| ()))));
            }
            ends
        });
    }
    after(plan.close_after).await;
    let started = tokio::time::Instant::now();
    let limit = Duration::from_millis(plan.close_limit);
    let report = producer.close(limit).await;
    assert!(started.elapsed() <= limit + Duration::from_millis(1));
    assert_eq!(producer.put(record(0)).await.unwrap_err(), PutError::Closed);

    let mut ends = BTreeMap::new();
    while let Some(task) = tasks.join_next().await {
        for (number, end) in task.unwrap() {
            assert!(ends.insert(number, end).is_none());
        }
    }
    assert_eq!(ends.len(), plan.tasks * plan.puts, "each record has an end");
    let stored = copies(&kinesis);
    for (number, end) in &ends {
        let found = stored.contains_key(&format!("value-{number}"));
        match end {
            End::Sent => assert!(found, "{number} is lost"),
            End::Refused => assert!(!found, "{number} was not put"),
            End::Failed(_) => {}
        }
    }
    let closed = ends.values().filter(|end| **end == End::Failed(RecordErrorKind::Closed)).count();
    assert_eq!(report.unsent.len(), closed);
}

fn end(result: Result<(), kinesis_producer::RecordError>) -> End {
    result.map_or_else(|error| End::Failed(error.kind()), |()| End::Sent)
}

fn refused(error: &PutError) -> End {
    assert_eq!(*error, PutError::Closed);
    End::Refused
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// S-158, S-159, F-32, F-36: tasks that put, flush and close at the same time under any trouble: what was
    /// reported as stored is stored, what was refused is not, and every record has exactly one end.
    #[test]
    fn puts_flushes_and_a_close_lose_nothing(plan in plan()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(plan));
    }
}

/// S-150, S-158: the same on several threads, in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_share_one_producer() {
    let kinesis = service(4);
    let producer = builder(&kinesis).linger(Duration::from_millis(1)).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_usize {
        let producer = producer.clone();
        tasks.spawn(async move {
            for number in 0..500 {
                drop(producer.put(record(task * 1_000 + number)).await.unwrap());
            }
            assert!(producer.flush().await.is_complete());
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let stored = copies(&kinesis);
    assert_eq!((stored.len(), stored.into_values().max()), (4_000, Some(1)));
    assert_eq!(producer.close(LIMIT).await, CloseReport::default());
}
