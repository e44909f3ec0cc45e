//! Workers that take a shard from each other, over sockets and with enhanced fan-out. Real time: it waits for
//! conditions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Config, Credentials, Region};
use kinesis_consumer::core::lease::{
    Change, FieldWrite, Guard, Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest,
    StoreError,
};
use kinesis_consumer::lease::HeartbeatMode;
use kinesis_consumer::{Consumer, ConsumerHandle};
use kinesis_testkit::{Operation, Outcome as CallOutcome, Server, TestClock, TestKinesis};

use crate::common::{APPLICATION, Journal, STREAM, World, stop};
use crate::shelf::Shelf;

const SHARD: &str = "shardId-000000000000";
/// Far longer than anything takes, unless it hangs.
const HANG: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(2);

/// A worker's way to the leases; once it is cut its calls hang, so that the worker learns nothing.
#[derive(Debug)]
struct Line {
    shelf: Arc<Shelf>,
    is_cut: AtomicBool,
}

impl Line {
    async fn pass(&self) {
        while self.is_cut.load(Ordering::SeqCst) {
            tokio::time::sleep(MOMENT).await;
        }
    }
}

#[async_trait]
impl LeaseStore for Line {
    async fn setup(&self) -> Result<(), StoreError> {
        self.pass().await;
        self.shelf.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.pass().await;
        self.shelf.get(keys).await
    }

    async fn scan(&self, page: &ScanRequest) -> Result<ScanPage, StoreError> {
        self.pass().await;
        self.shelf.scan(page).await
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        self.pass().await;
        self.shelf.apply(writes).await
    }
}

struct Worker {
    name: &'static str,
    line: Arc<Line>,
    handle: ConsumerHandle,
}

fn start(world: &World, server: &Server, name: &'static str, journal: &Journal) -> Worker {
    // Connections of its own, as in a process of its own.
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "tests"))
        .endpoint_url(server.url());
    let line = Arc::new(Line { shelf: Arc::clone(&world.leases), is_cut: AtomicBool::new(false) });
    let store: Arc<dyn LeaseStore> = line.clone();
    let consumer = Consumer::builder(Client::from_conf(config.build()), APPLICATION, STREAM)
        .worker_id(name)
        .lease_store(store)
        .heartbeat(HeartbeatMode::Inline)
        .checkpoint_interval(Duration::from_millis(10))
        .enhanced_fan_out("billing")
        .for_each(journal.handler(name));
    Worker { name, line, handle: consumer.build().unwrap().spawn() }
}

/// Frees the lease over the head of its owner.
async fn free(world: &World) {
    let row = world.row(SHARD).await;
    let fields = vec![
        FieldWrite::Owner(None),
        FieldWrite::AddCounter(1),
        FieldWrite::AddEpoch(1),
        FieldWrite::Token(None),
    ];
    let write = LeaseWrite::new(row.key.clone(), Guard::Counter(row.counter), Change::Update(fields));
    let outcomes = world.leases.apply(&[write]).await;
    assert!(matches!(outcomes[..], [Ok(Outcome::Applied(_))]), "{outcomes:?}");
}

async fn until(what: &str, done: impl Fn() -> bool + Send + Sync) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(MOMENT).await;
        }
    };
    tokio::time::timeout(HANG, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

/// S-246: two workers steal a shard from each other a hundred times. The one that is robbed learns nothing and reads on
/// until the service gives its subscription to the other; some take-overs fall into the window in which the service
/// refuses them, and subscriptions live for eight seconds only: before every tenth theft one ends and is
/// followed by the next. Nothing is lost; what comes twice was written between the theft and the take-over; and whoever
/// was robbed stores nothing more.
#[tokio::test]
async fn a_hundred_steals_lose_nothing_and_repeat_little() {
    const STEALS: u32 = 100;
    const RECORDS: u32 = 5;
    let kinesis = TestKinesis::builder()
        .clock(TestClock::system())
        .without_throughput_limits()
        .subscription_life(Duration::from_secs(8))
        .build();
    kinesis.create_stream(STREAM, 1).unwrap();
    kinesis.register_consumer(STREAM, "billing").unwrap();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    let world = World { kinesis, leases: Arc::default() };
    let kinesis = &world.kinesis;
    let refused = || {
        let calls = kinesis.calls_of(Operation::SubscribeToShard);
        calls.iter().filter(|call| matches!(call.outcome, CallOutcome::Refused { .. })).count()
    };
    let accepted = || kinesis.calls_of(Operation::SubscribeToShard).len() - refused();
    let journal = Journal::default();
    let seen = |worker: &str, number: u32| {
        journal.all().iter().filter(|seen| seen.worker == worker && seen.number == number).count()
    };
    let mut old: Option<Worker> = None;
    let (mut met, mut repeated, mut renewed) = (0, 0, 0);
    for turn in 0..STEALS {
        let name = ["w1", "w2"][turn as usize % 2];
        let (first, last) = (turn * RECORDS, turn * RECORDS + RECORDS - 1);
        let (refused_before, length_before) = (refused(), journal.len());
        if let Some(old) = &old {
            if turn % 10 == 5 {
                // Its subscription comes to its end, and it goes on with another one.
                let accepted_before = accepted();
                kinesis.clock().advance(Duration::from_secs(9));
                until("the old owner subscribes anew", || accepted() > accepted_before).await;
                renewed += 1;
            }
            let everything = kinesis.records(STREAM).unwrap().pop().unwrap().sequence_number;
            until("the old owner stores its position", || world.stored(SHARD).starts_with(&everything)).await;
            old.line.is_cut.store(true, Ordering::SeqCst);
            free(&world).await;
        }
        if turn % 25 != 24 {
            // The service's five seconds are over, by its clock.
            kinesis.clock().advance(Duration::from_secs(6));
        }
        world.put(first, last, 1);
        let new = start(&world, &server, name, &journal);
        let reading = until("the new owner reads", || seen(name, last - 1) > 0);
        let passing = async {
            // Once the service refused a call, its time passes.
            until("a call is refused", || refused() > refused_before).await;
            kinesis.clock().advance(Duration::from_secs(6));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = reading => {}
            () = passing => {}
        }
        world.put(last, last + 1, 1);
        until("the new owner reads on", || seen(name, last) > 0).await;
        met += usize::from(refused() > refused_before);
        let all = journal.all().split_off(length_before);
        let by = |worker: &str| -> Vec<u32> {
            all.iter().filter(|seen| seen.worker == worker).map(|seen| seen.number).collect()
        };
        assert_eq!(by(name), (first..=last).collect::<Vec<_>>(), "turn {turn}");
        if let Some(old) = old.replace(new) {
            let late = by(old.name);
            assert!(late.iter().all(|number| (first..last).contains(number)), "turn {turn}: {late:?}");
            repeated += late.len();
            let owner = |row: &Lease| row.owner.as_ref().map(|owner| owner.as_str().to_owned());
            let stored = world.row(SHARD).await.checkpoint;
            if turn % 4 < 2 {
                // It comes to, and is stopped: it neither stores nor gives back what is not its own.
                old.line.is_cut.store(false, Ordering::SeqCst);
                stop(&old.handle).await;
            }
            drop(old);
            let row = world.row(SHARD).await;
            assert_eq!(owner(&row).as_deref(), Some(name));
            assert!(row.checkpoint.position() >= stored.position());
        }
    }
    assert_eq!(journal.distinct(), (STEALS * RECORDS) as usize);
    assert!(met >= 1, "the window was never met");
    assert!(repeated > 0, "both read for a while");
    assert_eq!(renewed, 10);
    stop(&old.unwrap().handle).await;
    server.shutdown().await;
}
