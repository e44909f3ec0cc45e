//! Readers of different consumers share the reads of one shard without knowing of each other.

use std::time::Duration;

use crate::support::*;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::types::ShardIteratorType;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader};
use kinesis_poll::{PollConfig, PollSource};
use kinesis_testkit::{Call, Operation, Rule, TestKinesis};
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);

/// Consumers settle within the first minute after a change, and are watched in the second.
const PHASE: Duration = Duration::from_secs(120);

/// A shard with more than can be read in the time of a test.
fn endless() -> TestKinesis {
    let kinesis = TestKinesis::builder().without(Rule::WriteRecordRate).build();
    kinesis.create_stream(STREAM, 1).unwrap();
    for _ in 0..6_000 {
        kinesis.put(STREAM, "key", "x").unwrap();
    }
    kinesis
}

/// One more consumer, recognised by the number of records that it asks for.
fn join(kinesis: &TestKinesis, tasks: &mut JoinSet<()>, number: u32, seed: u64) -> tokio::task::AbortHandle {
    let config = PollConfig::default().max_records(number + 1);
    let source = PollSource::new(kinesis.client(), config).unwrap().seed(seed * 100 + u64::from(number));
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    tasks.spawn(async move {
        loop {
            drop(reader.next().await.unwrap());
        }
    })
}

/// Reads per second of each consumer between two times, by its number.
fn rates(calls: &[Call], numbers: impl Iterator<Item = u32>, from: Duration, to: Duration) -> Vec<f64> {
    let rate = |number: u32| {
        let own = calls.iter().filter(|call| call.limit == Some(i64::from(number) + 1) && !is_refused(call));
        own.filter(|call| from <= call.elapsed && call.elapsed < to).count() as f64
            / (to - from).as_secs_f64()
    };
    numbers.map(rate).collect()
}

/// How far the rate that is furthest from the fair one is away from it, as a part of it.
fn unfairness(rates: &[f64]) -> f64 {
    let fair = 5.0 / rates.len() as f64;
    rates.iter().map(|rate| (rate / fair - 1.0).abs()).fold(0.0, f64::max)
}

/// How `n` consumers get on that join one by one, and how those left do after one went.
struct Outcome {
    /// The largest deviation from the fair share in the second minute after any of the joins.
    joined: f64,
    /// The same after one left.
    left: f64,
    /// The part of all calls that was refused.
    refused: f64,
}

async fn share(n: u32, seed: u64) -> Outcome {
    let kinesis = endless();
    let kinesis_began = tokio::time::Instant::now();
    let mut tasks = JoinSet::new();
    let mut handles = Vec::new();
    // Readers are counted at certain times of the service's clock: joins come before, in and after counts.
    tokio::time::sleep(Duration::from_millis(seed * 1_370)).await;
    let began = tokio::time::Instant::now();
    let offset = kinesis_began.elapsed();
    for number in 0..n {
        handles.push(join(&kinesis, &mut tasks, number, seed));
        // Not in step with the shard's allowance.
        tokio::time::sleep_until(began + PHASE * (number + 1) + Duration::from_millis(seed * 7 % 200)).await;
    }
    let leaves = u32::try_from(seed).unwrap() % n;
    handles[leaves as usize].abort();
    tokio::time::sleep(PHASE).await;
    tasks.shutdown().await;
    let calls = kinesis.calls_of(Operation::GetRecords);
    let joined =
        (2..=n).map(|m| unfairness(&rates(&calls, 0..m, offset + PHASE * m - MINUTE, offset + PHASE * m)));
    let rest = (0..n).filter(|number| *number != leaves);
    Outcome {
        joined: joined.fold(0.0, f64::max),
        left: unfairness(&rates(&calls, rest, offset + PHASE * (n + 1) - MINUTE, offset + PHASE * (n + 1))),
        refused: calls.iter().filter(|call| is_refused(call)).count() as f64 / calls.len() as f64,
    }
}

/// Seeds of each test. The machine alone is tested with a hundred.
const SEEDS: u64 = 2;

async fn assert_shares(n: u32) {
    for seed in 0..SEEDS {
        let Outcome { joined, left, refused } = share(n, seed).await;
        assert!(joined <= 0.2 && left <= 0.2 && refused < 0.05, "seed {seed}: {joined} {left} {refused}");
    }
}

/// F-28, S-079: two consumers that join one by one each get their half, and what one leaves goes to the other.
#[tokio::test(start_paused = true)]
async fn two_consumers_come_to_equal_shares() {
    assert_shares(2).await;
}

/// F-28, S-079: so do three.
#[tokio::test(start_paused = true)]
async fn three_consumers_come_to_equal_shares() {
    assert_shares(3).await;
}

/// F-28, S-079: and five.
#[tokio::test(start_paused = true)]
async fn five_consumers_come_to_equal_shares() {
    assert_shares(5).await;
}

/// A reader of another make, that takes what it can get.
#[derive(Debug, Clone, Copy)]
enum Greedy {
    /// Calls again after this many milliseconds, from and to, whatever came of the last call.
    Metronome(u64, u64),
    /// The SDK with its standard retries, 200 to 210 ms after the last call.
    Sdk,
}

/// The least reads per second of one of our readers beside a greedy one over any two minutes from its third to its
/// eighth: that somebody gives no way it knows after three counts at the latest.
async fn beside(greedy: Greedy, seed: u64) -> f64 {
    let kinesis = endless();
    let began = tokio::time::Instant::now();
    let mut client = kinesis.client();
    let (from, to) = match greedy {
        Greedy::Metronome(from, to) => (from, to),
        Greedy::Sdk => {
            let retries = client.config().to_builder().retry_config(RetryConfig::standard());
            client = aws_sdk_kinesis::Client::from_conf(retries.build());
            (200, 210)
        }
    };
    let iterator = client.get_shard_iterator().stream_name(STREAM).shard_id(SHARD);
    let iterator = iterator.shard_iterator_type(ShardIteratorType::Latest).send().await.unwrap();
    let iterator = iterator.shard_iterator.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut random = fastrand::Rng::with_seed(seed);
        loop {
            // Refused or not is all the same to it.
            drop(client.get_records().shard_iterator(&iterator).send().await);
            tokio::time::sleep(Duration::from_millis(random.u64(from..=to))).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(5_000 + seed * 1_370)).await;
    let joined = began.elapsed();
    join(&kinesis, &mut tasks, 1, seed);
    tokio::time::sleep(8 * MINUTE).await;
    tasks.shutdown().await;
    let calls = kinesis.calls_of(Operation::GetRecords);
    let least = (0..=24).map(|window| {
        let from = joined + 2 * MINUTE + 10 * SECOND * window;
        rates(&calls, 1..2, from, from + 2 * MINUTE)[0]
    });
    least.fold(f64::MAX, f64::min)
}

/// Asserts it with so many seeds, or with as many as `KINESIS_POLL_SHARING_SEEDS` says.
async fn assert_one_read_a_second(greedy: Greedy, seeds: u64) {
    let seeds = std::env::var("KINESIS_POLL_SHARING_SEEDS").map_or(seeds, |seeds| seeds.parse().unwrap());
    let mut rates = Vec::new();
    for seed in 0..seeds {
        rates.push(beside(greedy, seed).await);
    }
    let worst = rates.iter().copied().fold(f64::MAX, f64::min);
    assert!(worst >= 1.0, "{greedy:?}: {rates:.2?}");
}

/// F-28: beside a reader that takes four of the five reads and gives way to nobody, one read a second is left, and taken.
#[tokio::test(start_paused = true)]
async fn one_read_a_second_is_left_beside_a_greedy_reader() {
    assert_one_read_a_second(Greedy::Metronome(225, 275), 2).await;
}

/// F-28: so it is beside one that would take all five, every 200 ms give or take 2, 5 and 10 %.
#[tokio::test(start_paused = true)]
async fn one_read_a_second_is_taken_from_a_reader_that_would_take_all() {
    for vary in [4, 10, 20] {
        assert_one_read_a_second(Greedy::Metronome(200 - vary, 200 + vary), 2).await;
    }
}

/// F-28: and beside the SDK, which repeats a refused read by itself.
#[tokio::test(start_paused = true)]
async fn one_read_a_second_is_taken_from_the_sdk_with_retries() {
    assert_one_read_a_second(Greedy::Sdk, 3).await;
}
