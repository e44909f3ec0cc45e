//! Aggregated and compressed records: what a producer packed arrives as the user records that went in.

use std::convert::Infallible;

use crate::common::{STREAM, Seen, World, numbers, stop, text};
use bytes::Bytes;
use kinesis_consumer::compress::{Compression, Compressor};
use kinesis_consumer::kpl::{Aggregator, AggregatorConfig, RangeFilter, RecordRef, hash_key};
use kinesis_consumer::{
    Ack, DeadLetter, DeadLetterReason, Decompression, FailurePolicy, Record, RecordBatch, Undecoded,
};
use kinesis_core::metrics::Recorder;
use kinesis_core::{Origin, UndecodedReason};

const SHARD: &str = "shardId-000000000000";

/// An aggregate of the records `from..to`, each passed through `pack`.
fn aggregate_of(from: u32, to: u32, pack: impl Fn(Bytes) -> Bytes) -> Bytes {
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    for number in from..to {
        let (key, data) = (format!("k{number}"), pack(number.to_string().into()));
        aggregator.try_push(RecordRef::new(&key, &data)).unwrap();
    }
    aggregator.finish().unwrap().into_data()
}

fn aggregate(from: u32, to: u32) -> Bytes {
    aggregate_of(from, to, |data| data)
}

fn packed(format: Compression, data: &Bytes) -> Bytes {
    Compressor::new(format).unwrap().compress(data).unwrap()
}

fn put(world: &World, data: impl Into<Bytes>) -> String {
    world.kinesis.put(STREAM, "outer", data).unwrap().sequence_number
}

fn place(record: &Record) -> String {
    format!("{}@{}", text(record), record.position().sub_sequence())
}

/// S-062, S-063, F-29: a position inside an aggregate is stored, and the next owner begins with the record after it.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_inside_an_aggregate_is_where_the_next_owner_goes_on() {
    let world = World::new(1);
    let sequence = put(&world, aggregate(0, 100));
    put(&world, "plain");
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each_batch(move |batch: RecordBatch| {
        let log = log.clone();
        async move {
            log.add(batch.len().to_string());
            batch.checkpointer().checkpoint_to(batch.records()[47].position()).await?;
            Ok::<_, kinesis_consumer::CheckpointError>(Ack::Manual)
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 1).await;
    stop(&handle).await;
    assert_eq!(seen.all(), ["101"]);
    assert_eq!(world.stored(SHARD), format!("{sequence}/47"));

    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w2").for_each(move |record: Record| {
        log.add(place(&record));
        async { Ok::<_, Infallible>(()) }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 53).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all()[..2], ["48@48", "49@49"]);
    assert_eq!(seen.all()[51..], ["99@99", "plain@0"]);
}

/// S-064: a plain record has sub-sequence number 0 and no aggregate.
/// S-132: the consumer needs no change for aggregated input, which may be mixed with plain records.
#[tokio::test(start_paused = true)]
async fn aggregated_and_plain_records_need_no_setting() {
    let world = World::new(1);
    put(&world, "0");
    put(&world, aggregate(1, 40));
    put(&world, "40");
    let seen = Seen::default();
    let log = seen.clone();
    let recorder = Recorder::new();
    let consumer = world.consumer("w1").metrics(std::sync::Arc::new(recorder.clone())).for_each(
        move |record: Record| {
            match record.origin() {
                Origin::Plain => assert_eq!(record.position().sub_sequence(), 0),
                Origin::Aggregated { index, count } => {
                    assert_eq!((record.position().sub_sequence(), count), (index, 39));
                    assert_eq!(record.partition_key().unwrap().as_str(), format!("k{}", text(&record)));
                }
                other => panic!("{other:?}"),
            }
            log.add(text(&record));
            async { Ok::<_, Infallible>(()) }
        },
    );
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 41).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), numbers(0, 41));
    let wire = 1 + aggregate(1, 40).len() + 2;
    assert_eq!(recorder.total("bytes_processed_total"), wire as u64, "bytes as they were on the wire");
    assert_eq!(recorder.total("records_processed_total"), 41);
    let last = world.kinesis.records(STREAM).unwrap().last().unwrap().sequence_number.clone();
    assert_eq!(world.stored(SHARD), last);
}

/// S-141, S-130: one option decompresses before the handler sees a record, whether the producer compressed the aggregate
/// or each record, beside plain records.
#[tokio::test(start_paused = true)]
async fn compressed_records_need_one_setting() {
    let expected: [(Decompression, &[&str]); 3] = [
        (Decompression::Auto, &["0", "1", "19", "20", "39", "40"]),
        (Decompression::Gzip, &["0", "20", "39", "40"]),
        (Decompression::Off, &["40"]),
    ];
    for (choice, some) in expected {
        let world = World::new(1);
        put(&world, packed(Compression::Gzip, &"0".into()));
        put(&world, packed(Compression::Zstd, &aggregate(1, 20)));
        put(&world, aggregate_of(20, 40, |data| packed(Compression::Gzip, &data)));
        put(&world, "40");
        let seen = Seen::default();
        let log = seen.clone();
        let consumer = world.consumer("w1").decompression(choice).for_each(move |record: Record| {
            log.add(String::from_utf8_lossy(record.data()));
            async { Ok::<_, Infallible>(()) }
        });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.last().is_some_and(|last| last == "40")).await;
        assert!(stop(&handle).await.is_clean());
        for text in ["0", "1", "19", "20", "39", "40"] {
            assert_eq!(seen.count(text), usize::from(some.contains(&text)), "{choice:?}: {text}");
        }
    }
}

/// S-144, S-204: a payload that would grow beyond the limit fails alone and is named; inside an aggregate the records
/// share the limit, and the others are delivered.
#[tokio::test(start_paused = true)]
async fn a_bomb_inside_of_an_aggregate_fails_alone() {
    let world = World::new(1);
    let bomb = packed(Compression::Gzip, &"x".repeat(100_000).into());
    let sequence = put(&world, aggregate_of(0, 10, |data| if data == "4" { bomb.clone() } else { data }));
    let (seen, letters) = (Seen::default(), Seen::default());
    let (log, dead) = (seen.clone(), letters.clone());
    let consumer = world
        .consumer("w1")
        .decompression(Decompression::Auto)
        .max_decoded_bytes(50_000)
        .failure_policy(FailurePolicy::SkipAfter { attempts: 3 })
        .dead_letter(tower::service_fn(move |letter: DeadLetter| {
            assert_eq!(letter.reason, DeadLetterReason::Undecodable);
            dead.add(format!("{} {}", letter.record.position(), letter.error));
            async { Ok::<_, Infallible>(()) }
        }))
        .for_each(move |record: Record| {
            log.add(text(&record));
            async { Ok::<_, Infallible>(()) }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 9).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), ["0", "1", "2", "3", "5", "6", "7", "8", "9"]);
    let [letter] = &letters.all()[..] else { panic!("{:?}", letters.all()) };
    assert!(letter.starts_with(&format!("{sequence}/4 ")), "{letter}");
    assert!(letter.contains("limit of 50000 bytes"), "{letter}");
    assert_eq!(world.stored(SHARD), format!("{sequence}/9"));
}

/// S-123: what looks like an aggregate and is none reaches the handler unchanged, is marked and counted.
#[tokio::test(start_paused = true)]
async fn a_broken_aggregate_is_passed_on_and_counted_by_default() {
    let mut broken = aggregate(0, 3).to_vec();
    *broken.last_mut().unwrap() ^= 1;
    for (choice, letters) in [(Undecoded::PassOn, 0), (Undecoded::DeadLetter, 1)] {
        let world = World::new(1);
        put(&world, broken.clone());
        put(&world, "after");
        let (seen, dead) = (Seen::default(), Seen::default());
        let (log, skipped) = (seen.clone(), dead.clone());
        let recorder = Recorder::new();
        let expected = broken.clone();
        let consumer = world
            .consumer("w1")
            .metrics(std::sync::Arc::new(recorder.clone()))
            .undecoded(choice)
            .dead_letter(tower::service_fn(move |letter: DeadLetter| {
                assert_eq!(letter.reason, DeadLetterReason::Undecodable);
                skipped.add(letter.error);
                async { Ok::<_, Infallible>(()) }
            }))
            .for_each(move |record: Record| {
                if let Origin::Undecoded { reason } = record.origin() {
                    assert_eq!(reason, UndecodedReason::BadDigest);
                    assert_eq!(record.data()[..], expected);
                }
                log.add(record.data().len().to_string());
                async { Ok::<_, Infallible>(()) }
            });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.last().is_some_and(|last| last == "5")).await;
        assert!(stop(&handle).await.is_clean());
        assert_eq!(seen.count(&broken.len().to_string()), 1 - letters);
        assert_eq!(dead.len(), letters);
        assert_eq!(recorder.total("records_undecoded_total"), 1);
    }
}

/// S-108, F-30: user records whose hash key belongs to another shard are delivered unless a filter is set; each one
/// that is left out is counted.
#[tokio::test(start_paused = true)]
async fn records_of_another_shard_are_delivered_by_default() {
    let half = 1_u128 << 127;
    let upper = (0..20).filter(|number| hash_key(&format!("k{number}")).get() >= half).count();
    assert!((1..20).contains(&upper));
    for (filter, delivered) in
        [(RangeFilter::Off, 20), (RangeFilter::PerRecord, 20 - upper), (RangeFilter::KclCompatible, 0)]
    {
        let world = World::new(2);
        world.kinesis.put_at(STREAM, 0, "outer", aggregate(0, 20)).unwrap();
        world.kinesis.put_at(STREAM, 0, "outer", "last").unwrap();
        let seen = Seen::default();
        let log = seen.clone();
        let recorder = Recorder::new();
        let consumer = world
            .consumer("w1")
            .metrics(std::sync::Arc::new(recorder.clone()))
            .range_filter(filter)
            .for_each(move |record: Record| {
                log.add(text(&record));
                async { Ok::<_, Infallible>(()) }
            });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.last().is_some_and(|last| last == "last")).await;
        assert!(stop(&handle).await.is_clean());
        assert_eq!(seen.len(), delivered + 1, "{filter:?}");
        assert_eq!(recorder.total("records_filtered_total"), 20 - delivered as u64);
    }
}
