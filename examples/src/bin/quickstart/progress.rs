//! What is shown while the job runs: a bar on a terminal, quiet lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const BAR: &str = "{elapsed_precise} [{bar:32}] {pos}/{len} processed  {msg}";
/// Over what time the rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    window: (Instant, usize),
    rate: f64,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style)
        });
        Self { bar, window: (Instant::now(), 0), rate: 0.0 }
    }

    /// Says that something happened.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => println!("{text}"),
        }
    }

    /// Shows where the job stands. `holders` has the shards of each worker.
    pub(crate) fn show(
        &mut self,
        processed: usize,
        published: usize,
        holders: &BTreeMap<String, Vec<String>>,
    ) {
        let (since, before) = self.window;
        if since.elapsed() >= RATE_WINDOW {
            self.rate = (processed - before) as f64 / since.elapsed().as_secs_f64();
            self.window = (Instant::now(), processed);
        }
        let Some(bar) = &self.bar else { return };
        let held: Vec<String> =
            holders.iter().map(|(worker, shards)| format!("{worker}: {}", shards.join(" "))).collect();
        let lag = published.saturating_sub(processed);
        bar.set_position(processed as u64);
        bar.set_message(format!("{:.0} records/s  lag {lag}  {}", self.rate, held.join("  ")));
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
