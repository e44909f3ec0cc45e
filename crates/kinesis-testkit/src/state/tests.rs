//! What the service keeps stays small, seen from the inside.

use std::time::Duration;

use super::{Kinesis, Step};
use crate::builder::Builder;
use crate::clock::Moment;
use crate::faults::RecordFaults;
use crate::model::{
    Blob, ConsumerInput, GetShardIteratorInput, PutEntry, Request, Response, StartingPosition,
    SubscribeToShardInput,
};

fn service(builder: Builder) -> Kinesis {
    Kinesis::new(builder.into_settings())
}

fn entry(size: usize) -> PutEntry {
    PutEntry {
        data: Some(Blob(vec![0; size].into())),
        partition_key: Some("k".to_owned()),
        explicit_hash_key: None,
    }
}

fn hours(count: u64) -> Moment {
    Moment::EPOCH.plus(Duration::from_secs(count * 3_600))
}

fn subscribe(kinesis: &mut Kinesis, now: Moment, arn: &str, shard: &str) -> u64 {
    let input = SubscribeToShardInput {
        consumer_arn: Some(arn.to_owned()),
        shard_id: Some(shard.to_owned()),
        starting_position: Some(StartingPosition {
            kind: Some("LATEST".to_owned()),
            ..StartingPosition::default()
        }),
        ..SubscribeToShardInput::default()
    };
    let reply = kinesis.call(now, Request::SubscribeToShard(input), &RecordFaults::default());
    let Ok(Response::Subscribed(number)) = reply else { panic!("{:?}", reply.map(drop)) };
    number
}

/// S-246: a shard that is split and merged for ever leaves nothing behind but a day of history.
#[test]
fn history_ages_out_with_its_records_slots_and_subscriptions() {
    let mut kinesis = service(crate::TestKinesis::builder().without(crate::Rule::SubscriptionLife));
    kinesis.create_now(hours(0), "s", 1).unwrap();
    let arn = kinesis.register_now(hours(0), "s", "app").unwrap();
    let mut shard = "shardId-000000000000".to_owned();
    let mut unread = None;
    for hour in 1..500 {
        let now = hours(hour);
        kinesis.put_now(now, "s", entry(1_000)).unwrap();
        let number = subscribe(&mut kinesis, now, &arn, &shard);
        if hour == 1 {
            // Its client never reads, however old its shard gets.
            unread = Some(number);
        } else {
            kinesis.unsubscribe(number);
        }
        let halves = kinesis.split_now(now, "s", &shard, None).unwrap();
        shard = kinesis.merge_now(now, "s", &halves[0], &halves[1]).unwrap().remove(0);
        let stream = &kinesis.streams["s"];
        // Three shards an hour, for a day and the hours at its ends.
        assert!(stream.shards.iter().count() <= 3 * 26, "{} shards", stream.shards.iter().count());
        assert!(stream.consumers["app"].slots.len() <= 26);
        assert!(kinesis.stored_bytes() <= 26 * 1_200, "{} bytes", kinesis.stored_bytes());
        assert_eq!(kinesis.subscriptions.len(), 1);
        kinesis.take_woken();
    }
    assert!(matches!(kinesis.step(hours(501), unread.unwrap()), Step::Fail(_)));
    assert_eq!(kinesis.subscriptions.len(), 0);
    assert_eq!(kinesis.evicted(), 0);
    kinesis.delete_now(hours(501), "s").unwrap();
    assert_eq!((kinesis.stored_bytes(), kinesis.take_woken().len()), (0, 0));
}

#[test]
fn iterators_tokens_and_names_that_do_not_exist_are_not_remembered() {
    let mut kinesis = service(crate::TestKinesis::builder());
    kinesis.create_now(hours(0), "s", 1).unwrap();
    for number in 0..1_000 {
        let now = hours(number);
        let input = GetShardIteratorInput {
            stream_name: Some("s".to_owned()),
            shard_id: Some("shardId-000000000000".to_owned()),
            shard_iterator_type: Some("LATEST".to_owned()),
            ..GetShardIteratorInput::default()
        };
        kinesis.call(now, Request::GetShardIterator(input), &RecordFaults::default()).unwrap();
        let name = format!("nobody-{number}");
        let operation = crate::Operation::ListShards;
        kinesis.admit(now, operation, Some(&name)).unwrap();
        let nobody = ConsumerInput { consumer_arn: Some(name), ..ConsumerInput::default() };
        let refused = kinesis.call(now, Request::DescribeStreamConsumer(nobody), &RecordFaults::default());
        assert!(refused.is_err());
    }
    assert_eq!((kinesis.streams.len(), kinesis.subscriptions.len()), (1, 0));
    assert_eq!(kinesis.call_rates.len(), 1);
}

#[test]
fn the_memory_of_records_has_a_limit() {
    let limit = 1 << 20;
    let mut kinesis = service(crate::TestKinesis::builder().memory_limit(limit));
    kinesis.create_now(hours(0), "s", 2).unwrap();
    for _ in 0..10_000 {
        kinesis.put_now(hours(0), "s", entry(1_000)).unwrap();
        assert!(kinesis.stored_bytes() <= limit);
    }
    let kept = kinesis.stored(hours(0), "s").unwrap();
    assert_eq!(kept.len() as u64 + kinesis.evicted(), 10_000);
    assert!(kept.len() > 600, "{} of some 900 that fit", kept.len());
    assert_eq!(kinesis.clear_now(hours(0), "s").unwrap(), kept.len());
    assert_eq!(kinesis.stored_bytes(), 0);
}
