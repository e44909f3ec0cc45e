//! The producer's metrics, each at its one place.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::metrics::{Labels, Recorder};
use kinesis_producer::{OutboundRecord, ProducerBuilder, StreamRef};
use kinesis_testkit::{Fault, Operation, TestKinesis};
use support::*;

fn metered(kinesis: &TestKinesis) -> (ProducerBuilder, Recorder) {
    let recorder = Recorder::new();
    (builder(kinesis).metrics(Arc::new(recorder.clone())), recorder)
}

fn gauge(recorder: &Recorder, name: &str) -> f64 {
    recorder.samples_of(name)[0].1.last.unwrap()
}

/// S-195, S-196, S-197, S-198, S-199, S-200, S-201: all metrics, each with the stream as its label.
#[tokio::test(start_paused = true)]
async fn all_metrics_carry_the_stream() {
    let kinesis = service(1);
    let (builder, recorder) = metered(&kinesis);
    let _producer = builder.build().unwrap();
    let names = recorder.names();
    assert_eq!(
        names,
        [
            "buffer_utilization",
            "bytes_sent_total",
            "kinesis_records_sent_total",
            "put_errors_total",
            "put_latency_ms",
            "records_failed_total",
            "records_misplaced_total",
            "records_retried_total",
            "records_sent_total",
            "shard_listing_errors_total",
            "shard_listings_total",
            "user_bytes_sent_total",
        ]
    );
    let stream = Labels::stream(StreamRef::new(STREAM).unwrap());
    for name in names {
        let labels: Vec<_> = recorder.samples_of(name).into_iter().map(|(labels, _)| labels).collect();
        assert_eq!(labels, std::slice::from_ref(&stream));
    }
}

/// S-160: metrics are an option that is off by default, and the log goes to `tracing` without being asked.
#[tokio::test(start_paused = true)]
async fn metrics_are_off_and_the_log_is_on_by_default() {
    let (log, _guard) = Log::capture();
    let kinesis = service(1);
    assert!(format!("{:?}", builder(&kinesis)).contains("metrics: Noop"));
    kinesis.faults().next(Operation::PutRecords, 1, Fault::Disconnect);
    let producer = producer(&kinesis);
    assert_eq!(attempts(&producer.put_batch(records(1)).await.unwrap()), [2]);
    assert!(log.lines("WARN")[0].contains("PutRecords failed stream=orders"), "{}", log.text());
}

/// S-195, S-196, S-198: a repeated record counts as sent once, as retried each time, and its bytes not at all.
#[tokio::test(start_paused = true)]
async fn sent_and_retried_records_are_counted() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 2, Fault::partial_failure(2, THROTTLED));
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.build().unwrap();
    let batch = (0..4).map(|number| OutboundRecord::new(format!("key-{number}"), vec![0; 100])).collect();
    assert_eq!(attempts(&producer.put_batch(batch).await.unwrap()), [1, 2, 1, 3]);
    assert_eq!(recorder.total("records_sent_total"), 4);
    assert_eq!(recorder.total("bytes_sent_total"), 200);
    assert_eq!(recorder.total("records_retried_total"), 2 + 1);
    assert_eq!(recorder.total("records_failed_total"), 0);
    assert_eq!(recorder.total("put_errors_total"), 0);
}

/// S-198, S-199: a record that is given up counts as failed once, after it counted as retried three times.
#[tokio::test(start_paused = true)]
async fn records_that_are_given_up_are_counted() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::partial_failure(2, THROTTLED));
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.max_retries(1).build().unwrap();
    producer.put_batch(records(8)).await.unwrap();
    // Of four refused records, two are refused again.
    assert_eq!(recorder.total("records_retried_total"), 4);
    assert_eq!(recorder.total("records_failed_total"), 2);
    assert_eq!(recorder.total("records_sent_total"), 6);
}

/// S-162, S-200: a call that fails as a whole counts apart from records that are refused on their own.
#[tokio::test(start_paused = true)]
async fn failed_calls_count_apart_from_refused_records() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 2, Fault::Disconnect);
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.build().unwrap();
    assert_eq!(attempts(&producer.put_batch(records(5)).await.unwrap()), [3; 5]);
    assert_eq!(recorder.total("put_errors_total"), 2);
    assert_eq!(recorder.total("records_retried_total"), 0);
    assert_eq!(recorder.total("records_failed_total"), 0);

    kinesis.faults().next(Operation::PutRecords, 1, Fault::AccessDenied);
    producer.put_batch(records(5)).await.unwrap();
    assert_eq!(recorder.total("put_errors_total"), 3);
    assert_eq!(recorder.total("records_failed_total"), 5);
}

/// S-197: the latency of the last call, in milliseconds.
#[tokio::test(start_paused = true)]
async fn the_latency_is_that_of_the_last_call() {
    let kinesis = service(1);
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.build().unwrap();
    for millis in [250, 40] {
        kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_millis(millis)));
        producer.put_batch(records(1)).await.unwrap();
        assert!((gauge(&recorder, "put_latency_ms") - millis as f64).abs() < 0.5);
    }
}

/// S-201, S-156: the buffer at zero, half and full.
#[tokio::test(start_paused = true)]
async fn the_gauge_shows_how_full_the_buffer_is() {
    let kinesis = service(1);
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.buffer_records(4).in_flight(1).linger(Duration::ZERO).build().unwrap();
    let utilization = || gauge(&recorder, "buffer_utilization");
    producer.put_batch(records(1)).await.unwrap();
    assert_eq!(utilization().to_bits(), 0.0_f64.to_bits());

    kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_secs(1)));
    for (number, percent) in [(0, 0.0), (1, 25.0), (2, 50.0), (3, 75.0), (4, 100.0_f64)] {
        drop(producer.try_put(record(number)).unwrap());
        after(1).await;
        // The bytes of the record in flight are a tiny part of their budget.
        assert!((utilization() - percent).abs() < 0.001, "{} for {percent}", utilization());
    }
    producer.try_put(record(5)).unwrap_err();
    producer.flush().await;
    after(1).await;
    assert_eq!(utilization().to_bits(), 0.0_f64.to_bits());
}

/// S-195, S-199: every record that was put ends in exactly one of the two counters, dropped producers included.
#[tokio::test(start_paused = true)]
async fn every_record_is_counted_once() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).every(2).always().inject(Fault::InternalFailure);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::partial_failure(3, THROTTLED));
    let (builder, recorder) = metered(&kinesis);
    let producer = builder.max_retries(2).batch_records(10).build().unwrap();
    for record in records(200) {
        drop(producer.put(record).await.unwrap());
    }
    drop(producer);
    after(1).await;
    let (sent, failed) = (recorder.total("records_sent_total"), recorder.total("records_failed_total"));
    assert_eq!((sent + failed, sent > 0, failed > 0), (200, true, true));
}
