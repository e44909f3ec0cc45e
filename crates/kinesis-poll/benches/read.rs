//! Polling against a plain loop over the SDK, each in a process of its own.
//!
//! - `cargo bench -p kinesis-poll --bench read -- --rows [--quick]` prints one JSON line per case;
//!   `cargo xtask bench read` also writes docs/benchmarks/read-paths.md.
//!
//! The service is a page that is always the same, answered in this process, and time is virtual: the five reads a second
//! cost no time, and what is measured is what reading costs. Latencies come from the embedded Kinesis with a writer.
#![allow(missing_docs, clippy::print_stdout, reason = "a benchmark speaks to its caller")]

#[path = "support/canned.rs"]
mod canned;
#[path = "support/measure.rs"]
mod measure;

use std::time::{Duration, Instant};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::ShardIteratorType;
use canned::Canned;
use kinesis_core::source::{OpenShard, ShardReader as _, SourceEvent};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_poll::{PollConfig, PollSource};
use kinesis_testkit::{Rule, TestKinesis};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const MIB: usize = 1024 * 1024;

/// How much is read to count instructions; valgrind makes a program many times slower.
const COUNTED_MIB: usize = 8;

const STREAM: &str = "bench";
const READ_INTERVAL: Duration = Duration::from_millis(200);

/// A way to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Sdk,
    Poll,
    PollPeriod,
    /// With the feature `fast-decode`.
    #[cfg(feature = "fast-decode")]
    PollFast,
}

const PATHS: &[(&str, Path)] = &[
    ("sdk", Path::Sdk),
    ("poll", Path::Poll),
    ("poll_period", Path::PollPeriod),
    #[cfg(feature = "fast-decode")]
    ("poll_fast", Path::PollFast),
];

/// Record sizes: name, bytes of a payload, records of a page.
const SIZES: [(&str, usize, usize); 3] =
    [("100b", 100, 10_000), ("1kb", 1_000, 2_000), ("100kb", 100_000, 20)];

fn config(path: Path) -> PollConfig {
    let period = if path == Path::PollPeriod { Duration::from_secs(1) } else { Duration::ZERO };
    PollConfig::default().poll_period(period)
}

fn source(client: Client, path: Path) -> PollSource {
    let source = PollSource::new(client, config(path)).expect("valid settings");
    #[cfg(feature = "fast-decode")]
    let source = if path == Path::PollFast { source.fast_decode() } else { source };
    source
}

fn shard(number: usize) -> ShardRef {
    let id = format!("shardId-{number:012}");
    ShardRef::new(STREAM.parse().expect("a valid name"), id.parse().expect("a valid id"))
}

/// Reads `pages` pages of a shard; returns the records and the payload bytes.
async fn read_sdk(client: Client, number: usize, pages: usize) -> (usize, usize) {
    let iterator = client.get_shard_iterator().stream_name(STREAM).shard_id(shard(number).shard().as_str());
    let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
    let mut iterator = iterator.expect("it answers").shard_iterator;
    let (mut records, mut bytes) = (0, 0);
    for _ in 0..pages {
        let page = client.get_records().set_shard_iterator(iterator).limit(10_000).send().await;
        let page = page.expect("it answers");
        iterator = page.next_shard_iterator;
        records += page.records.len();
        bytes += page.records.iter().map(|record| record.data.as_ref().len()).sum::<usize>();
        tokio::time::sleep(READ_INTERVAL).await;
    }
    (records, bytes)
}

async fn read_poll(source: PollSource, number: usize, pages: usize) -> (usize, usize) {
    // Nothing is read ahead: a page that is read and not taken would count for one way and not for the other.
    let request = OpenShard::new(shard(number), StartPosition::TrimHorizon).buffer_bytes(0);
    let mut reader = source.reader(request);
    let (mut records, mut bytes, mut read) = (0, 0, 0);
    while read < pages {
        if let SourceEvent::Records(batch) = reader.next().await.expect("it answers") {
            read += 1;
            records += batch.records.len();
            bytes += batch.records.iter().map(|record| record.data.len()).sum::<usize>();
        }
    }
    (records, bytes)
}

/// One case in this process: `--case PATH SIZE SHARDS MIB`.
async fn case(path: Path, size: (&str, usize, usize), shards: usize, mib: usize) -> Value {
    let (_, bytes, page) = size;
    let canned = Canned::new(page, bytes);
    let pages = (mib * MIB / (bytes * page) / shards).max(2);
    let source = source(canned.client(), path);
    let client = canned.client();
    let (began, cpu) = (Instant::now(), measure::cpu_seconds());
    let mut tasks = JoinSet::new();
    for number in 0..shards {
        match path {
            Path::Sdk => tasks.spawn(read_sdk(client.clone(), number, pages)),
            _ => tasks.spawn(read_poll(source.clone(), number, pages)),
        };
    }
    let done = tasks.join_all().await;
    let (took, cpu) = (began.elapsed().as_secs_f64(), measure::cpu_seconds() - cpu);
    let (records, bytes) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    json!({
        "records": records, "bytes": bytes, "seconds": took, "cpu_seconds": cpu, "peak_mib": measure::peak_mib(),
    })
}

/// Put-to-delivered times in virtual time: a writer puts one record every 37 ms for ten minutes.
async fn latency(path: Path) -> Value {
    const RECORDS: u64 = 16_000;
    let kinesis = TestKinesis::builder().without(Rule::WriteRecordRate).build();
    kinesis.create_stream(STREAM, 1).expect("a new stream");
    let writer = kinesis.clone();
    let began = tokio::time::Instant::now();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for _ in 0..RECORDS {
            let at = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            writer.put(STREAM, "key", at.to_string()).expect("it is taken");
            tokio::time::sleep(Duration::from_millis(37)).await;
        }
    });
    let mut delays = Vec::new();
    let mut note = |data: &[u8]| {
        let put: u64 = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
        delays.push(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX) - put);
    };
    let mut count = 0;
    if path == Path::Sdk {
        let client = kinesis.client();
        let iterator = client.get_shard_iterator().stream_name(STREAM).shard_id(shard(0).shard().as_str());
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
        let mut iterator = iterator.expect("it answers").shard_iterator;
        while count < RECORDS {
            let page = client.get_records().set_shard_iterator(iterator.clone()).send().await;
            if let Ok(page) = page {
                iterator = page.next_shard_iterator;
                count += page.records.len() as u64;
                page.records.iter().for_each(|record| note(record.data.as_ref()));
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    } else {
        let source = source(kinesis.client(), path);
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        while count < RECORDS {
            if let SourceEvent::Records(batch) = reader.next().await.expect("it answers") {
                count += batch.records.len() as u64;
                batch.records.iter().for_each(|record| note(&record.data));
            }
        }
    }
    delays.sort_unstable();
    let at = |part: usize| delays[(delays.len() - 1) * part / 100];
    json!({ "p50_ms": at(50), "p99_ms": at(99) })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let path_of = |name: &str| PATHS.iter().find(|path| path.0 == name).expect("a known path").1;
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    match words.as_slice() {
        ["--case", path, size, shards, mib] => {
            let size = SIZES.iter().find(|known| known.0 == *size).expect("a known size");
            let number = |text: &str| text.parse().expect("a number");
            println!("{}", runtime().block_on(case(path_of(path), *size, number(shards), number(mib))));
        }
        ["--latency", path] => println!("{}", runtime().block_on(latency(path_of(path)))),
        words if words.contains(&"--rows") => rows(words.contains(&"--quick")),
        // `cargo test --benches` and `cargo bench` alone: nothing that takes long.
        _ => println!("{}", runtime().block_on(case(Path::Poll, SIZES[1], 1, 8))),
    }
}

/// All cases, each as a process of its own; the ways of one size and shard count take turns.
fn rows(quick: bool) {
    let (mib, pairs) = if quick { (16, 2) } else { (256, 10) };
    let shard_counts: &[usize] = if quick { &[1, 64] } else { &[1, 8, 64] };
    let latencies: Vec<Value> =
        PATHS.iter().map(|(name, _)| run(&["--latency", name].map(str::to_owned))).collect();
    for (size, ..) in SIZES {
        for &shards in shard_counts {
            let args = |path: &str, mib: usize| {
                ["--case", path, size, &shards.to_string(), &mib.to_string()].map(str::to_owned)
            };
            let mut turns = vec![Vec::new(); PATHS.len()];
            for turn in 0..pairs {
                // Forth and back, so that nobody always comes first.
                let mut order: Vec<usize> = (0..PATHS.len()).collect();
                if turn % 2 == 1 {
                    order.reverse();
                }
                for which in order {
                    turns[which].push(run(&args(PATHS[which].0, mib)));
                }
            }
            let cpu = |which: usize| -> Vec<f64> {
                turns[which].iter().map(|row| number(row, "cpu_seconds")).collect()
            };
            // Repeatable to a part in a thousand, so once is enough, and one shard: more only repeat it.
            let counted =
                |name: &str| (shards == 1).then(|| instructions(&args, name, COUNTED_MIB)).flatten();
            let instructions: Vec<Option<f64>> = PATHS.iter().map(|(name, _)| counted(name)).collect();
            for (which, (name, _)) in PATHS.iter().enumerate() {
                let best = &turns[which][index_of_least(&cpu(which))];
                let (bytes, records) = (number(best, "bytes"), number(best, "records"));
                let ratios: Vec<f64> = cpu(which).iter().zip(cpu(0)).map(|(own, sdk)| own / sdk).collect();
                let mut row = json!({
                    "name": format!("{name}_{size}_{shards}"),
                    "mb_per_s": bytes / number(best, "seconds") / 1e6,
                    "records_per_s": records / number(best, "seconds"),
                    "cpu_s_per_gib": number(best, "cpu_seconds") / bytes * 1024.0 * MIB as f64,
                    "peak_mib": number(best, "peak_mib"),
                    "p50_ms": latencies[which]["p50_ms"],
                    "p99_ms": latencies[which]["p99_ms"],
                    "instructions_per_record": instructions[which],
                    "ratio": null,
                    "instructions_ratio": null,
                    "against": null,
                });
                if which > 0 {
                    row["ratio"] = median(ratios).into();
                    row["instructions_ratio"] =
                        instructions[which].zip(instructions[0]).map(|(own, sdk)| own / sdk).into();
                    row["against"] = format!("sdk_{size}_{shards}").into();
                }
                println!("{row}");
            }
        }
    }
}

/// Instructions per record: of a run less those of one half as long, so that start-up does not count.
fn instructions(args: &dyn Fn(&str, usize) -> [String; 5], name: &str, mib: usize) -> Option<f64> {
    let count = |mib: usize| {
        let (line, count) = measure::counted_child(&args(name, mib))?;
        let row: Value = serde_json::from_str(&line).ok()?;
        Some((count, number(&row, "records")))
    };
    let ((long, records), (short, fewer)) = (count(mib)?, count(mib / 2)?);
    (records > fewer).then(|| (long - short) / (records - fewer))
}

fn run(args: &[String]) -> Value {
    serde_json::from_str(&measure::child(args)).expect("a case prints a line")
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().expect("a number of the row")
}

fn index_of_least(values: &[f64]) -> usize {
    (0..values.len()).min_by(|a, b| values[*a].total_cmp(&values[*b])).expect("there are turns")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
