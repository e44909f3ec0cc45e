//! Many workers that start together on a stream with many shards.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::StartPosition;
use kinesis_testkit::{Operation, Outcome, scenarios};

use crate::common::{Journal, STREAM, World, eventually, stop};

const WORKERS: usize = 20;
const OPEN: usize = 200;

/// F-27: twenty workers that start together on a stream with 2,000 shards, 200 of them open, whether their history is read
/// too or not, and also where the consumer has to be registered first: every open shard is read within a minute; a worker
/// makes a few control calls, however many shards there are, and none is refused.
#[tokio::test(start_paused = true)]
async fn twenty_workers_that_start_together_read_a_long_history() {
    let (horizon, latest) = (StartPosition::TrimHorizon, StartPosition::Latest);
    for (start, fan_out) in [(horizon, false), (latest.clone(), false), (latest, true)] {
        let kinesis = scenarios::slow_registration().build();
        scenarios::long_history(&kinesis, STREAM, OPEN, 1_800).unwrap();
        let world = World { kinesis, leases: Arc::default() };
        let journal = Journal::default();
        let spawn = |worker: usize| {
            let consumer = world.consumer(&format!("w{worker}")).seed(worker as u64);
            let consumer = consumer.start_position(start.clone());
            let consumer = if fan_out { consumer.enhanced_fan_out("billing") } else { consumer };
            consumer.for_each(journal.handler("one")).build().unwrap().spawn()
        };
        let handles: Vec<_> = (0..WORKERS).map(spawn).collect();
        let taken = || world.owners().iter().filter(|(_, owner)| owner.is_some()).count();
        let reading = async {
            eventually(|| taken() == OPEN).await;
            let views = world.kinesis.shards(STREAM).unwrap();
            for (number, view) in views.iter().filter(|view| view.is_open()).enumerate() {
                world.kinesis.put_at(STREAM, view.starting_hash_key, "key", number.to_string()).unwrap();
            }
            journal.until_distinct(OPEN).await;
        };
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("every open shard is read");
        for handle in &handles {
            assert!(stop(handle).await.is_clean());
        }
        let calls = |operation| {
            let calls = world.kinesis.calls_of(operation);
            let refused = calls.iter().filter(|call| matches!(call.outcome, Outcome::Refused { .. })).count();
            (calls.len(), refused)
        };
        assert_eq!(calls(Operation::ListShards), (2 * WORKERS, 0));
        // With a consumer, its name and the stream's make its ARN.
        let described = if fan_out { 2 * WORKERS } else { WORKERS };
        assert_eq!(calls(Operation::DescribeStreamSummary), (described, 0));
        assert_eq!(calls(Operation::RegisterStreamConsumer), (usize::from(fan_out), 0));
    }
}
