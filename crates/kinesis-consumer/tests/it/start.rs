//! Many workers that start at the same moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kinesis_consumer::lease::{Coordinator, HeartbeatMode, LeaseConfig, LeaseEvents, MemoryStore};
use kinesis_core::aws::KinesisDirectory;
use kinesis_core::{StartPosition, WorkerId};
use kinesis_testkit::{Call, Operation, Outcome, TestKinesis, scenarios};
use tokio::time::Instant;

use crate::common::{APPLICATION, STREAM};

/// 200 open shards and 1,800 closed ones: two pages.
const PAGES: usize = 2;

fn long_history() -> TestKinesis {
    let kinesis = TestKinesis::new();
    scenarios::long_history(&kinesis, STREAM, 200, 1_800).unwrap();
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
    let running = start(&kinesis, 20).await;
    let lists = kinesis.calls_of(Operation::ListShards);
    assert_eq!((lists.len(), refused(&lists)), (20 * PAGES, 0));
    tokio::time::sleep(Duration::from_secs(125)).await;
    let lists = kinesis.calls_of(Operation::ListShards);
    assert_eq!((lists.len(), refused(&lists)), (3 * 20 * PAGES, 0));
    assert!(most_in_a_second(&lists) <= 20 * PAGES, "{}", most_in_a_second(&lists));
    drop(running);
}

/// F-27: more descriptions than the rate of the account allows, which is 20 a second, are refused; that delays a start and
/// fails none.
#[tokio::test(start_paused = true)]
async fn refused_descriptions_delay_a_start() {
    for (workers, longest) in [(20, 5), (100, 20)] {
        let kinesis = TestKinesis::new();
        kinesis.create_stream(STREAM, 200).unwrap();
        let began = Instant::now();
        drop(start(&kinesis, workers).await);
        let took = began.elapsed();
        let describes = kinesis.calls_of(Operation::DescribeStreamSummary);
        assert_eq!(describes.len() - refused(&describes), 2 * workers);
        assert!(refused(&describes) > 0, "two for each worker are more than 20 at a time");
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
    let running = start(&kinesis, 20).await;
    let took = began.elapsed();
    assert!(took >= time && took <= time * 2, "{took:?}");
    drop(running);
}
