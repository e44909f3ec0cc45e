//! The format against other implementations, both ways: what we write they read, what they write we read.
//!
//! Run by `cargo xtask peers`, which installs them; by hand with `PEERS_PYTHON`, a Python interpreter that has
//! `aws-kinesis-agg`, `six` and `aiokpl`, and `PEERS_NODE_MODULES`, a folder that has `aws-kinesis-agg`.
//!
//! Known bugs of the peers, which these tests expect, so that a repaired peer shows:
//!
//! - Python's and Node's `aws-kinesis-agg` give the first explicit hash key of an aggregate to every record that has
//!   none.
//! - Node's writes its key tables in the order of `Object.keys`, which puts integer-like keys (`0` to 2^32 - 2) first:
//!   records get each other's keys, and no reader can tell.
//! - Python's does not declare that it needs `six`, and counts repeated keys again and again, so it stops early.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kinesis_kpl::{Aggregate, Aggregator, AggregatorConfig, Lone, MAX_BYTES_LIMIT, RecordRef};
use serde_json::{Value, json};

/// Batches for each peer and way.
const BATCHES: u64 = 10_000;

/// Partition key, explicit hash key, data.
type Plain = (String, Option<String>, Vec<u8>);

/// S-119, S-129: 10,000 random batches to and from Python's aws-kinesis-agg.
#[test]
#[ignore = "needs peers"]
fn python_aws_kinesis_agg_reads_ours_and_we_read_its() {
    let mut peer = Peer::python("aws-kinesis-agg");
    for_each_batch(|batch| {
        let answer = peer.ask(batch);
        assert_eq!(answer.records, with_first_hash_key_for_all(batch));
        assert_eq!(answer.data, pack(batch), "the same bytes");
    });
}

/// S-119, S-129: 10,000 random batches to and from aiokpl.
#[test]
#[ignore = "needs peers"]
fn python_aiokpl_reads_ours_and_we_read_its() {
    let mut peer = Peer::python("aiokpl");
    for_each_batch(|batch| {
        let answer = peer.ask(batch);
        assert_eq!(answer.records, *batch);
        match &batch[..] {
            [lone] => assert_eq!(answer.data, lone.2, "a lone record without a frame, as ours by default"),
            _ => assert_eq!(answer.data, pack(batch), "the same bytes"),
        }
    });
}

/// S-119, S-129: 10,000 random batches to and from Node's aws-kinesis-agg.
#[test]
#[ignore = "needs peers"]
fn node_aws_kinesis_agg_reads_ours_and_we_read_its() {
    let mut peer = Peer::node();
    let mut swapped = 0;
    for_each_batch(|batch| {
        let answer = peer.ask(batch);
        assert_eq!(answer.records, with_first_hash_key_for_all(batch));
        let expected = with_tables_in_node_order(batch);
        assert_eq!(unpack(answer.data.clone()), expected);
        if expected == *batch {
            assert_eq!(answer.data, pack(batch), "the same bytes");
        } else {
            swapped += 1;
        }
    });
    assert!(swapped > 100, "Node does not swap keys any more? {swapped}");
}

struct Answer {
    /// What the peer read of our bytes.
    records: Vec<Plain>,
    /// What it wrote.
    data: Bytes,
}

struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    fn python(package: &str) -> Self {
        Self::start(Command::new(needed("PEERS_PYTHON")).arg(script("kpl.py")).arg(package))
    }

    fn node() -> Self {
        needed("PEERS_NODE_MODULES");
        Self::start(Command::new("node").arg(script("kpl.js")))
    }

    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn ask(&mut self, batch: &[Plain]) -> Answer {
        let records: Value =
            batch.iter().map(|(key, hash, data)| json!([key, hash, STANDARD.encode(data)])).collect();
        let case = json!({"data": STANDARD.encode(pack(batch)), "records": records});
        writeln!(self.stdin.as_mut().unwrap(), "{case}").expect("the peer takes a case");
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).expect("the peer answers; its errors are above");
        let decode = |text: &Value| STANDARD.decode(text.as_str().unwrap()).unwrap();
        let record =
            |r: &Value| (r[0].as_str().unwrap().to_owned(), r[1].as_str().map(str::to_owned), decode(&r[2]));
        Answer {
            records: answer["records"].as_array().unwrap().iter().map(record).collect(),
            data: decode(&answer["data"]).into(),
        }
    }
}

impl Drop for Peer {
    /// The peer ends with its input.
    fn drop(&mut self) {
        self.stdin.take();
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn needed(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    value.unwrap_or_else(|| panic!("{variable} is not set: `cargo xtask peers` sets it")).into()
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

fn pack(batch: &[Plain]) -> Bytes {
    let config = AggregatorConfig::default().max_bytes(MAX_BYTES_LIMIT).lone(Lone::Framed);
    let mut aggregator = Aggregator::new(config).unwrap();
    for (key, hash, data) in batch {
        let hash = hash.as_ref().map(|text| text.parse().unwrap());
        aggregator.try_push(RecordRef::new(key, data).explicit_hash_key(hash)).unwrap();
    }
    aggregator.finish().unwrap().into_data()
}

fn unpack(data: Bytes) -> Vec<Plain> {
    let aggregate = Aggregate::parse(data).expect("a good aggregate");
    let record = |record: kinesis_kpl::RecordView<'_>| {
        let hash = record.explicit_hash_key().map(str::to_owned);
        (record.partition_key().to_owned(), hash, record.data().to_vec())
    };
    aggregate.iter().map(record).collect()
}

/// What a reader with the first of the known bugs makes of a batch.
fn with_first_hash_key_for_all(batch: &[Plain]) -> Vec<Plain> {
    let first = batch.iter().find_map(|record| record.1.clone());
    batch
        .iter()
        .map(|(key, hash, data)| (key.clone(), hash.clone().or(first.clone()), data.clone()))
        .collect()
}

/// What a writer with the second of the known bugs makes of a batch: indices count first uses, tables are in the
/// order of JavaScript's properties.
fn with_tables_in_node_order(batch: &[Plain]) -> Vec<Plain> {
    let distinct = |texts: &mut dyn Iterator<Item = &String>| {
        let mut table: Vec<String> = Vec::new();
        for text in texts {
            if !table.contains(text) {
                table.push(text.clone());
            }
        }
        table
    };
    let in_order_of_node = |table: &[String]| {
        let mut sorted = table.to_vec();
        // Stable: what is no array index stays in order of insertion.
        sorted.sort_by_key(|text| array_index(text).map_or((1, 0), |index| (0, index)));
        sorted
    };
    let keys = distinct(&mut batch.iter().map(|record| &record.0));
    let hashes = distinct(&mut batch.iter().filter_map(|record| record.1.as_ref()));
    let (node_keys, node_hashes) = (in_order_of_node(&keys), in_order_of_node(&hashes));
    let find = |table: &[String], text: &String| table.iter().position(|entry| entry == text).unwrap();
    let record = |(key, hash, data): &Plain| {
        let hash = hash.as_ref().map(|hash| node_hashes[find(&hashes, hash)].clone());
        (node_keys[find(&keys, key)].clone(), hash, data.clone())
    };
    batch.iter().map(record).collect()
}

fn array_index(text: &str) -> Option<u32> {
    let index: u32 = text.parse().ok()?;
    (index < u32::MAX && index.to_string() == text).then_some(index)
}

fn for_each_batch(mut check: impl FnMut(&Vec<Plain>)) {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for number in 0..BATCHES {
        let len = if number % 500 == 0 { 300 } else { 1 + random.below(12) };
        check(&(0..len).map(|_| random.record()).collect());
    }
}

/// A xorshift generator: the same batches in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn record(&mut self) -> Plain {
        let key = match self.below(20) {
            0 => "k".repeat(256),
            1 => "ключ-注文-🙂".to_owned(),
            2 => format!("{}", self.below(300)),
            3 => format!("0{}", self.below(300)),
            4..8 => format!("unique-{}", self.next()),
            _ => format!("sensor-{}", self.below(10)),
        };
        let hash = match self.below(10) {
            0 => Some(u128::MAX),
            1 => Some(u128::from(self.below(5))),
            2 => Some(u128::from(self.next()) << 64 | u128::from(self.next())),
            _ => None,
        };
        let len = match self.below(20) {
            0 => 0,
            1 => self.below(20_000),
            _ => self.below(150),
        };
        (key, hash.map(|hash| hash.to_string()), (0..len).map(|_| self.next() as u8).collect())
    }
}
