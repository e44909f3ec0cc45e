//! Many workers that start at the same moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kinesis_consumer::lease::{Coordinator, HeartbeatMode, LeaseConfig, LeaseEvents, MemoryStore};
use kinesis_core::aws::KinesisDirectory;
use kinesis_core::{StartPosition, WorkerId};
use kinesis_testkit::{Call, Operation, Outcome, TestKinesis, scenarios};
use tokio::time::Instant;

use crate::common::{APPLICATION, Journal, STREAM, World, eventually, stop};

const WORKERS: usize = 20;
/// So many shards are open.
const OPEN: usize = 200;
/// With 1,800 closed ones.
const PAGES: usize = 2;

fn long_history() -> TestKinesis {
    let kinesis = TestKinesis::new();
    scenarios::long_history(&kinesis, STREAM, OPEN, 1_800).unwrap();
    kinesis
}

/// All have started, at the tip: that takes the most calls.
async fn start(kinesis: &TestKinesis, workers: usize) -> Vec<(Coordinator, LeaseEvents)> {
    let store = MemoryStore::new();
    let starts = (0..workers).map(|number| {
        let directory = Arc::new(KinesisDirectory::new(kinesis.client()));
        let (application, stream) = (APPLICATION.parse().unwrap(), STREAM.parse().unwrap());
        Coordinator::builder(store.clone(), directory, application, stream)
            .worker(WorkerId::new(format!("w{number}")).unwrap())
            .config(LeaseConfig::default().full_look_interval(Duration::from_secs(20)))
            .heartbeat(HeartbeatMode::Inline)
            .start_position(StartPosition::Latest)
            .start()
    });
    join_all(starts).await.into_iter().collect::<Result<_, _>>().unwrap()
}

fn refused(calls: &[Call]) -> usize {
    calls.iter().filter(|call| !matches!(call.outcome, Outcome::Done { .. })).count()
}

/// The most calls within one second.
fn most_in_a_second(calls: &[Call]) -> usize {
    let within = |first: &Call| {
        let second = first.elapsed..first.elapsed + Duration::from_secs(1);
        calls.iter().filter(|call| second.contains(&call.elapsed)).count()
    };
    calls.iter().map(within).max().unwrap_or_default()
}

/// F-27: workers that start at the same moment make one listing each, however many shards there are, and then one a minute:
/// far below the 1,000 calls a second that the service allows for a stream.
#[tokio::test(start_paused = true)]
async fn workers_that_start_together_list_the_shards_once_a_minute_each() {
    let kinesis = long_history();
    let running = start(&kinesis, WORKERS).await;
    let lists = kinesis.calls_of(Operation::ListShards);
    assert_eq!((lists.len(), refused(&lists)), (WORKERS * PAGES, 0));
    tokio::time::sleep(Duration::from_secs(125)).await;
    let lists = kinesis.calls_of(Operation::ListShards);
    assert_eq!((lists.len(), refused(&lists)), (3 * WORKERS * PAGES, 0));
    assert!(most_in_a_second(&lists) <= WORKERS * PAGES, "{}", most_in_a_second(&lists));
    drop(running);
}

/// F-27: more descriptions than the rate of the account allows, which is 20 a second, are refused; that delays a start and
/// fails none.
#[tokio::test(start_paused = true)]
async fn refused_descriptions_delay_a_start() {
    for (workers, longest) in [(40, 5), (100, 20)] {
        let kinesis = TestKinesis::new();
        kinesis.create_stream(STREAM, 200).unwrap();
        let began = Instant::now();
        drop(start(&kinesis, workers).await);
        let took = began.elapsed();
        let describes = kinesis.calls_of(Operation::DescribeStreamSummary);
        assert_eq!(describes.len() - refused(&describes), workers);
        assert!(refused(&describes) > 0, "{workers} are more than 20 at a time");
        assert!(took <= Duration::from_secs(longest), "{workers}: {took:?}");
    }
}

/// F-27: listings that are refused for a while delay the start and nothing else.
#[tokio::test(start_paused = true)]
async fn refused_listings_delay_a_start() {
    let kinesis = long_history();
    let time = Duration::from_secs(10);
    scenarios::throttled_shard_lists(&kinesis, STREAM, time);
    let began = Instant::now();
    let running = start(&kinesis, WORKERS).await;
    let took = began.elapsed();
    assert!(took >= time && took <= time * 2, "{took:?}");
    drop(running);
}

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
            (calls.len(), refused(&calls))
        };
        assert_eq!(calls(Operation::ListShards), (WORKERS * PAGES, 0));
        // With a consumer, its name and the stream's make its ARN.
        let described = if fan_out { 2 * WORKERS } else { WORKERS };
        assert_eq!(calls(Operation::DescribeStreamSummary), (described, 0));
        assert_eq!(calls(Operation::RegisterStreamConsumer), (usize::from(fan_out), 0));
    }
}
