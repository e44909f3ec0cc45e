//! Compressed payloads: what goes out, what counts, and what cannot be sent.
#![cfg(all(feature = "gzip", feature = "lz4", feature = "zstd"))]
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::metrics::Recorder;
use kinesis_kpl::{Aggregator, AggregatorConfig, RecordRef, is_aggregated};
use kinesis_producer::compress::{Compression, Compressor, Decompressor, Level};
use kinesis_producer::{Aggregation, ConfigError, OutboundRecord, Producer, ProducerBuilder, PutError};
use kinesis_testkit::{Operation, Outcome, TestKinesis};
use support::aggregates::split;
use support::*;

fn compressing(kinesis: &TestKinesis, format: Compression) -> ProducerBuilder {
    builder(kinesis).compression(format)
}

fn unpacked(data: &Bytes) -> Bytes {
    Decompressor::auto().max_output(64 * MIB).decompress(data).unwrap()
}

/// The stored payloads as they are on the wire.
fn wire(kinesis: &TestKinesis) -> Vec<Bytes> {
    kinesis.records(STREAM).unwrap().into_iter().map(|record| record.data).collect()
}

/// Text that shrinks well, in lines that differ.
fn text(len: usize) -> Bytes {
    let mut text = String::with_capacity(len + 100);
    for line in 0_u64.. {
        if text.len() >= len {
            break;
        }
        let place = line.wrapping_mul(2_654_435_761) % 9_973;
        text.push_str(&format!(
            "{{\"magnitude\":4.1,\"place\":\"{place} km from Quito\",\"line\":{line}}}\n"
        ));
    }
    text.truncate(len);
    text.into()
}

fn noise(len: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(5);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// S-140: one option compresses what is sent, with each format; nothing else changes for the sender.
#[tokio::test(start_paused = true)]
async fn one_option_compresses_what_is_sent() {
    for format in Compression::ALL {
        let kinesis = service(2);
        let recorder = Recorder::new();
        let producer = compressing(&kinesis, format).metrics(Arc::new(recorder.clone())).build().unwrap();
        let receipt = producer.put(OutboundRecord::new("key", text(10_000))).await.unwrap();
        let sent = receipt.await.unwrap();
        assert_eq!((sent.attempts, sent.sub_sequence), (1, 0));
        let [data] = &wire(&kinesis)[..] else { panic!("one record") };
        assert_eq!(*data, Compressor::new(format).unwrap().compress(&text(10_000)).unwrap());
        assert!(data.len() < 5_000 && unpacked(data) == text(10_000), "{format}: {} bytes", data.len());
        assert_eq!(recorder.total("bytes_sent_total"), data.len() as u64);
        assert_eq!(recorder.total("user_bytes_sent_total"), 10_000);
    }
}

/// S-140: compression is off by default, and a wrong level is named.
#[tokio::test(start_paused = true)]
async fn compression_is_an_option() {
    let kinesis = service(1);
    let producer = producer(&kinesis);
    assert_eq!(producer.config().compression, None);
    producer.put_batch(vec![OutboundRecord::new("key", text(10_000))]).await.unwrap();
    assert_eq!(wire(&kinesis), [text(10_000)]);
    let bad = compressing(&kinesis, Compression::Gzip).compression_level(Level::Exact(40)).build();
    assert_eq!(bad.unwrap_err().field(), "compression_level");
    let bad = compressing(&kinesis, Compression::Gzip).max_input_bytes(MIB - 1).build();
    assert_eq!(bad.as_ref().map_err(ConfigError::field).unwrap_err(), "max_input_bytes");
}

/// S-142, F-44: the limits of a call count what goes out: 20 MB of text are one call, with and without aggregation.
#[tokio::test(start_paused = true)]
async fn twenty_megabytes_of_text_are_one_call() {
    for aggregation in [Aggregation::Off, Aggregation::ByShard] {
        for format in Compression::ALL {
            let kinesis = service(1);
            let producer = compressing(&kinesis, format).aggregation(aggregation).build().unwrap();
            let line = text(1_000);
            let payload = Bytes::from(line.repeat(100));
            let batch =
                (0..200).map(|number| OutboundRecord::new(format!("{number}"), payload.clone())).collect();
            let results = producer.put_batch(batch).await.unwrap();
            assert!(results.iter().all(Result::is_ok));
            let calls = kinesis.calls_of(Operation::PutRecords);
            assert_eq!(calls.len(), 1, "{format}, {aggregation:?}");
            assert_eq!(calls[0].outcome, Outcome::Done { records: calls[0].entries });
            assert!(calls[0].bytes < MIB as u64, "{} bytes", calls[0].bytes);
            let sent: usize = wire(&kinesis).iter().map(|data| unpacked(data).len()).sum();
            assert_eq!(sent, 20_000_000);
        }
    }
}

/// F-44: 3 MB of text that shrink below the limit are sent, with and without aggregation, among small records.
#[tokio::test(start_paused = true)]
async fn what_shrinks_below_the_limit_is_sent() {
    for (aggregation, each) in
        [(Aggregation::Off, false), (Aggregation::ByShard, false), (Aggregation::ByShard, true)]
    {
        for format in Compression::ALL {
            let kinesis = service(1);
            let producer =
                compressing(&kinesis, format).aggregation(aggregation).compress_each(each).build().unwrap();
            let key = "ü".repeat(256);
            let large = Bytes::from(text(3_000).repeat(1_000));
            let payloads = [text(100), large.clone(), text(200)];
            let batch = payloads.clone().map(|data| OutboundRecord::new(key.as_str(), data)).to_vec();
            let results = producer.put_batch(batch).await.unwrap();
            assert!(results.iter().all(Result::is_ok));
            let mut found: Vec<_> = wire(&kinesis)
                .iter()
                .flat_map(|data| split(&unpacked(data)))
                .map(|(_, data)| unpacked(&data))
                .collect();
            found.sort_by_key(Bytes::len);
            assert_eq!(found, [text(100), text(200), large]);
        }
    }
}

/// F-44: what does not shrink goes out as it is, up to the last byte of the limit.
#[tokio::test(start_paused = true)]
async fn what_does_not_shrink_is_sent_as_it_is() {
    for format in Compression::ALL {
        let kinesis = service(1);
        let producer = compressing(&kinesis, format).build().unwrap();
        let data = noise(MIB - 3);
        let record = OutboundRecord::new("key", data.clone());
        producer.put(record).await.unwrap().await.unwrap();
        assert!(wire(&kinesis) == [data]);
    }
}

/// F-44: what does not fit even when it is compressed is refused before it is sent, with both sizes.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_refused_with_both_sizes() {
    let kinesis = service(1);
    let producer = compressing(&kinesis, Compression::Gzip).build().unwrap();
    let mut data = text(MIB).to_vec();
    data.extend_from_slice(&noise(2 * MIB));
    let record = || OutboundRecord::new("key", data.clone());
    let error = producer.put(record()).await.unwrap_err();
    let PutError::TooLargeCompressed { input, size, limit, .. } = error else { panic!("{error}") };
    assert_eq!((input, limit), (3 * MIB + 3, MIB));
    assert!((2 * MIB..9 * MIB / 4).contains(&size));
    let text = error.to_string();
    assert!(
        text.contains(&size.to_string()) && text.contains("3145731") && text.contains("1048576"),
        "{text}"
    );

    // In a batch nothing is sent then.
    let error = producer.put_batch(vec![OutboundRecord::new("key", "x"), record()]).await.unwrap_err();
    assert!(matches!(error, PutError::InvalidRecord { index: 1, .. }) && !error.is_retryable());
    assert_eq!(kinesis.calls_log().len(), 0);
    // And the room came back.
    let report = producer.close(LIMIT).await;
    assert!(report.is_complete());
}

/// F-44: what goes in has a limit of its own.
#[tokio::test(start_paused = true)]
async fn what_goes_in_has_a_limit() {
    let kinesis = service(1);
    let producer = compressing(&kinesis, Compression::Zstd).max_input_bytes(2 * MIB).build().unwrap();
    let put = |len| producer.try_put(OutboundRecord::new("key", vec![0; len]));
    assert!(put(2 * MIB - 3).is_ok());
    let error = put(2 * MIB - 2).unwrap_err();
    assert!(matches!(error, PutError::InputTooLarge { size: 2_097_153, limit: 2_097_152, .. }), "{error}");
}

/// S-130: with both options the aggregate is made first, and compressed as a whole, byte by byte.
#[tokio::test(start_paused = true)]
async fn the_aggregate_is_compressed() {
    for format in Compression::ALL {
        let kinesis = service(1);
        let producer = compressing(&kinesis, format).aggregation(Aggregation::ByShard).build().unwrap();
        let batch = (0..50).map(|number| OutboundRecord::new(format!("key-{number}"), text(200))).collect();
        producer.put_batch(batch).await.unwrap();

        let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
        for number in 0..50 {
            aggregator.try_push(RecordRef::new(&format!("key-{number}"), &text(200))).unwrap();
        }
        let aggregate = aggregator.finish().unwrap().into_data();
        assert_eq!(wire(&kinesis), [Compressor::new(format).unwrap().compress(&aggregate).unwrap()]);
    }
}

/// With `compress_each` the aggregate stays a plain one, for readers that split it first.
#[tokio::test(start_paused = true)]
async fn each_record_of_an_aggregate_is_compressed_on_request() {
    let kinesis = service(1);
    let producer = compressing(&kinesis, Compression::Gzip)
        .aggregation(Aggregation::ByShard)
        .compress_each(true)
        .build()
        .unwrap();
    let batch = (0..20).map(|number| OutboundRecord::new(format!("key-{number}"), text(500))).collect();
    producer.put_batch(batch).await.unwrap();
    let [data] = &wire(&kinesis)[..] else { panic!("one record") };
    assert!(is_aggregated(data));
    for (number, (key, data)) in split(data).into_iter().enumerate() {
        assert_eq!(key, format!("key-{number}"));
        assert_eq!(data, Compressor::new(Compression::Gzip).unwrap().compress(&text(500)).unwrap());
    }
}

/// A record that fails comes back as it was put, not as it was sent.
#[tokio::test(start_paused = true)]
async fn a_record_that_fails_comes_back_as_it_was_put() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(kinesis_testkit::Fault::AccessDenied);
    let producer: Producer =
        compressing(&kinesis, Compression::Lz4).aggregation(Aggregation::ByShard).build().unwrap();
    let results = producer.put_batch(vec![OutboundRecord::new("key", text(2_000)); 3]).await.unwrap();
    for result in results {
        let record = result.unwrap_err().into_record();
        assert_eq!((record.partition_key.as_str(), record.data), ("key", text(2_000)));
    }
}
