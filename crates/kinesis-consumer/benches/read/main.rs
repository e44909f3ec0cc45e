//! Polling and enhanced fan-out against plain loops over the SDK, each in a process of its own.
//!
//! - `cargo bench -p kinesis-consumer --bench read -- --rows [--quick]` prints one JSON line per case;
//!   `cargo xtask bench read` also writes docs/benchmarks/read-paths.md.
//!
//! The service's answers are always the same, given in this process, and time is virtual: the five reads a second cost
//! no time, and what is measured is what reading costs. Latencies come from the embedded Kinesis with a writer.
#![allow(missing_docs, clippy::print_stdout, reason = "a benchmark speaks to its caller")]

mod canned;
mod cases;
mod measure;
mod rates;
mod rows;

use cases::{PATHS, Path, SIZES};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let path = |name: &str| PATHS.iter().find(|path| path.0 == name).map(|path| path.1);
    let size = |name: &str| *SIZES.iter().find(|size| size.0 == name).expect("a known size");
    let count = |text: &str| text.parse::<u32>().expect("a number");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    match words.as_slice() {
        ["--case", way, bytes, shards, mib] => {
            let way = path(way).expect("a known path");
            let case = cases::case(way, size(bytes), count(shards) as usize, count(mib) as usize);
            println!("{}", runtime().block_on(case));
        }
        ["--rate", way, number, share] => {
            let arriving = rates::RATES[count(number) as usize];
            println!("{}", runtime().block_on(rates::case(path(way), arriving, count(share).into())));
        }
        words if words.contains(&"--rows") => rows::print(words.contains(&"--quick")),
        // `cargo test --benches` and `cargo bench` alone: nothing that takes long.
        _ => {
            for way in [Path::Poll, Path::Efo] {
                println!("{}", runtime().block_on(cases::case(way, size("1kb"), 1, 8)));
            }
        }
    }
}
