//! One run: hours of storm, each with a calm at its end in which everything has to come right.

use std::time::Duration;

use allocation_counter::measure;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::fleet::{Fleet, WORKERS};
use crate::service::{STREAM, Stream};
use crate::storm::Storm;
use crate::{Options, Source};

/// How often the run looks after everything.
const TICK: Duration = Duration::from_millis(500);

/// How far apart faults of the service are, on average.
const FAULT_EVERY: Duration = Duration::from_secs(12);

/// How many splits and merges there are in a storm, on average.
const RESHARDS: u32 = 3;

/// How many crashes, cut-offs and stops of workers there are in a storm, on average.
const DISTURBANCES: u32 = 13;

const TRIM_EVERY: Duration = Duration::from_secs(5 * 60);

/// The hours whose memory and tasks are judged: those before fill caches, logs and buffers.
const WARM_UP: usize = 2;

/// By how much the live memory may be higher in the later half of the hours than in the earlier one.
const SLACK_BYTES: i64 = 512 * 1024;

/// What may be left of a run when everything of it is gone: what libraries keep for the life of a process.
const LEFT_BYTES: i64 = 256 * 1024;

/// What is alive at the end of an hour's calm.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Without the records that the service holds.
    live_bytes: i64,
    /// The records that the service holds.
    stored_bytes: i64,
    tasks: usize,
    open_shards: usize,
    listed_shards: usize,
}

/// One run of one source.
struct Run<'a> {
    options: &'a Options,
    stream: Stream,
    storm: Storm,
    fleet: Fleet,
    random: fastrand::Rng,
    next: Next,
}

/// When things are due.
struct Next {
    fault: Instant,
    disturbance: Instant,
    reshard: Instant,
    trim: Instant,
}

/// Runs the hours; `line` is told of each. What came of it.
pub(crate) fn run(options: &Options, source: Source, mut line: impl FnMut(&str)) -> Value {
    let begun = Started::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut told = 0;
    let mut ended = json!({});
    let whole = measure(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let mut run = None;
        let mut live = measure(|| run = Some(runtime.block_on(Run::new(options, source)))).bytes_current;
        let mut run = run.expect("it was just made");
        for hour in 1..=options.hours {
            let memory = measure(|| runtime.block_on(Box::pin(run.hour())));
            live += memory.bytes_current;
            let sample = run.sample(&runtime, live);
            line(&run.line(hour, &sample, memory.bytes_max, &begun));
            told += run.tell(told, &mut line);
            samples.push(sample);
        }
        runtime.block_on(Box::pin(run.finish()));
        let alive = runtime.metrics().num_alive_tasks();
        if alive > 0 {
            run.stream.ledger.violation(format!("{alive} tasks outlive their consumers"));
        }
        run.judge(&samples);
        run.tell(told, &mut line);
        ended = run.summary(source, &samples);
    });
    ended["left_bytes"] = json!(whole.bytes_current);
    ended["seconds"] = json!(begun.seconds());
    if whole.bytes_current > LEFT_BYTES {
        let count = ended["violations"].as_u64().unwrap_or_default() + 1;
        ended["violations"] = json!(count);
        line(&format!("violation: {} bytes are never freed", whole.bytes_current));
    }
    ended
}

impl<'a> Run<'a> {
    async fn new(options: &'a Options, source: Source) -> Self {
        let mut seeds = fastrand::Rng::with_seed(options.seed);
        let stream = Stream::new(options.shards, seeds.u64(..)).await;
        let storm = Storm::new(source, stream.kinesis.clone(), seeds.u64(..));
        let ledger = std::sync::Arc::clone(&stream.ledger);
        let fleet = Fleet::new(source, stream.kinesis.clone(), ledger, seeds.u64(..));
        let now = Instant::now();
        let next = Next { fault: now, disturbance: now, reshard: now, trim: now };
        Self { options, stream, storm, fleet, random: seeds.fork(), next }
    }

    /// An hour of virtual life.
    async fn hour(&mut self) {
        let begun = Instant::now();
        self.fleet.storm.store(true, std::sync::atomic::Ordering::Relaxed);
        self.next.fault = begun + self.about(FAULT_EVERY);
        self.next.disturbance = begun + self.about(self.options.storm / DISTURBANCES);
        self.next.reshard = begun + self.about(self.options.storm / RESHARDS);
        while begun.elapsed() < self.options.storm {
            self.tick(true).await;
        }
        self.fleet.storm.store(false, std::sync::atomic::Ordering::Relaxed);
        self.storm.calm();
        self.fleet.calm(Instant::now());
        let written = self.stream.ledger.written();
        let calm = Instant::now();
        while calm.elapsed() < self.options.calm {
            self.tick(false).await;
        }
        self.expect(&written, "in the calm");
        let live = self.stream.kinesis.subscriptions(STREAM).map_or(0, |views| views.len());
        let open = self.stream.open().len();
        if live > open {
            self.stream.ledger.violation(format!("{live} subscriptions for {open} shards"));
        }
    }

    async fn tick(&mut self, storms: bool) {
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        self.stream.write();
        self.fleet.tend(now);
        self.storm.tend(now);
        if self.next.trim <= now {
            self.next.trim = now + TRIM_EVERY;
            self.stream.trim(&self.fleet.store);
        }
        if !storms {
            return;
        }
        if self.next.fault <= now {
            self.next.fault = now + self.about(FAULT_EVERY);
            let open = self.stream.open();
            self.storm.strike(now, &open);
        }
        if self.next.disturbance <= now {
            self.next.disturbance = now + self.about(self.options.storm / DISTURBANCES);
            self.fleet.disturb(now);
        }
        if self.next.reshard <= now {
            self.next.reshard = now + self.about(self.options.storm / RESHARDS);
            self.stream.reshard();
        }
    }

    fn about(&mut self, time: Duration) -> Duration {
        time.mul_f64(2.0 * self.random.f64())
    }

    /// Everything that was written has to be delivered.
    fn expect(&self, written: &[u64], when: &str) {
        for channel in self.stream.ledger.behind(written) {
            self.stream.ledger.violation(format!("records of key {channel} were not delivered {when}"));
        }
    }

    /// The end: everything is delivered and everybody stops.
    async fn finish(&mut self) {
        let written = self.stream.ledger.written();
        let begun = Instant::now();
        while begun.elapsed() < self.options.calm && !self.stream.ledger.behind(&written).is_empty() {
            tokio::time::sleep(TICK).await;
        }
        self.expect(&written, "at the end");
        self.fleet.close().await;
        // What was aborted or dropped goes at its next turn.
        tokio::time::sleep(TICK).await;
        let live = self.stream.kinesis.subscriptions(STREAM).map_or(0, |views| views.len());
        if live > 0 {
            self.stream.ledger.violation(format!("{live} subscriptions outlive their consumers"));
        }
    }

    fn sample(&self, runtime: &Runtime, live_bytes: i64) -> Sample {
        let stored_bytes = i64::try_from(self.stream.kinesis.stored_bytes()).unwrap_or(i64::MAX);
        Sample {
            live_bytes: live_bytes - stored_bytes,
            stored_bytes,
            tasks: runtime.metrics().num_alive_tasks(),
            open_shards: self.stream.open().len(),
            listed_shards: self.stream.listed(),
        }
    }

    /// Memory and tasks of the later hours against those of the earlier ones.
    fn judge(&self, samples: &[Sample]) {
        let Some(judged) = samples.get(WARM_UP..).filter(|judged| judged.len() >= 4) else { return };
        let (earlier, later) = judged.split_at(judged.len() / 2);
        let most = |of: &[Sample], what: fn(&Sample) -> i64| of.iter().map(what).max().unwrap_or_default();
        let bytes = |sample: &Sample| sample.live_bytes;
        let (before, after) = (most(earlier, bytes), most(later, bytes));
        if after > before + SLACK_BYTES {
            self.stream.ledger.violation(format!("the live memory grew from {before} to {after} bytes"));
        }
        // There are some for each shard.
        let per_shard = |sample: &Sample| (1_000 * sample.tasks / sample.open_shards.max(1)) as i64;
        let (before, after) = (most(earlier, per_shard), most(later, per_shard));
        if after > before + before / 10 {
            self.stream.ledger.violation(format!("the tasks grew from {before} to {after} per 1000 shards"));
        }
    }

    fn line(&self, hour: u32, sample: &Sample, peak: u64, begun: &Started) -> String {
        let totals = self.stream.ledger.totals();
        let happened = self.fleet.happened;
        format!(
            "hour {hour}: {} records, {} repeated, {} faults, {} reshards, {} crashes, {} cut-offs, {} stops, \
             {} shards ({} listed), live {:.1} MiB (+{:.1} at most), stored {:.1} MiB, RSS {:.0} MiB, {} tasks, {} violations, {:.0} s",
            totals.delivered,
            totals.repeated,
            self.storm.faults,
            self.stream.reshards,
            happened.crashes,
            happened.cut_offs,
            happened.stops,
            sample.open_shards,
            sample.listed_shards,
            mebibytes(sample.live_bytes),
            mebibytes(i64::try_from(peak).unwrap_or(i64::MAX)),
            mebibytes(sample.stored_bytes),
            resident_mebibytes().unwrap_or_default(),
            sample.tasks,
            totals.violations,
            begun.seconds(),
        )
    }

    /// Tells the violations behind the first `told`; how many there are.
    fn tell(&self, told: usize, line: &mut impl FnMut(&str)) -> usize {
        let violations = self.stream.ledger.violations().split_off(told);
        violations.iter().for_each(|violation| line(&format!("violation: {violation}")));
        violations.len()
    }

    fn summary(&self, source: Source, samples: &[Sample]) -> Value {
        let totals = self.stream.ledger.totals();
        let happened = self.fleet.happened;
        let live: Vec<i64> = samples.iter().map(|sample| sample.live_bytes).collect();
        let stored: Vec<i64> = samples.iter().map(|sample| sample.stored_bytes).collect();
        let tasks: Vec<usize> = samples.iter().map(|sample| sample.tasks).collect();
        json!({
            "source": source.name(),
            "hours": self.options.hours,
            "shards": self.options.shards,
            "workers": WORKERS,
            "seed": self.options.seed,
            "written": totals.written,
            "delivered": totals.delivered,
            "lost": totals.written - totals.delivered,
            "repeated": totals.repeated,
            "faults": self.storm.faults,
            "reshards": self.stream.reshards,
            "crashes": happened.crashes,
            "cut_offs": happened.cut_offs,
            "stops": happened.stops,
            "refused_starts": self.fleet.refused_starts,
            "live_bytes": live,
            "stored_bytes": stored,
            "tasks": tasks,
            "violations": totals.violations,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn mebibytes(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The resident memory of this process, where the system tells it.
fn resident_mebibytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kibibytes| kibibytes / 1024.0)
}

/// Real time since a beginning.
struct Started(std::time::Instant);

impl Started {
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn seconds(&self) -> f64 {
        (self.0.elapsed().as_secs_f64() * 10.0).round() / 10.0
    }
}
