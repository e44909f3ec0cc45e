//! PutRecord and PutRecords: routing, sequence numbers and limits of size.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use aws_sdk_kinesis::primitives::Blob;
use kinesis_testkit::{Rule, TestKinesis};
use support::{code, entry, entry_at, with_stream};

const MIB: usize = 1 << 20;

fn unlimited() -> (TestKinesis, aws_sdk_kinesis::Client) {
    let kinesis = TestKinesis::builder().without_throughput_limits().build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    (kinesis, client)
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_to_the_shard_that_holds_its_md5() {
    let (kinesis, client) = with_stream(4);
    // The first bytes of the MD5 of "a", "b", "c" and "d" are 0c, 92, 4a and 82.
    let entries = ["a", "b", "c", "d"].map(|key| entry(key, key));
    let put = client.put_records().stream_name("s").set_records(Some(entries.to_vec())).send().await.unwrap();
    let shards: Vec<_> = put.records().iter().map(|record| record.shard_id().unwrap()).collect();
    assert_eq!(
        shards,
        ["shardId-000000000000", "shardId-000000000002", "shardId-000000000001", "shardId-000000000002"]
    );
    assert_eq!(kinesis.records("s").unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_explicit_hash_key_overrides_the_partition_key() {
    let (kinesis, client) = with_stream(4);
    let quarter = 1_u128 << 126;
    let keys = [0, quarter - 1, quarter, u128::MAX];
    let entries = keys.map(|key| entry_at(key, "x")).to_vec();
    let put = client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    let shards: Vec<_> = put.records().iter().map(|record| record.shard_id().unwrap()).collect();
    assert_eq!(
        shards,
        ["shardId-000000000000", "shardId-000000000000", "shardId-000000000001", "shardId-000000000003"]
    );
    let stored = kinesis.records("s").unwrap();
    assert_eq!(stored[3].explicit_hash_key, Some(u128::MAX));

    for (bad, wanted) in [
        ("-1", "ValidationException"),
        ("01", "ValidationException"),
        ("", "ValidationException"),
        ("340282366920938463463374607431768211456", "InvalidArgumentException"),
        ("1234567890123456789012345678901234567890", "ValidationException"),
    ] {
        let put = client
            .put_record()
            .stream_name("s")
            .partition_key("k")
            .explicit_hash_key(bad)
            .data(Blob::new("x"));
        assert_eq!(code(put.send().await), wanted, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn sequence_numbers_grow_stream_wide_in_the_order_of_the_calls() {
    let (_kinesis, client) = with_stream(4);
    let entries = (0..100).map(|n| entry(&n.to_string(), "x")).collect();
    let put = client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    let numbers: Vec<_> = put.records().iter().map(|record| record.sequence_number().unwrap()).collect();
    assert!(numbers.iter().all(|number| number.len() == 56 && number.starts_with("49")));
    let newest = numbers.iter().max().unwrap();
    let next =
        client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).send().await.unwrap();
    assert!(next.sequence_number() > *newest);
}

#[tokio::test(start_paused = true)]
async fn the_seed_decides_the_sequence_numbers() {
    let numbers = |seed: u64| {
        let kinesis = TestKinesis::builder().seed(seed).build();
        kinesis.create_stream("s", 1).unwrap();
        (0..5).map(|_| kinesis.put("s", "k", "x").unwrap().sequence_number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

#[tokio::test(start_paused = true)]
async fn one_call_has_one_to_five_hundred_entries() {
    let (kinesis, client) = unlimited();
    let put = |count| {
        let entries = std::iter::repeat_n(entry("k", "x"), count).collect();
        client.put_records().stream_name("s").set_records(Some(entries)).send()
    };
    assert_eq!(code(put(0).await), "ValidationException");
    assert_eq!(code(put(501).await), "ValidationException");
    assert_eq!(put(500).await.unwrap().records().len(), 500);
    assert_eq!(kinesis.records("s").unwrap().len(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_record_counts_data_and_key_up_to_the_stream_s_limit() {
    let (kinesis, client) = unlimited();
    let put = |key: &str, size| {
        client.put_record().stream_name("s").partition_key(key).data(Blob::new(vec![0; size]))
    };
    // The key counts in bytes: this one has two characters and four bytes.
    put("éé", MIB - 4).send().await.unwrap();
    assert_eq!(code(put("éé", MIB - 3).send().await), "ValidationException");

    let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s";
    let set = |kib| client.update_max_record_size().stream_arn(arn).max_record_size_in_kib(kib).send();
    assert_eq!(code(set(1_023).await), "ValidationException");
    assert_eq!(code(set(10_241).await), "ValidationException");
    set(10_240).await.unwrap();
    put("k", 10 * MIB - 1).send().await.unwrap();
    assert_eq!(code(put("k", 10 * MIB).send().await), "ValidationException");
    assert_eq!(kinesis.records("s").unwrap()[1].data.len(), 10 * MIB - 1);
}

#[tokio::test(start_paused = true)]
async fn one_call_has_at_most_ten_mebibytes_with_its_keys() {
    let (kinesis, client) = unlimited();
    let put = |last| {
        let mut entries = vec![entry("k", vec![0; MIB - 1]); 9];
        entries.push(entry("k", vec![0; last]));
        entries.push(entry("k", ""));
        client.put_records().stream_name("s").set_records(Some(entries)).send()
    };
    assert_eq!(code(put(MIB - 1).await), "InvalidArgumentException");
    assert!(kinesis.records("s").unwrap().is_empty());
    put(MIB - 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_partition_key_has_1_to_256_characters() {
    let (_kinesis, client) = with_stream(1);
    let put =
        |key: String| client.put_record().stream_name("s").partition_key(key).data(Blob::new("x")).send();
    put("é".repeat(256)).await.unwrap();
    assert_eq!(code(put("é".repeat(257)).await), "ValidationException");
    assert_eq!(code(put(String::new()).await), "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn one_invalid_entry_refuses_the_whole_call() {
    let (kinesis, client) = with_stream(1);
    let entries = vec![entry("k", "x"), entry("", "x")];
    let put = client.put_records().stream_name("s").set_records(Some(entries)).send().await;
    assert_eq!(code(put), "ValidationException");
    assert!(kinesis.records("s").unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_stream_takes_nothing() {
    let kinesis = TestKinesis::builder().without(Rule::Retention).build();
    let client = kinesis.client();
    let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).send().await;
    assert_eq!(code(put), "ResourceNotFoundException");
    assert_eq!(kinesis.put("s", "k", "x").unwrap_err().code(), "ResourceNotFoundException");
    assert_eq!(kinesis.records("s").unwrap_err().code(), "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn debug_of_a_stored_record_hides_its_content() {
    let (kinesis, _client) = with_stream(1);
    kinesis.put("s", "secret-key", "secret-data").unwrap();
    let text = format!("{:?} {kinesis:?}", kinesis.records("s").unwrap());
    assert!(!text.contains("secret"), "{text}");
}
