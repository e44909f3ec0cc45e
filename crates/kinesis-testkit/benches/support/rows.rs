//! Runs a case in turns and prints its row.

use std::fs;
use std::time::{Duration, Instant};

/// How long a turn lasts at least.
const TURN: Duration = Duration::from_millis(20);

/// How much is done for each row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    turns: u32,
}

impl Effort {
    /// `cargo bench` says `--bench`; without it this is a trial of whether everything works.
    pub(crate) fn from_arguments() -> Self {
        let given = |wanted: &str| std::env::args().any(|argument| argument == wanted);
        let turns = match (given("--bench"), given("--quick")) {
            (false, _) => 1,
            (true, true) => 15,
            (true, false) => 100,
        };
        Self { turns }
    }
}

/// Measures what handles so many records with so many bytes, and prints the fastest turn.
pub(crate) fn measure(name: &str, records: usize, bytes: usize, effort: Effort, mut run: impl FnMut()) {
    forget_peak();
    run();
    let mut best = f64::INFINITY;
    for _ in 0..effort.turns {
        let begun = Instant::now();
        let mut runs = 0;
        while begun.elapsed() < TURN {
            run();
            runs += 1;
        }
        best = best.min(begun.elapsed().as_secs_f64() / f64::from(runs));
    }
    let row = serde_json::json!({
        "name": name,
        "mb_per_s": (bytes as f64 / best / 1e6).round(),
        "records_per_s": (records as f64 / best).round(),
        "peak_mb": peak_mb(),
    });
    println!("{row}");
}

/// Lets the system count the peak of the memory anew, where it can (Linux).
fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that the process has held since then, in MB.
fn peak_mb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024 / 1_000_000)
}
