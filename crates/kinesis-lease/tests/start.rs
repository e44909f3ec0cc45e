//! How a coordinator starts, and how it fails to.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use common::*;
use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::{Checkpoint, StartPosition, Timestamp};
use kinesis_lease::{
    Coordinator, Lease, LeaseConfig, LeaseKey, LeaseStore, LeaseWrite, MemoryStore, Outcome, ScanPage,
    ScanRequest, StartError, StoreError, StoreProfile,
};

/// S-045: each start makes the store ready, lists the shards, makes missing leases, lists the leases, and takes them.
#[tokio::test(start_paused = true)]
async fn a_start_goes_step_by_step() {
    let store = FaultyStore::default();
    let shards = (0..3).map(|number| ShardInfo::new(shard(number))).collect();
    let directory = FakeDirectory::logging(shards, store.log.clone());
    let (coordinator, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    for _ in 0..3 {
        acquired(&mut events).await;
    }
    let expected = [
        "setup",
        "DescribeStreamSummary",
        // Two pages.
        "ListShards",
        "ListShards",
        "scan",
        // Three creations.
        "apply 3",
        "scan",
        // Three takes.
        "apply 3",
    ];
    assert_eq!(store.log.entries(), expected);
    coordinator.shutdown(secs(1)).await;
}

/// S-024: the default name is host, process and eight random digits; two workers of one process differ.
#[tokio::test(start_paused = true)]
async fn the_default_name_has_host_process_and_random_digits() {
    let directory = FakeDirectory::open(1);
    let mut names = BTreeSet::new();
    for _ in 0..2 {
        let builder = Coordinator::builder(MemoryStore::new(), directory.clone(), application(), stream());
        let (coordinator, _events) =
            builder.heartbeat(kinesis_lease::HeartbeatMode::Inline).start().await.unwrap();
        let name = coordinator.worker().to_string();
        let mut parts = name.rsplitn(3, '-');
        let (digits, process, host) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert_eq!(process, std::process::id().to_string(), "{name}");
        assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        assert!(!host.is_empty(), "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 2);
}

/// S-024: the name can be given.
#[tokio::test(start_paused = true)]
async fn a_given_name_is_used() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) = builder(store.clone(), &directory, "mine").start().await.unwrap();
    acquired(&mut events).await;
    assert_eq!(coordinator.worker(), &worker("mine"));
    assert_eq!(store.row(0).owner, Some(worker("mine")));
}

async fn start_error(store: &FaultyStore, directory: &Arc<FakeDirectory>) -> StartError {
    builder(store.clone(), directory, "a").start().await.unwrap_err()
}

/// S-028: settings are checked before anything is called.
#[tokio::test(start_paused = true)]
async fn a_bad_setting_fails_the_start_before_any_call() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let config = LeaseConfig::default().heartbeat_interval(secs(10));
    let error = builder(store.clone(), &directory, "a").config(config).start().await.unwrap_err();
    assert_eq!(error.to_string(), "invalid setting `heartbeat_interval`: must be shorter than expiry");
    let position = StartPosition::AtSequenceNumber { sequence: 5_u128.into() };
    let error = builder(store.clone(), &directory, "a").start_position(position).start().await.unwrap_err();
    assert!(matches!(&error, StartError::Config(config) if config.field() == "start_position"), "{error:?}");
    assert!(!error.is_retryable());
    assert_eq!(store.log.entries(), Vec::<String>::new());
    assert_eq!(directory.log.entries(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_stream_or_a_missing_permission_is_named() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    directory.fail_next(DirectoryError::stream_not_found(stream(), "DescribeStreamSummary", "404"));
    let error = start_error(&store, &directory).await;
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("orders") && source.contains("does not exist"), "{source}");
    assert!(!error.is_retryable());
    directory.fail_next(DirectoryError::access_denied(stream(), "ListShards", "403"));
    let source = std::error::Error::source(&start_error(&store, &directory).await).unwrap().to_string();
    assert!(source.contains("kinesis:ListShards"), "{source}");
    *directory.readable.lock().unwrap() = false;
    let error = start_error(&store, &directory).await;
    assert_eq!(error.to_string(), "stream orders is not active");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_fails_the_start_with_the_call() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    store.break_all(Fault::Misconfigured);
    let error = start_error(&store, &directory).await;
    assert_eq!(error.to_string(), "scan of the lease store failed");
    assert!(!error.is_retryable());
    store.heal();
    store.on_apply(|_| Some(Fault::Misconfigured));
    assert_eq!(start_error(&store, &directory).await.to_string(), "apply of the lease store failed");
}

/// A store that does not answer is tried a few times, not for ever, and nothing runs on after the start has failed.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_fails_the_start_after_a_few_tries() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    store.break_all(Fault::Hang);
    let error = start_error(&store, &directory).await;
    assert_eq!(error.to_string(), "scan of the lease store failed");
    assert!(error.is_retryable());
    assert_eq!(store.log.count("scan"), 5);
    let before = store.log.entries().len();
    tokio::time::sleep(secs(300)).await;
    assert_eq!(store.log.entries().len(), before, "nothing runs on");
}

/// A start that passes over a short failure of the store.
#[tokio::test(start_paused = true)]
async fn a_start_gets_over_a_store_that_fails_for_a_moment() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let mut left = 3;
    store.on_apply(move |_| {
        left -= i32::from(left > 0);
        (left > 0).then_some(Fault::ReplyLost)
    });
    let (_coordinator, mut events) = builder(store, &directory, "a").start().await.unwrap();
    acquired(&mut events).await;
    acquired(&mut events).await;
}

/// F-08: a start at the tip is anchored at the service's time minus the margin, in open shards only, and the anchor of
/// the first start stays.
#[tokio::test(start_paused = true)]
async fn a_start_at_the_tip_is_anchored_once() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::new(vec![
        ShardInfo::new(shard(0)).closed(true),
        ShardInfo::new(shard(1)).parents(vec![shard(0)]),
    ]);
    let latest = || builder(store.clone(), &directory, "a").start_position(StartPosition::Latest);
    let (first, _events) = latest().latest_margin(secs(3)).start().await.unwrap();
    assert_eq!(store.memory.snapshot().len(), 1, "the closed shard has nothing new");
    assert_eq!(store.row(1).checkpoint, Checkpoint::Latest);
    assert_eq!(store.row(1).anchor, Some(Timestamp::from_millis(997_000)));
    first.shutdown(secs(1)).await;
    *directory.time.lock().unwrap() = 2_000_000;
    let mut shards = directory.shards.lock().unwrap().clone();
    shards.push(ShardInfo::new(shard(2)));
    shards.push(ShardInfo::new(shard(3)).parents(vec![shard(1)]));
    directory.set(shards);
    let (_second, _events) = latest().start().await.unwrap();
    assert_eq!(store.row(2).anchor, Some(Timestamp::from_millis(997_000)), "as the first start anchored it");
    assert_eq!(store.row(3).checkpoint, Checkpoint::TrimHorizon, "a child is read from its first record");
}

/// F-43: leases of a stream that was made anew, or of one of the same name elsewhere, are refused, and the message
/// names both; also the leases of children say whose they are.
#[tokio::test(start_paused = true)]
async fn leases_of_another_stream_are_refused_with_both_names() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let identity = |arn: &str, created| (Some(arn.to_owned()), Some(Timestamp::from_millis(created)));
    *directory.identity.lock().unwrap() = identity("arn:first", 10);
    let (first, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    let parent = acquired(&mut events).await;
    parent.end_shard(&[ShardInfo::new(shard(1)).parents(vec![shard(0)])]).await.unwrap();
    assert_eq!(store.row(1).private, store.row(0).private);
    assert_eq!(store.row(1).private.len(), 2);
    first.shutdown(secs(1)).await;
    for (arn, created) in [("arn:second", 10), ("arn:first", 11)] {
        *directory.identity.lock().unwrap() = identity(arn, created);
        let error = start_error(&store, &directory).await;
        let expected = format!(
            "the leases of application billing are those of arn:first (created at 10 ms), and the stream to read is \
             {arn} (created at {created} ms)"
        );
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_retryable());
    }
    *directory.identity.lock().unwrap() = identity("arn:first", 10);
    builder(store.clone(), &directory, "a").start().await.unwrap();
}

/// One set of leases, whether the stream is given by name or by ARN; a tenure names the stream as it was given.
#[tokio::test(start_paused = true)]
async fn a_stream_by_name_and_by_arn_has_one_set_of_leases() {
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(1);
    let (first, mut events) = builder(store.clone(), &directory, "a").start().await.unwrap();
    acquired(&mut events).await.checkpoint(at(5)).await.unwrap();
    first.shutdown(secs(1)).await;
    let arn = kinesis_core::StreamRef::new("arn:aws:kinesis:eu-west-1:123456789012:stream/orders").unwrap();
    let by_arn = Coordinator::builder(store.clone(), directory.clone(), application(), arn.clone())
        .heartbeat(kinesis_lease::HeartbeatMode::Inline);
    let (_second, mut events) = by_arn.start().await.unwrap();
    let tenure = acquired(&mut events).await;
    assert_eq!((tenure.key(), tenure.lease().checkpoint.clone()), (&key(0), at(5)));
    assert_eq!(tenure.shard_ref().stream(), &arn);
    assert_eq!(store.memory.snapshot().len(), 1);
}

/// S-024: a second worker with the name of a live one is refused; a predecessor that is gone is followed at once.
#[tokio::test(start_paused = true)]
async fn a_live_namesake_is_refused_and_a_dead_one_followed() {
    namesakes(false).await;
    namesakes(true).await;
}

async fn namesakes(beats: bool) {
    let builder = |store, directory, name| {
        builder(store, directory, name).config(LeaseConfig::default().worker_heartbeat(beats))
    };
    let store = FaultyStore::default();
    let directory = FakeDirectory::open(2);
    let (first, mut events) = builder(store.clone(), &directory, "same").start().await.unwrap();
    for _ in 0..2 {
        acquired(&mut events).await;
    }
    // With a heartbeat for the whole worker, the leases stand still from here on.
    tokio::time::sleep(secs(7)).await;
    let before = tokio::time::Instant::now();
    let error = builder(store.clone(), &directory, "same").start().await.unwrap_err();
    let token = store.row(0).token.unwrap().to_string();
    let expected = format!(
        "a live worker with the same name, same, holds billing:orders/shardId-000000000000 with token {}; this one is \
         process {}",
        &token[..8],
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_retryable() && before.elapsed() <= secs(5), "{:?}", before.elapsed());
    drop((first, events));
    let before = tokio::time::Instant::now();
    let (_second, mut events) = builder(store.clone(), &directory, "same").start().await.unwrap();
    for _ in 0..2 {
        acquired(&mut events).await;
    }
    assert!(before.elapsed() >= secs(10) && before.elapsed() <= secs(12), "{:?}", before.elapsed());
}

/// Makes its table in ten minutes.
#[derive(Debug)]
struct Slow {
    memory: MemoryStore,
    profile: StoreProfile,
}

#[async_trait]
impl LeaseStore for Slow {
    async fn setup(&self) -> Result<(), StoreError> {
        tokio::time::sleep(secs(599)).await;
        Ok(())
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.memory.get(keys).await
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.memory.scan(request).await
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        self.memory.apply(writes).await
    }

    fn profile(&self) -> StoreProfile {
        self.profile
    }
}

/// A start waits as long as the store says that its setup may take, and no longer.
#[tokio::test(start_paused = true)]
async fn a_setup_may_take_as_long_as_the_store_says() {
    let start = |profile| {
        let store = Slow { memory: MemoryStore::new(), profile };
        builder(store, &FakeDirectory::open(1), "a").start()
    };
    let (_coordinator, mut events) = start(StoreProfile::default().setup_timeout(secs(600))).await.unwrap();
    acquired(&mut events).await;
    let began = tokio::time::Instant::now();
    let error = start(StoreProfile::default()).await.unwrap_err();
    assert_eq!(began.elapsed(), secs(60));
    assert_eq!(error.to_string(), "setup of the lease store failed");
}
