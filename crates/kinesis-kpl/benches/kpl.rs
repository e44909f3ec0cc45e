//! Speed of the format against plain MD5 of the same bytes.
//!
//! - `cargo bench -p kinesis-kpl` runs the cases with criterion.
//! - `cargo bench -p kinesis-kpl -- --rows [--quick]` runs them in turns, so that all see the same machine, and
//!   prints one JSON line per case: `name`, `mb_per_s`, `records_per_s`, `ratio`, `against`. A ratio compares the
//!   best rounds of both, taken in one run.
//!
//! Inputs: random payloads, 16 partition keys, no explicit hash keys; 480 records of 100 B in one aggregate of
//! 51 KB, and 870 records of 1 KB in one of 0.9 MB. MB are 10^6 bytes of the aggregate.
#![allow(missing_docs, clippy::print_stdout, reason = "a benchmark speaks to its caller")]

#[path = "support/rows.rs"]
mod rows;

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, Checksum, Deaggregated, Deaggregator, MAGIC, MAX_BYTES_LIMIT,
    RecordRef, md5 as own,
};
use md5::{Digest as _, Md5};
use rows::Case;

/// A case that handles sixteen aggregates in one run.
fn sixteen(case: Case<'_>) -> Case<'_> {
    Case { bytes: case.bytes * 16, records: case.records * 16, ..case }
}

/// One shape of input.
struct Shape {
    name: &'static str,
    keys: Vec<String>,
    payloads: Vec<Vec<u8>>,
    aggregate: Bytes,
}

impl Shape {
    fn new(name: &'static str, payload_len: usize, count: usize) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let keys: Vec<String> = (0..16).map(|_| format!("sensor-{:05}", random.next() % 100_000)).collect();
        let payloads: Vec<Vec<u8>> =
            (0..count).map(|_| (0..payload_len).map(|_| random.next() as u8).collect()).collect();
        let mut shape = Self { name, keys, payloads, aggregate: Bytes::new() };
        let mut aggregator = aggregator();
        shape.pack(&mut aggregator);
        shape.aggregate = aggregator.finish().expect("records were pushed").into_data();
        shape
    }

    fn pack(&self, aggregator: &mut Aggregator) {
        for (i, payload) in self.payloads.iter().enumerate() {
            let record = RecordRef::new(&self.keys[(i * 7) % self.keys.len()], payload);
            aggregator.try_push(record).expect("below every limit");
        }
    }

    fn body(&self) -> &[u8] {
        &self.aggregate[MAGIC.len()..self.aggregate.len() - 16]
    }

    fn case<'a>(&self, name: String, run: impl FnMut() -> usize + 'a) -> Case<'a> {
        let md5 = format!("md5_{}", self.name);
        Case {
            against: (name != md5).then_some(md5),
            name,
            bytes: self.aggregate.len(),
            records: self.payloads.len(),
            run: Box::new(run),
        }
    }

    /// Sixteen aggregates at a time, their digests side by side.
    fn batch_cases(&self) -> [Case<'_>; 2] {
        let bodies = vec![self.body(); 16];
        let digests = move || own::digest_many(&bodies).len();
        let records = || {
            let done = Deaggregator::new().deaggregate_many(vec![self.aggregate.clone(); 16]);
            let owned = done.into_iter().filter_map(|done| match done {
                Ok(Deaggregated::Records(aggregate)) => Some(aggregate.into_records()),
                _ => None,
            });
            owned.flatten().map(|record| black_box(record).data.len()).sum()
        };
        let with_lanes = if cfg!(feature = "simd") { "_simd" } else { "" };
        [
            sixteen(self.case(format!("md5_batch_{}{with_lanes}", self.name), digests)),
            sixteen(self.case(format!("deagg_owned_batch_{}{with_lanes}", self.name), records)),
        ]
    }

    fn cases(&self) -> Vec<Case<'_>> {
        let mut cases = vec![
            self.case(format!("md5_{}", self.name), || usize::from(Md5::digest(self.body())[0])),
            self.case(format!("md5_own_{}", self.name), || usize::from(own::digest(self.body())[0])),
        ];
        cases.extend(self.batch_cases());
        for (suffix, checksum) in [("", Checksum::Verify), ("_nocheck", Checksum::Skip)] {
            cases.push(self.case(format!("deagg_view_{}{suffix}", self.name), move || {
                let aggregate =
                    Aggregate::parse_with(&self.aggregate[..], checksum).expect("a good aggregate");
                aggregate
                    .iter()
                    .map(|r| black_box(r.data()).len() + black_box(r.partition_key_bytes()).len())
                    .sum()
            }));
            cases.push(self.case(format!("deagg_owned_{}{suffix}", self.name), move || {
                let aggregate =
                    Aggregate::parse_with(self.aggregate.clone(), checksum).expect("a good aggregate");
                aggregate.into_records().map(|record| black_box(record).data.len()).sum()
            }));
        }
        let mut aggregator = aggregator();
        cases.push(self.case(format!("aggregate_{}", self.name), move || {
            self.pack(&mut aggregator);
            aggregator.finish().expect("records were pushed").data().len()
        }));
        cases
    }
}

fn aggregator() -> Aggregator {
    Aggregator::new(AggregatorConfig::default().max_bytes(MAX_BYTES_LIMIT)).expect("a valid limit")
}

/// A xorshift generator: the same inputs in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn main() {
    let shapes = [Shape::new("100b", 100, 480), Shape::new("1kb", 1_024, 870)];
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--rows") {
        let quick = arguments.iter().any(|argument| argument == "--quick");
        for shape in &shapes {
            rows::run(shape.cases(), quick);
        }
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for shape in &shapes {
        for mut case in shape.cases() {
            let mut group = criterion.benchmark_group("kpl");
            group.throughput(Throughput::Bytes(case.bytes as u64));
            group.bench_function(&case.name, |bencher| bencher.iter(&mut case.run));
        }
    }
    criterion.final_summary();
}
