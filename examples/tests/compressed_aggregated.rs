//! Both sides of the formats together: the producer's options, and a consumer that needs one for them or none.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::lease::{HeartbeatMode, MemoryStore};
use kinesis_consumer::{Consumer, Decompression, Record};
use kinesis_producer::compress::Compression;
use kinesis_producer::{Aggregation, OutboundRecord, Producer, Sent, StreamRef};
use kinesis_testkit::TestKinesis;

const RECORDS: usize = 600;

/// By number: key, place and payload, as the processor saw them.
type Seen = Arc<Mutex<BTreeMap<usize, (String, String, String)>>>;

fn payload(number: usize) -> String {
    format!("{number} {}", "and so on ".repeat(number % 40))
}

async fn produce(kinesis: &TestKinesis, aggregation: Aggregation, format: Option<Compression>) -> Vec<Sent> {
    let producer = Producer::builder(kinesis.client(), StreamRef::new("orders").unwrap())
        .aggregation(aggregation)
        .compression(format)
        .build()
        .unwrap();
    let mut receipts = Vec::new();
    for number in 0..RECORDS {
        let record = OutboundRecord::new(format!("key-{}", number % 30), payload(number));
        receipts.push(producer.put(record).await.unwrap());
    }
    assert!(producer.close(Duration::from_secs(600)).await.is_complete());
    let mut sent = Vec::new();
    for receipt in receipts {
        sent.push(receipt.await.unwrap());
    }
    sent
}

/// The processor of all cases.
async fn consume(kinesis: &TestKinesis, decompression: Decompression) -> Seen {
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = Consumer::builder(kinesis.client(), "billing", "orders")
        .lease_store(MemoryStore::new())
        .heartbeat(HeartbeatMode::Inline)
        .decompression(decompression)
        .for_each(move |record: Record| {
            let text = String::from_utf8(record.data().to_vec()).unwrap();
            let number = text.split(' ').next().unwrap().parse().unwrap();
            let key = record.partition_key().unwrap().as_str().to_owned();
            let before = log.lock().unwrap().insert(number, (key, record.position().to_string(), text));
            assert_eq!(before, None, "record {number} came twice");
            async { Ok::<_, Infallible>(()) }
        })
        .build()
        .unwrap();
    let all = seen.clone();
    let stop = async move {
        while all.lock().unwrap().len() < RECORDS {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let run = tokio::time::timeout(Duration::from_secs(3_600), consumer.run(stop));
    assert!(run.await.expect("it sees every record").unwrap().is_clean());
    seen
}

/// S-130, S-132, S-140: the same processor sees the same records, at the places that the receipts tell, whether they were
/// sent plain, aggregated, compressed or both.
#[tokio::test(start_paused = true)]
async fn one_processor_reads_all_that_the_producer_can_send() {
    let cases = [
        (Aggregation::Off, None, Decompression::Off),
        (Aggregation::ByShard, None, Decompression::Off),
        (Aggregation::ByKey, None, Decompression::Off),
        (Aggregation::Off, Some(Compression::Zstd), Decompression::Auto),
        (Aggregation::ByShard, Some(Compression::Zstd), Decompression::Auto),
        (Aggregation::FirstKey, Some(Compression::Zstd), Decompression::Auto),
    ];
    for (aggregation, format, decompression) in cases {
        let kinesis = TestKinesis::builder().without_throughput_limits().build();
        kinesis.create_stream("orders", 3).unwrap();
        let sent = produce(&kinesis, aggregation, format).await;
        let stored = kinesis.records("orders").unwrap().len();
        assert_eq!(stored == RECORDS, aggregation == Aggregation::Off, "{stored} Kinesis records");
        let seen = consume(&kinesis, decompression).await;
        let expected = sent.iter().enumerate().map(|(number, sent)| {
            let place = sent.position().to_string();
            (number, (format!("key-{}", number % 30), place, payload(number)))
        });
        let seen = seen.lock().unwrap();
        assert!(*seen == expected.collect::<BTreeMap<_, _>>(), "{aggregation:?} and {format:?}");
    }
}
