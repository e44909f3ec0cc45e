//! Runs cases in turns and prints one JSON line each.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Something to measure.
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    /// The bytes and records that one run handles.
    pub(crate) bytes: usize,
    pub(crate) records: usize,
    /// The case that it is compared with.
    pub(crate) against: Option<String>,
    pub(crate) run: Box<dyn FnMut() -> usize + 'a>,
}

/// How long one case runs before it is the next one's turn.
const TURN: Duration = Duration::from_millis(2);

/// Measures all cases in turns, and prints the best turn of each.
pub(crate) fn run(mut cases: Vec<Case<'_>>, quick: bool) {
    let turns = if quick { 60 } else { 600 };
    let repeats: Vec<u32> = cases.iter_mut().map(|case| repeats(&mut case.run)).collect();
    let mut best = vec![f64::INFINITY; cases.len()];
    for _ in 0..turns {
        for ((case, repeats), best) in cases.iter_mut().zip(&repeats).zip(&mut best) {
            let start = Instant::now();
            for _ in 0..*repeats {
                black_box((case.run)());
            }
            *best = best.min(start.elapsed().as_secs_f64() / f64::from(*repeats));
        }
    }
    for (case, seconds) in cases.iter().zip(&best) {
        let mb = case.bytes as f64 / seconds / 1e6;
        let records = case.records as f64 / seconds;
        let base = case.against.as_ref().and_then(|name| cases.iter().position(|other| other.name == *name));
        let (ratio, against) = match (base, &case.against) {
            (Some(base), Some(name)) => {
                let base_mb = cases[base].bytes as f64 / best[base] / 1e6;
                (format!("{:.3}", mb / base_mb), format!("\"{name}\""))
            }
            _ => ("null".to_owned(), "null".to_owned()),
        };
        println!(
            "{{\"name\":\"{}\",\"mb_per_s\":{mb:.0},\"records_per_s\":{records:.0},\"ratio\":{ratio},\"against\":{against}}}",
            case.name
        );
    }
}

/// How often a case runs in one turn.
fn repeats(run: &mut dyn FnMut() -> usize) -> u32 {
    let start = Instant::now();
    let mut count: u32 = 0;
    while start.elapsed() < TURN {
        black_box(run());
        count += 1;
    }
    count
}
