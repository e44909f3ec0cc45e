//! The consumer against a Kinesis and a writer that were not made here: npm's `kinesis-local` and Python's boto3.
//!
//! Run by `cargo xtask peers`; by hand with `KINESIS_LOCAL_ENDPOINT`, the URL of a running `kinesis-local`, and
//! `PEERS_PYTHON`, a Python interpreter that has boto3. Time and sockets are real: every wait has a limit.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]
#![cfg(all(feature = "default-https-client", feature = "poll"))]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_kinesis::types::StreamStatus;
use kinesis_consumer::lease::MemoryStore;
use kinesis_consumer::{BoxError, Consumer, RecordBatch};
use kinesis_core::Checkpoint;
use kinesis_core::lease::LeaseStore;
use tokio::process::Command;

/// The longest that anything may take; the server stores about a thousand records a second.
const LIMIT: Duration = Duration::from_secs(120);

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by `cargo xtask peers`"))
}

fn client() -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "peers"))
        .endpoint_url(environment("KINESIS_LOCAL_ENDPOINT"));
    Client::from_conf(config.build())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

async fn until(what: &str, done: impl Fn() -> bool + Send + Sync) {
    let looking = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(what, looking).await;
}

async fn active(client: &Client, stream: &str) {
    let looking = async {
        loop {
            let reply = client.describe_stream_summary().stream_name(stream).send().await.unwrap();
            if *reply.stream_description_summary().unwrap().stream_status() == StreamStatus::Active {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within("the stream is active", looking).await;
}

/// A record as one side saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    shard: String,
    key: String,
    data: Vec<u8>,
}

impl Entry {
    /// What the writer puts first.
    fn number(&self) -> u32 {
        u32::from_be_bytes(self.data[..4].try_into().unwrap())
    }
}

/// The sequence number, and what has it.
type Numbered = (u128, Entry);

/// The lower digits of a sequence number are enough to tell records of one stream apart, and fit a number.
fn sequence(text: &str) -> u128 {
    text[text.len() - 38..].parse().unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// Lets boto3 put records `first..=last` and gives them.
async fn put(stream: &str, first: u32, last: u32, pause: &str) -> Vec<Numbered> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers_kinesis_local/put.py");
    let output = Command::new(environment("PEERS_PYTHON"))
        .arg(script)
        .args([stream, &first.to_string(), &last.to_string(), pause])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("boto3 has put its records", output).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Numbered> = text
        .lines()
        .map(|line| {
            let [number, shard, key, data] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("four columns")
            };
            let entry = Entry { shard: shard.to_owned(), key: key.to_owned(), data: unhex(data) };
            (sequence(number), entry)
        })
        .collect();
    assert_eq!(records.len(), usize::try_from(last - first + 1).unwrap());
    records
}

/// S-057: records that boto3 puts into `kinesis-local` come out complete, with their bytes and in the order of their
/// keys, while a shard is split and two are merged under the running consumer.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn records_of_boto3_come_out_right_through_a_reshard() {
    let client = client();
    let stream = format!("consumer-{}", std::process::id());
    client.create_stream().stream_name(&stream).shard_count(2).send().await.unwrap();
    active(&client, &stream).await;

    let leases = MemoryStore::new();
    let store: Arc<dyn LeaseStore> = Arc::new(leases.clone());
    let seen: Arc<Mutex<Vec<Numbered>>> = Arc::default();
    let log = Arc::clone(&seen);
    let consumer = Consumer::builder(&client, "peers", &stream)
        .lease_store(store)
        .for_each_batch(move |batch: RecordBatch| {
            let log = Arc::clone(&log);
            async move {
                for record in batch.records() {
                    let entry = Entry {
                        shard: record.source().shard().to_string(),
                        key: record.partition_key().unwrap().to_string(),
                        data: record.data().to_vec(),
                    };
                    let number = sequence(&record.position().sequence().to_string());
                    log.lock().unwrap().push((number, entry));
                }
                Ok::<(), BoxError>(())
            }
        })
        .build()
        .unwrap()
        .spawn();
    let count = || seen.lock().unwrap().len();

    let mut sent = put(&stream, 1, 150, "0").await;
    until("what came before the reshard is consumed", || count() >= 150).await;

    // Records keep coming while the stream is resharded: 0 becomes 2 and 3, then 3 and 1 become 4.
    let (owned, first) = (stream.clone(), "shardId-000000000000");
    let meanwhile = tokio::spawn(async move { put(&owned, 151, 450, "0.3").await });
    until("records come during the reshard", || count() >= 160).await;
    let middle = (u128::MAX / 4).to_string();
    let split = client.split_shard().stream_name(&stream).shard_to_split(first);
    split.new_starting_hash_key(middle).send().await.unwrap();
    active(&client, &stream).await;
    let merge = client.merge_shards().stream_name(&stream).shard_to_merge("shardId-000000000003");
    merge.adjacent_shard_to_merge("shardId-000000000001").send().await.unwrap();
    active(&client, &stream).await;
    sent.extend(within("the writer ends", meanwhile).await.unwrap());
    sent.extend(put(&stream, 451, 600, "0").await);
    until("everything is consumed", || count() >= sent.len()).await;

    let report = consumer.shutdown(Duration::from_secs(30)).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 600, "each record once");
    let expected: BTreeMap<u128, Entry> = sent.into_iter().collect();
    let found: BTreeMap<u128, Entry> = seen.iter().cloned().collect();
    assert_eq!(found, expected);
    let shards: BTreeSet<&str> = expected.values().map(|entry| entry.shard.as_str()).collect();
    assert!(shards.len() >= 4, "records before, between and after the changes: {shards:?}");

    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, entry) in seen.iter().filter(|(_, entry)| entry.key != "anywhere") {
        let before = newest.insert(&entry.key, entry.number()).unwrap_or(0);
        assert!(before < entry.number(), "{}: {} after {before}", entry.key, entry.number());
    }
    assert_eq!(newest.len(), 13);

    // The closed shards are finished; the open ones are stored up to their last records and given back.
    for lease in leases.snapshot() {
        let shard = lease.key.shard().to_string();
        assert_eq!(lease.owner, None, "{shard}");
        if ["shardId-000000000002", "shardId-000000000004"].contains(&shard.as_str()) {
            let last = expected.iter().rfind(|(_, entry)| entry.shard == shard).unwrap().0;
            let Checkpoint::At(position) = &lease.checkpoint else { panic!("{shard}: {}", lease.checkpoint) };
            assert_eq!(sequence(&position.sequence().to_string()), *last, "{shard}");
        } else {
            assert_eq!(lease.checkpoint, Checkpoint::ShardEnd, "{shard}");
        }
    }
    assert_eq!(leases.snapshot().len(), 5);
    client.delete_stream().stream_name(&stream).send().await.unwrap();
}
