//! Runs cases in turns, so that all see the same machine, and prints one JSON line each.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Something to measure.
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    /// The plain bytes that one run handles.
    pub(crate) bytes: usize,
    /// How many times smaller the compressed form is.
    pub(crate) shrink: f64,
    /// The case that it is compared with.
    pub(crate) against: Option<String>,
    pub(crate) run: Box<dyn FnMut() -> usize + 'a>,
}

/// How long one case runs before it is the next one's turn.
const TURN: Duration = Duration::from_millis(2);

/// Measures all cases in turns, and prints the best turn of each.
pub(crate) fn run(mut cases: Vec<Case<'_>>, quick: bool) {
    let turns = if quick { 40 } else { 400 };
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
        let base = case.against.as_ref().and_then(|name| cases.iter().position(|other| other.name == *name));
        let ratio = base.map(|base| best[base] / seconds);
        let row = serde_json::json!({
            "name": case.name,
            "mb_per_s": (case.bytes as f64 / seconds / 1e5).round() / 10.0,
            "records_per_s": (1.0 / seconds).round(),
            "ratio": ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0),
            "against": case.against,
            "shrink": (case.shrink * 100.0).round() / 100.0,
        });
        println!("{row}");
    }
}

/// How often a case runs in one turn.
fn repeats(run: &mut dyn FnMut() -> usize) -> u32 {
    // Once without the clock: contexts are made at the first use.
    black_box(run());
    let start = Instant::now();
    let mut count: u32 = 0;
    while start.elapsed() < TURN {
        black_box(run());
        count += 1;
    }
    count
}
