//! Every throughput rule bites while it is on and does not while it is off.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::put_records::PutRecordsOutput;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::ShardIteratorType;
use kinesis_testkit::Rule;
use support::{SHARD_0, SHARD_1, after, code, entry, entry_at, oldest, read, with_stream, without};

const THROTTLED: &str = "ProvisionedThroughputExceededException";
const MIB: usize = 1 << 20;

async fn refused(client: &Client, iterator: &str) -> String {
    code(client.get_records().shard_iterator(iterator).send().await)
}

#[tokio::test(start_paused = true)]
async fn a_shard_gives_five_reads_a_second() {
    let (_kinesis, client) = with_stream(2);
    let (iterator, other) = (oldest(&client, "s", SHARD_0).await, oldest(&client, "s", SHARD_1).await);
    for _ in 0..5 {
        read(&client, &iterator).await;
    }
    assert_eq!(refused(&client, &iterator).await, THROTTLED);
    read(&client, &other).await;
    after(199).await;
    assert_eq!(refused(&client, &iterator).await, THROTTLED);
    after(1).await;
    read(&client, &iterator).await;
    assert_eq!(refused(&client, &iterator).await, THROTTLED);
    // At 200 ms apart every read is given.
    for _ in 0..20 {
        after(200).await;
        read(&client, &iterator).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_read_call_rate_reads_are_unlimited() {
    let (_kinesis, client) = without(Rule::ReadCallRate);
    let iterator = oldest(&client, "s", SHARD_0).await;
    for _ in 0..50 {
        read(&client, &iterator).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_ten_mebibytes_blocks_the_shard_for_five_seconds() {
    let (kinesis, client) = with_stream(1);
    for _ in 0..11 {
        kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
    }
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(page.records().len(), 10);
    let next = page.next_shard_iterator().unwrap();
    assert_eq!(refused(&client, next).await, THROTTLED);
    after(4_999).await;
    assert_eq!(refused(&client, next).await, THROTTLED);
    after(1).await;
    assert_eq!(read(&client, next).await.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_mebibytes_a_second_are_read_without_a_pause() {
    let (kinesis, client) = with_stream(1);
    for _ in 0..10 {
        kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
    }
    let mut iterator = oldest(&client, "s", SHARD_0).await;
    for _ in 0..5 {
        let page = client.get_records().shard_iterator(&iterator).limit(2).send().await.unwrap();
        assert_eq!(page.records().len(), 2);
        iterator = page.next_shard_iterator.unwrap();
        after(1_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_read_byte_rate_pages_do_not_block() {
    let (kinesis, client) = without(Rule::ReadByteRate);
    for _ in 0..11 {
        kinesis.put("s", "k", vec![0; MIB - 1]).unwrap();
    }
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(read(&client, page.next_shard_iterator().unwrap()).await.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shard_gives_five_iterators_a_second() {
    let (_kinesis, client) = with_stream(1);
    let iterator = || {
        client
            .get_shard_iterator()
            .stream_name("s")
            .shard_id(SHARD_0)
            .shard_iterator_type(ShardIteratorType::Latest)
            .send()
    };
    for _ in 0..5 {
        iterator().await.unwrap();
    }
    assert_eq!(code(iterator().await), THROTTLED);
    after(200).await;
    iterator().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_iterator_call_rate_iterators_are_unlimited() {
    let (_kinesis, client) = without(Rule::IteratorCallRate);
    for _ in 0..50 {
        oldest(&client, "s", SHARD_0).await;
    }
}

async fn put_many(client: &Client, count: usize) -> PutRecordsOutput {
    let entries = std::iter::repeat_n(entry("k", "x"), count).collect();
    client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_shard_takes_a_thousand_records_a_second() {
    let (kinesis, client) = with_stream(1);
    assert_eq!(put_many(&client, 500).await.failed_record_count(), Some(0));
    assert_eq!(put_many(&client, 499).await.failed_record_count(), Some(0));
    let reply = put_many(&client, 3).await;
    assert_eq!(reply.failed_record_count(), Some(2));
    let refused: Vec<_> = reply.records().iter().filter(|result| result.error_code().is_some()).collect();
    assert_eq!(refused.len(), 2);
    for refused in refused {
        assert_eq!(refused.error_code(), Some(THROTTLED));
        assert_eq!(
            refused.error_message(),
            Some("Rate exceeded for shard shardId-000000000000 in stream s under account 123456789012.")
        );
        assert_eq!(refused.sequence_number(), None);
        assert_eq!(refused.shard_id(), None);
    }
    after(1).await;
    assert_eq!(put_many(&client, 2).await.failed_record_count(), Some(1));
    assert_eq!(kinesis.records("s").unwrap().len(), 1_001);
}

#[tokio::test(start_paused = true)]
async fn a_full_shard_does_not_hold_up_the_others() {
    let (_kinesis, client) = with_stream(2);
    put_many(&client, 500).await;
    put_many(&client, 500).await;
    let own = kinesis_shard_of("k");
    let entries = vec![entry("k", "x"), entry_at(if own == 0 { u128::MAX } else { 0 }, "x")];
    let reply = client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
    assert_eq!(reply.records()[0].error_code(), Some(THROTTLED));
    assert_eq!(reply.records()[1].error_code(), None);
}

/// The shard of `key` in a stream of two, asked of a service of its own.
fn kinesis_shard_of(key: &str) -> usize {
    let (kinesis, _client) = with_stream(2);
    usize::from(kinesis.put("s", key, "x").unwrap().shard_id == SHARD_1)
}

#[tokio::test(start_paused = true)]
async fn without_write_record_rate_records_are_unlimited() {
    let (_kinesis, client) = without(Rule::WriteRecordRate);
    for _ in 0..5 {
        assert_eq!(put_many(&client, 500).await.failed_record_count(), Some(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_takes_a_mebibyte_a_second_with_its_keys() {
    let (_kinesis, client) = with_stream(1);
    let put =
        |size| client.put_record().stream_name("s").partition_key("k").data(Blob::new(vec![0; size])).send();
    put(MIB / 2 - 1).await.unwrap();
    put(MIB / 2 - 1).await.unwrap();
    assert_eq!(code(put(0).await), THROTTLED);
    after(250).await;
    assert_eq!(code(put(MIB / 4).await), THROTTLED);
    put(MIB / 4 - 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_above_the_rate_is_taken_by_a_rested_shard() {
    let (_kinesis, client) = with_stream(1);
    let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s";
    client.update_max_record_size().stream_arn(arn).max_record_size_in_kib(10_240).send().await.unwrap();
    let put =
        |size| client.put_record().stream_name("s").partition_key("k").data(Blob::new(vec![0; size])).send();
    put(4 * MIB - 1).await.unwrap();
    after(3_999).await;
    assert_eq!(code(put(1).await), THROTTLED);
    after(1).await;
    put(4 * MIB - 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_write_byte_rate_bytes_are_unlimited() {
    let (_kinesis, client) = without(Rule::WriteByteRate);
    for _ in 0..5 {
        let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new(vec![0; MIB - 1]));
        put.send().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn helpers_write_past_the_quotas_and_leave_them_alone() {
    let (kinesis, client) = with_stream(1);
    for _ in 0..2_000 {
        kinesis.put("s", "k", "x").unwrap();
    }
    assert_eq!(put_many(&client, 500).await.failed_record_count(), Some(0));
}
