//! The producer against a Kinesis and a reader that were not made here: npm's `kinesis-local` and Python's boto3.
//!
//! Run by `cargo xtask peers`; by hand with `KINESIS_LOCAL_ENDPOINT`, the URL of a running `kinesis-local`, and
//! `PEERS_PYTHON`, a Python interpreter that has boto3. Time and sockets are real: every wait has a limit.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_kinesis::types::StreamStatus;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Builder, Connector};
use kinesis_core::{HashKey, OutboundRecord, StreamRef};
use kinesis_producer::Producer;
use tokio::process::Command;

/// The longest that anything may take; the server stores about a thousand records and a megabyte a second.
const LIMIT: Duration = Duration::from_secs(120);

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by `cargo xtask peers`"))
}

fn client() -> Client {
    let http = Builder::new().build_with_connector_fn(|settings, _| {
        let mut connector = Connector::builder().proxy_config(ProxyConfig::disabled());
        connector.set_connector_settings(settings.cloned());
        connector.build_http()
    });
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "peers"))
        .http_client(http)
        .endpoint_url(environment("KINESIS_LOCAL_ENDPOINT"));
    Client::from_conf(config.build())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

async fn create(client: &Client, stream: &str, shards: i32) {
    client.create_stream().stream_name(stream).shard_count(shards).send().await.unwrap();
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

/// What boto3 found in the stream.
#[derive(Default)]
struct Found {
    /// First and last hash key of each shard.
    ranges: BTreeMap<String, (u128, u128)>,
    /// By sequence number.
    records: BTreeMap<String, Entry>,
}

struct Entry {
    shard: String,
    key: String,
    /// The hash of the key as Python computes it.
    hash: u128,
    data: Vec<u8>,
}

impl Found {
    fn shard_of(&self, hash: u128) -> &str {
        let holds = |(_, range): &(&String, &(u128, u128))| range.0 <= hash && hash <= range.1;
        self.ranges.iter().find(holds).unwrap().0
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// Lets boto3 read the stream.
async fn read(stream: &str) -> Found {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers_kinesis_local/read.py");
    let output = Command::new(environment("PEERS_PYTHON"))
        .args([script, stream])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("boto3 has read the stream", output).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = Found::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["shard", shard, first, last] => {
                let range = (first.parse().unwrap(), last.parse().unwrap());
                found.ranges.insert(shard.to_owned(), range);
            }
            ["record", shard, number, key, hash, data] => {
                let entry = Entry {
                    shard: shard.to_owned(),
                    key: key.to_owned(),
                    hash: hash.parse().unwrap(),
                    data: unhex(data),
                };
                found.records.insert(number.to_owned(), entry);
            }
            _ => panic!("a line of neither kind"),
        }
    }
    found
}

/// Records of all kinds of keys and payloads: text outside of ASCII, every byte, explicit hash keys, none to large.
fn records() -> Vec<OutboundRecord> {
    let mut records = Vec::new();
    for number in 0..600_u32 {
        let key = match number % 4 {
            0 => format!("customer-{number}"),
            1 => format!("客户 {}", number % 20),
            2 => "x".repeat(256),
            _ => (number % 50).to_string(),
        };
        let mut data = number.to_be_bytes().to_vec();
        data.extend((0..number % 300).map(|byte| u8::try_from(byte % 256).unwrap()));
        let mut record = OutboundRecord::new(key, data);
        if number % 5 == 0 {
            let hash = (u128::MAX / 120) * u128::from(number / 5);
            record = record.explicit_hash_key(HashKey::new(hash));
        }
        records.push(record);
    }
    for hash in [0, u128::MAX] {
        records.push(OutboundRecord::new("edge", Vec::new()).explicit_hash_key(HashKey::new(hash)));
    }
    records.push(OutboundRecord::new("large", vec![0xa5; 900_000]));
    records
}

/// S-150: what the producer's receipts say is what boto3 reads from `kinesis-local`: every record once, byte for byte,
/// under its key, in the shard that its hash belongs to.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn boto3_reads_what_the_producer_sent() {
    let client = client();
    let stream = format!("producer-{}", std::process::id());
    create(&client, &stream, 4).await;

    let producer = Producer::builder(&client, StreamRef::new(&stream).unwrap()).build().unwrap();
    let records = records();
    let mut receipts = Vec::new();
    for record in &records {
        receipts.push(producer.put(record.clone()).await.unwrap());
    }
    let mut sent = Vec::new();
    for receipt in receipts {
        sent.push(within("the server has the record", receipt).await.unwrap());
    }
    assert!(producer.close(LIMIT).await.is_complete());

    let found = read(&stream).await;
    assert_eq!(found.ranges.len(), 4);
    assert_eq!(found.records.len(), records.len(), "each record once");
    for (record, sent) in records.iter().zip(&sent) {
        let entry = &found.records[&sent.sequence.to_string()];
        assert_eq!(entry.key, record.partition_key.as_str());
        assert!(entry.data == record.data, "the bytes of {}", entry.key);
        assert_eq!(entry.shard, sent.shard.as_str());
        let hash = record.explicit_hash_key.map_or(entry.hash, HashKey::get);
        assert_eq!(entry.shard, found.shard_of(hash), "the shard of {}", entry.key);
    }
    client.delete_stream().stream_name(&stream).send().await.unwrap();
}
