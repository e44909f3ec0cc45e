//! The example programs, run as a newcomer runs them: one variable names a local server. Sockets and processes are
//! real here, so the tests wait for conditions, each with a limit.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::lease::SqliteStore;
use kinesis_core::lease::{Lease, LeaseStore as _, ScanRequest};
use kinesis_core::{ApplicationName, Checkpoint};
use kinesis_testkit::{Server, TestClock, TestKinesis};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// The longest that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const STREAM: &str = "examples";

async fn serve() -> (TestKinesis, Server) {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    (kinesis, server)
}

/// A running example.
struct Program {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reading: JoinHandle<String>,
}

impl Program {
    /// Starts an example whose whole environment is `env`.
    fn start(binary: &str, folder: &Path, env: &[(&str, &str)], args: &[&str]) -> Self {
        let mut child = Command::new(binary)
            .args(args)
            .env_clear()
            .envs(env.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = child.stderr.take().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reading = tokio::spawn(async move {
            let mut text = String::new();
            let read = async {
                while let Some(line) = output.next_line().await.unwrap() {
                    kept.lock().unwrap().push(line);
                }
            };
            let (_, end) = tokio::join!(read, errors.read_to_string(&mut text));
            end.unwrap();
            text
        });
        Self { child, lines, reading }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The numbers of the orders that it has printed.
    fn orders(&self) -> BTreeSet<u32> {
        let number = |line: &String| {
            let (_, rest) = line.split_once("order ")?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        self.lines().iter().filter_map(number).collect()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for its end; gives what it printed.
    async fn ended(mut self) -> (ExitStatus, Vec<String>, String) {
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("it ends").unwrap();
        let errors = self.reading.await.unwrap();
        let lines = self.lines.lock().unwrap().clone();
        (status, lines, errors)
    }

    /// Waits for a good end; gives its last line.
    async fn succeeded(self) -> String {
        let (status, lines, errors) = self.ended().await;
        assert_eq!(status.code(), Some(0), "{lines:#?}\n{errors}");
        lines.last().cloned().unwrap_or_default()
    }
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {LIMIT:?}: {what}");
}

/// What the workers of `multi-worker` keep in their lease file, by shard.
async fn leases(file: &Path) -> BTreeMap<String, Lease> {
    let store = SqliteStore::open(file).await.unwrap();
    store.setup().await.unwrap();
    let request = ScanRequest::new(ApplicationName::new("multi-worker").unwrap());
    let rows = store.scan(&request).await.unwrap().leases;
    rows.into_iter().map(|row| (row.key.shard().to_string(), row)).collect()
}

/// S-228, S-229: one variable points producer and consumers at a local server, and the first makes the stream.
#[tokio::test]
async fn one_variable_is_enough_to_send_and_receive() {
    let (kinesis, server) = serve().await;
    let url = server.url();
    let env = [("AWS_ENDPOINT_URL", url.as_str())];
    let folder = tempfile::tempdir().unwrap();

    let producer = Program::start(env!("CARGO_BIN_EXE_producer"), folder.path(), &env, &[]);
    assert_eq!(producer.succeeded().await, "stored 100 records");
    let mut stored: Vec<u32> = Vec::new();
    for record in kinesis.records(STREAM).unwrap() {
        let text = std::str::from_utf8(&record.data).unwrap();
        stored.push(text.strip_prefix("order ").unwrap().parse().unwrap());
    }
    stored.sort_unstable();
    assert_eq!(stored, (1..=100).collect::<Vec<u32>>());

    for binary in [env!("CARGO_BIN_EXE_basic-consumer"), env!("CARGO_BIN_EXE_custom-lease-store")] {
        let consumer = Program::start(binary, folder.path(), &env, &["--until", "100"]);
        let lines = Arc::clone(&consumer.lines);
        assert_eq!(consumer.succeeded().await, "processed 100 records", "{binary}");
        let orders = lines.lock().unwrap().iter().filter(|line| line.starts_with("order ")).count();
        assert_eq!(orders, 100, "{binary}: one line each");
    }
    server.shutdown().await;
}

/// S-019: SIGTERM stops gracefully: exit code 0, the position of the last record stored, the leases given back.
#[tokio::test]
async fn sigterm_stores_the_last_position() {
    let (kinesis, server) = serve().await;
    kinesis.create_stream(STREAM, 2).unwrap();
    for number in 1..=40 {
        kinesis.put(STREAM, &format!("customer-{}", number % 10), format!("order {number}")).unwrap();
    }
    let url = server.url();
    let env = [("AWS_ENDPOINT_URL", url.as_str()), ("WORKER_ID", "worker-1")];
    let folder = tempfile::tempdir().unwrap();
    let worker = Program::start(env!("CARGO_BIN_EXE_multi-worker"), folder.path(), &env, &[]);
    until("every order is printed", async || worker.orders().len() == 40).await;
    worker.signal("-TERM");
    assert_eq!(worker.succeeded().await, "processed 40 records");

    let mut last = BTreeMap::new();
    for record in kinesis.records(STREAM).unwrap() {
        last.insert(record.shard_id, record.sequence_number);
    }
    assert_eq!(last.len(), 2, "both shards have records");
    let leases = leases(&folder.path().join("multi-worker.db")).await;
    assert_eq!(leases.len(), 2);
    for (shard, lease) in leases {
        assert_eq!(lease.owner, None, "{shard}");
        let Checkpoint::At(position) = lease.checkpoint else { panic!("{shard}: nothing is stored") };
        assert_eq!(position.sequence().to_string(), last[&shard], "{shard}");
    }
    server.shutdown().await;
}

/// S-228, S-229: workers take their names from the environment and share the shards evenly; what one leaves, the other
/// takes, and each goes on where the other stopped.
#[tokio::test]
async fn two_workers_share_the_shards_of_a_stream() {
    let (kinesis, server) = serve().await;
    let url = server.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("multi-worker.db");
    let start = |name| {
        let env = [("AWS_ENDPOINT_URL", url.as_str()), ("WORKER_ID", name)];
        Program::start(env!("CARGO_BIN_EXE_multi-worker"), folder.path(), &env, &[])
    };
    let owned = async |name: &str| {
        // While a shard is handed over, the row names the next owner, but the holder is still at work.
        let owner = |lease: &Lease| {
            lease.checkpoint_owner.is_none()
                && lease.owner.as_ref().is_some_and(|owner| owner.as_str() == name)
        };
        leases(&file).await.values().filter(|lease| owner(lease)).count()
    };
    let first = start("worker-1");
    until("the first has every shard", async || owned("worker-1").await == 4).await;
    let second = start("worker-2");
    until("each has half", async || owned("worker-1").await == 2 && owned("worker-2").await == 2).await;

    // One record for each shard, so each worker has two of them.
    let ranges = kinesis.shards(STREAM).unwrap();
    let put_to_each_shard = |first: u32| {
        for (number, shard) in (first..).zip(&ranges) {
            kinesis.put_at(STREAM, shard.starting_hash_key, "customer", format!("order {number}")).unwrap();
        }
    };
    put_to_each_shard(1);
    until("both have two orders", async || first.orders().len() == 2 && second.orders().len() == 2).await;
    let both: BTreeSet<u32> = first.orders().union(&second.orders()).copied().collect();
    assert_eq!(both, (1..=4).collect());

    first.signal("-INT");
    assert_eq!(first.succeeded().await, "processed 2 records");
    until("the other takes over", async || owned("worker-2").await == 4).await;
    put_to_each_shard(5);
    until("it has every new order", async || second.orders().is_superset(&(5..=8).collect())).await;
    second.signal("-TERM");
    // Nothing of what the first had finished comes again.
    assert_eq!(second.succeeded().await, "processed 6 records");
    server.shutdown().await;
}

/// S-229: a worker without a name is told which variable to set.
#[tokio::test]
async fn a_worker_needs_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let worker = Program::start(env!("CARGO_BIN_EXE_multi-worker"), folder.path(), &[], &[]);
    let (status, _, errors) = worker.ended().await;
    assert_eq!(status.code(), Some(2));
    assert!(errors.contains("--worker-id"), "{errors}");
}

/// S-033: a store of one's own is less than a hundred lines.
#[test]
fn the_custom_store_is_short() {
    let store = include_str!("../src/bin/custom-lease-store/store.rs");
    assert!(store.contains("impl LeaseStore for") && store.lines().count() < 100);
}

/// S-240: the README has the quick starts, each a complete program (they compile as documentation tests of this
/// package's library).
#[test]
fn the_readme_has_complete_quick_starts() {
    let readme = include_str!("../../README.md");
    let mut programs = BTreeMap::new();
    for section in readme.split("\n## ").skip(1) {
        let (title, text) = section.split_once('\n').unwrap();
        programs.insert(title, text.matches("```rust").count());
        assert_eq!(text.matches("```rust").count(), text.matches("fn main()").count(), "{title}");
    }
    for title in ["Consume: polling", "Produce", "Test without AWS"] {
        assert_eq!(programs.get(title), Some(&1), "{title}");
    }
    assert!(include_str!("../src/lib.rs").contains("include_str!(\"../../README.md\")"));
}
