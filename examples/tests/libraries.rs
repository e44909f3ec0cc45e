//! Each published crate used as a library on its own, from a package outside of it.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::sync::Arc;
use std::time::Duration;

use kinesis_testkit::TestKinesis;

/// Far longer than anything here takes; the time is virtual.
const LONG: Duration = Duration::from_secs(600);

fn stream_with(records: &[&str]) -> TestKinesis {
    let kinesis = TestKinesis::new();
    kinesis.create_stream("orders", 1).unwrap();
    for record in records {
        kinesis.put("orders", "customer-7", (*record).to_owned()).unwrap();
    }
    kinesis
}

/// S-002: the values and seams, with neither an SDK nor a runtime in sight.
#[test]
fn kinesis_core_alone() {
    use kinesis_core::{Position, Record, SequenceNumber};

    let number: SequenceNumber = "49590338271490256608559692538361571095921575989136588898".parse().unwrap();
    assert!(Position::from(number.clone()) > Position::from("99".parse::<SequenceNumber>().unwrap()));
    let record = Record::for_test(7, "customer-7", "one coffee");
    assert_eq!((record.position().to_string().as_str(), &record.data()[..]), ("7", &b"one coffee"[..]));
}

/// S-002: the aggregation format, synchronous.
#[test]
fn kinesis_kpl_alone() {
    use kinesis_kpl::{Aggregator, AggregatorConfig, Deaggregated, RecordRef, deaggregate};

    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    for order in ["one coffee", "two teas"] {
        assert!(aggregator.try_push(RecordRef::new("customer-7", order.as_bytes())).is_ok());
    }
    let packed = aggregator.finish().unwrap();
    let Deaggregated::Records(aggregate) = deaggregate(packed.into_data()) else { panic!("an aggregate") };
    let orders: Vec<_> = aggregate.into_records().map(|record| record.data).collect();
    assert_eq!(orders, ["one coffee", "two teas"]);
}

/// S-002: compression, synchronous.
#[test]
fn kinesis_compress_alone() {
    use bytes::Bytes;
    use kinesis_compress::{Compression, Compressor, Decompressor};

    let order = Bytes::from("one coffee ".repeat(50));
    let packed = Compressor::new(Compression::Gzip).unwrap().compress(&order).unwrap();
    assert!(packed.len() < 60, "{}", packed.len());
    assert_eq!(Decompressor::auto().decompress(&packed).unwrap(), order);
}

/// S-002: leases without a consumer.
#[tokio::test(start_paused = true)]
async fn kinesis_lease_alone() {
    use kinesis_core::aws::KinesisDirectory;
    use kinesis_core::{ApplicationName, StreamRef};
    use kinesis_lease::{Coordinator, HeartbeatMode, LeaseEvent, MemoryStore};

    let kinesis = stream_with(&[]);
    let directory = Arc::new(KinesisDirectory::new(kinesis.client()));
    let application = ApplicationName::new("billing").unwrap();
    let stream = StreamRef::new("orders").unwrap();
    let (coordinator, mut events) = Coordinator::builder(MemoryStore::new(), directory, application, stream)
        .heartbeat(HeartbeatMode::Inline)
        .start()
        .await
        .unwrap();
    let event = tokio::time::timeout(LONG, events.next()).await.unwrap();
    let Some(LeaseEvent::Acquired(tenure)) = event else { panic!("the only shard is taken first") };
    assert_eq!(tenure.key().to_string(), "billing:orders/shardId-000000000000");
    drop(coordinator);
}

/// S-002: one shard, read as a stream, without leases.
#[tokio::test(start_paused = true)]
async fn kinesis_poll_alone() {
    use kinesis_core::source::{OpenShard, ShardSource as _, SourceEvent};
    use kinesis_core::{ShardRef, StartPosition};
    use kinesis_poll::{PollConfig, PollSource};

    let kinesis = stream_with(&["one coffee", "two teas"]);
    let source = PollSource::new(kinesis.client(), PollConfig::default()).unwrap();
    let shard = ShardRef::new("orders".parse().unwrap(), "shardId-000000000000".parse().unwrap());
    let mut reader = source.open(OpenShard::new(shard, StartPosition::TrimHorizon));
    let orders = loop {
        let event = tokio::time::timeout(LONG, reader.next()).await.unwrap().unwrap();
        if let SourceEvent::Records(batch) = event {
            break batch.records.into_iter().map(|record| record.data).collect::<Vec<_>>();
        }
    };
    assert_eq!(orders, ["one coffee", "two teas"]);
    reader.close().await;
}

/// S-002: one shard, pushed as a stream, without leases.
#[tokio::test(start_paused = true)]
async fn kinesis_efo_alone() {
    use kinesis_core::source::{OpenShard, ShardSource as _, SourceEvent};
    use kinesis_core::{ShardRef, StartPosition};
    use kinesis_efo::{EfoConfig, EfoSource};

    let kinesis = stream_with(&["one coffee", "two teas"]);
    let source = EfoSource::new(kinesis.client(), EfoConfig::new("billing")).unwrap();
    let shard = ShardRef::new("orders".parse().unwrap(), "shardId-000000000000".parse().unwrap());
    let mut reader = source.open(OpenShard::new(shard, StartPosition::TrimHorizon));
    let orders = loop {
        let event = tokio::time::timeout(LONG, reader.next()).await.unwrap().unwrap();
        if let SourceEvent::Records(batch) = event {
            break batch.records.into_iter().map(|record| record.data).collect::<Vec<_>>();
        }
    };
    assert_eq!(orders, ["one coffee", "two teas"]);
    reader.close().await;
}

/// S-002: the producer inside of a program of one's own.
#[tokio::test(start_paused = true)]
async fn kinesis_producer_alone() {
    use kinesis_producer::{OutboundRecord, Producer, StreamRef};

    let kinesis = stream_with(&[]);
    let producer = Producer::builder(kinesis.client(), StreamRef::new("orders").unwrap()).build().unwrap();
    let receipt = producer.put(OutboundRecord::new("customer-7", "one coffee")).await.unwrap();
    let sent = receipt.await.unwrap();
    assert!(producer.close(LONG).await.is_complete());
    let stored = kinesis.records("orders").unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(
        (stored[0].sequence_number.clone(), &stored[0].data[..]),
        (sent.sequence.to_string(), &b"one coffee"[..])
    );
}

/// S-002: the consumer inside of a program of one's own.
#[tokio::test(start_paused = true)]
async fn kinesis_consumer_alone() {
    use kinesis_consumer::lease::{HeartbeatMode, MemoryStore};
    use kinesis_consumer::{BoxError, Consumer, Record};

    let kinesis = stream_with(&["one coffee", "two teas"]);
    let (seen, mut orders) = tokio::sync::mpsc::unbounded_channel();
    let consumer = Consumer::builder(kinesis.client(), "billing", "orders")
        .lease_store(MemoryStore::new())
        .heartbeat(HeartbeatMode::Inline)
        .for_each(move |record: Record| {
            let seen = seen.clone();
            async move { seen.send(record.into_data()).map_err(BoxError::from) }
        })
        .build()
        .unwrap()
        .spawn();
    for expected in ["one coffee", "two teas"] {
        assert_eq!(tokio::time::timeout(LONG, orders.recv()).await.unwrap().unwrap(), expected);
    }
    assert!(consumer.shutdown(LONG).await.unwrap().is_clean());
}

/// S-002: the service for tests, with the plain SDK.
#[tokio::test(start_paused = true)]
async fn kinesis_testkit_alone() {
    let kinesis = stream_with(&["one coffee"]);
    let reply = kinesis.client().list_shards().stream_name("orders").send().await.unwrap();
    assert_eq!(reply.shards().len(), 1);
}

/// S-002: a crate that is added to the workspace needs a test above.
#[test]
fn every_published_crate_has_a_test_here() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");
    let mut checked = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        if manifest.lines().any(|line| line == "publish = false") {
            continue;
        }
        let name = entry.file_name().into_string().unwrap();
        let test = format!("fn {}_alone()", name.replace('-', "_"));
        assert!(include_str!("libraries.rs").contains(&test), "no `{test}`");
        checked += 1;
    }
    assert!(checked >= 8, "{checked}");
}
