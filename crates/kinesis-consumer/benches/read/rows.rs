//! All cases, each as a process of its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cases::{PATHS, SIZES};
use crate::rates::{Arriving, RATES};
use crate::{measure, rates};

const GIB: f64 = 1_073_741_824.0;

/// How much is read to count instructions; valgrind makes a program many times slower.
const COUNTED_MIB: usize = 8;

/// The same of each of [`SIZES`] with many shards, which read a few events each at the least. Pages are much larger than
/// events, so there only the subscriptions are counted.
const COUNTED_MIB_OF_MANY: [usize; SIZES.len()] = [32, 256, 256];

/// How much is measured.
struct Effort {
    /// How much is read in a turn, of each of [`SIZES`]: about as long for all.
    mib: [usize; SIZES.len()],
    turns: usize,
    shards: &'static [usize],
    /// With so many shards instructions are counted besides one shard.
    counted: Option<usize>,
    /// Records are written for so many parts of the time.
    share: u64,
}

const FULL: Effort =
    Effort { mib: [192, 512, 768], turns: 10, shards: &[1, 8, 64], counted: Some(64), share: 1 };
const QUICK: Effort = Effort { mib: [16, 16, 16], turns: 2, shards: &[1, 64], counted: None, share: 10 };

pub(crate) fn print(quick: bool) {
    let effort = if quick { &QUICK } else { &FULL };
    for which in 0..SIZES.len() {
        for &shards in effort.shards {
            costs(which, shards, effort);
        }
    }
    for (number, what) in RATES.iter().enumerate() {
        for name in rates::names() {
            println!("{}", arriving(name, number, what, effort));
        }
    }
}

/// The rows of one size and number of shards.
fn costs(which: usize, shards: usize, effort: &Effort) {
    let (size, mib) = (SIZES[which].0, effort.mib[which]);
    let args = |path: &str, mib: usize| {
        ["--case", path, size, &shards.to_string(), &mib.to_string()].map(str::to_owned)
    };
    let mut done: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for turn in 0..effort.turns {
        for (name, _, against) in PATHS {
            let Some(plain) = against else { continue };
            // One right after the other, and neither always the first.
            let mut pair = [name, plain];
            pair.rotate_left(turn % 2);
            let [first, second] = pair.map(|name| run(&args(name, mib)));
            let (own, sdk) = if turn % 2 == 0 { (first, second) } else { (second, first) };
            ratios.entry(name).or_default().push(number(&own, "cpu_seconds") / number(&sdk, "cpu_seconds"));
            done.entry(name).or_default().push(own);
            done.entry(plain).or_default().push(sdk);
        }
    }
    // Repeatable to a part in a thousand, so once is enough.
    let counted = |name: &str| match shards {
        1 => instructions(&args, name, COUNTED_MIB),
        _ if effort.counted == Some(shards) && name.ends_with("efo") => {
            instructions(&args, name, COUNTED_MIB_OF_MANY[which])
        }
        _ => None,
    };
    let counts: BTreeMap<&str, Option<f64>> = PATHS.iter().map(|(name, ..)| (*name, counted(name))).collect();
    for (name, _, against) in PATHS {
        let mut row = row(&format!("{name}_{size}_{shards}"), &done[name]);
        row["instructions_per_record"] = counts[name].into();
        if let Some(plain) = against {
            row["ratio"] = median(ratios[name].clone()).into();
            row["instructions_ratio"] = counts[name].zip(counts[plain]).map(|(own, sdk)| own / sdk).into();
            row["against"] = format!("{plain}_{size}_{shards}").into();
        }
        println!("{row}");
    }
}

/// The row of records that arrive.
fn arriving(name: &str, which: usize, what: &Arriving, effort: &Effort) -> Value {
    let done = run(&["--rate", name, &which.to_string(), &effort.share.to_string()].map(str::to_owned));
    let is_usual = what.bytes == RATES[0].bytes && what.shards == RATES[0].shards;
    let mut row = row(
        &match is_usual {
            true => format!("{name}_rate_{}", what.rate),
            false => format!("{name}_{}b_{}_at_{}", what.bytes, what.shards, what.rate),
        },
        std::slice::from_ref(&done),
    );
    row["offered_records_per_s"] = what.rate.into();
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
