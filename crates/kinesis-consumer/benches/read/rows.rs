//! All cases, each as a process of its own.

use std::iter;

use serde_json::{Value, json};

use crate::cases::{PATHS, SIZES};
use crate::{measure, rates};

const GIB: f64 = 1_073_741_824.0;

/// How much is read to count instructions; valgrind makes a program many times slower.
const COUNTED_MIB: usize = 8;

/// How much is measured.
struct Effort {
    mib: usize,
    turns: usize,
    shards: &'static [usize],
    /// Records are written for so many parts of the time.
    share: u64,
}

const FULL: Effort = Effort { mib: 256, turns: 10, shards: &[1, 8, 64], share: 1 };
const QUICK: Effort = Effort { mib: 16, turns: 2, shards: &[1, 64], share: 10 };

pub(crate) fn print(quick: bool) {
    let effort = if quick { &QUICK } else { &FULL };
    for (size, ..) in SIZES {
        for &shards in effort.shards {
            costs(size, shards, effort);
        }
    }
    for rate in rates::RATES {
        for name in rates::names() {
            println!("{}", arriving(name, rate, effort));
        }
    }
}

/// The rows of one size and number of shards, whose ways take turns.
fn costs(size: &str, shards: usize, effort: &Effort) {
    let args = |path: &str, mib: usize| {
        ["--case", path, size, &shards.to_string(), &mib.to_string()].map(str::to_owned)
    };
    let mut turns = vec![Vec::new(); PATHS.len()];
    for turn in 0..effort.turns {
        // Forth and back, so that nobody always comes first.
        let mut order: Vec<usize> = (0..PATHS.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for which in order {
            turns[which].push(run(&args(PATHS[which].0, effort.mib)));
        }
    }
    // Repeatable to a part in a thousand, so once is enough, and one shard: more only repeat it.
    let counted = |name: &str| (shards == 1).then(|| instructions(&args, name)).flatten();
    let counts: Vec<Option<f64>> = PATHS.iter().map(|(name, ..)| counted(name)).collect();
    for (which, (name, _, against)) in PATHS.iter().enumerate() {
        let mut row = row(&format!("{name}_{size}_{shards}"), &turns[which]);
        row["instructions_per_record"] = counts[which].into();
        if let Some(against) = against {
            let plain = PATHS.iter().position(|path| path.0 == *against).expect("a known path");
            let ratio =
                |(own, sdk): (&Value, &Value)| number(own, "cpu_seconds") / number(sdk, "cpu_seconds");
            row["ratio"] = median(iter::zip(&turns[which], &turns[plain]).map(ratio).collect()).into();
            row["instructions_ratio"] = counts[which].zip(counts[plain]).map(|(own, sdk)| own / sdk).into();
            row["against"] = format!("{against}_{size}_{shards}").into();
        }
        println!("{row}");
    }
}

/// The row of one offered rate.
fn arriving(name: &str, rate: u64, effort: &Effort) -> Value {
    let done = run(&["--rate", name, &rate.to_string(), &effort.share.to_string()].map(str::to_owned));
    let mut row = row(&format!("{name}_rate_{rate}"), std::slice::from_ref(&done));
    row["offered_records_per_s"] = rate.into();
    row["p50_ms"] = done["p50_ms"].clone();
    row["p99_ms"] = done["p99_ms"].clone();
    row
}

/// The figures of the turn that took the least CPU time.
fn row(name: &str, turns: &[Value]) -> Value {
    let cpu = |turn: &Value| number(turn, "cpu_seconds");
    let best = turns.iter().min_by(|a, b| cpu(a).total_cmp(&cpu(b))).expect("there are turns");
    let (bytes, seconds) = (number(best, "bytes"), number(best, "seconds"));
    json!({
        "name": name,
        "mb_per_s": bytes / seconds / 1e6,
        "records_per_s": number(best, "records") / seconds,
        "cpu_s_per_gib": cpu(best) / bytes * GIB,
        "peak_mib": number(best, "peak_mib"),
        "p50_ms": null,
        "p99_ms": null,
        "instructions_per_record": null,
        "ratio": null,
        "instructions_ratio": null,
        "against": null,
    })
}

/// Instructions per record: of a run less those of one half as long, so that start-up does not count.
fn instructions(args: &dyn Fn(&str, usize) -> [String; 5], name: &str) -> Option<f64> {
    let count = |mib: usize| {
        let (line, count) = measure::counted_child(&args(name, mib))?;
        let row: Value = serde_json::from_str(&line).ok()?;
        Some((count, number(&row, "records")))
    };
    let ((long, records), (short, fewer)) = (count(COUNTED_MIB)?, count(COUNTED_MIB / 2)?);
    (records > fewer).then(|| (long - short) / (records - fewer))
}

fn run(args: &[String]) -> Value {
    serde_json::from_str(&measure::child(args)).expect("a case prints a line")
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().expect("a number of the row")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
