//! What happens to a fleet, drawn from a seed: a storm, and a calm in which everything must come right.

use std::time::Duration;

use kinesis_core::Timestamp;

use super::Run;
use super::faults::Faults;
use super::fleet::{Fleet, Settings};
use super::load::Loads;
use crate::LeaseConfig;
use crate::discovery::Start;
use crate::machine::simulates_kcl;

/// How long a calm may take until everything is right.
const CALM_LIMIT: Duration = Duration::from_secs(240);
/// For how long it must stay right.
const STABLE: Duration = Duration::from_secs(15);

/// How large a run is: most are small, so that there are many.
#[derive(Debug, Clone, Copy)]
struct Size {
    workers: usize,
    most_workers: usize,
    shards: u32,
    events: u32,
}

impl Size {
    fn draw(random: &mut fastrand::Rng) -> Self {
        match random.u32(0..1_000) {
            0..700 => {
                Self { workers: random.usize(1..4), most_workers: 4, shards: random.u32(1..7), events: 12 }
            }
            700..960 => {
                Self { workers: random.usize(1..6), most_workers: 8, shards: random.u32(4..17), events: 16 }
            }
            960..998 => {
                Self { workers: random.usize(3..9), most_workers: 16, shards: random.u32(16..65), events: 16 }
            }
            998 => Self { workers: 12, most_workers: 32, shards: random.u32(64..257), events: 10 },
            _ => Self { workers: 32, most_workers: 32, shards: 512, events: 3 },
        }
    }
}

fn faults(random: &mut fastrand::Rng) -> Faults {
    let latency = Duration::from_millis(if random.u32(0..8) == 0 { 900 } else { 40 });
    let few = Faults {
        lost_replies: 1,
        lost_calls: 1,
        late: 1,
        throttled: 1,
        glitches: 10,
        listings: 3,
        ..Faults::NONE
    };
    match random.u32(0..4) {
        // Nothing but crashes, stops and reshards.
        0 => Faults { poison: random.u32(0..20), ..Faults::NONE },
        1 => Faults { latency, deaf: 10, ..few },
        2 => Faults {
            lost_replies: 8,
            lost_calls: 8,
            late: 4,
            throttled: 5,
            deaf: 25,
            poison: 10,
            glitches: 40,
            listings: 15,
            latency,
        },
        _ => Faults {
            throttled: 40,
            lost_replies: 2,
            deaf: 10,
            glitches: 20,
            listings: 15,
            latency,
            ..Faults::NONE
        },
    }
}

fn settings(random: &mut fastrand::Rng) -> Settings {
    let hand_over = if random.u32(0..3) == 0 { 30 } else { 5 };
    let often = random.u32(0..3) == 0;
    let discovery = if often { random.u64(4..10) } else { random.u64(15..40) };
    let config = LeaseConfig::default()
        .hand_over_timeout(Duration::from_secs(hand_over))
        .discovery_interval(Duration::from_secs(discovery));
    // One run in eight has clocks that are far off: then two may believe at once, but nothing else may go wrong.
    let rates = if random.u32(0..8) == 0 { (0.7, 1.4) } else { (0.975, 1.025) };
    let anchor = Timestamp::from_millis(1_000);
    let start = match random.u32(0..4) {
        0 => Start::Latest { anchor },
        1 => Start::AtTimestamp { anchor },
        _ => Start::TrimHorizon,
    };
    Settings { config, faults: faults(random), rates, start }
}

/// Runs one seed from beginning to end, with all rows read that often.
pub(super) fn run(seed: u64, tracing: bool, full_look_interval: Option<Duration>) -> Run {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = Size::draw(&mut random);
    let seed = random.u64(..);
    let mut settings = settings(&mut random);
    settings.config.full_look_interval = full_look_interval;
    // Drawn apart, so that the other runs stay what they are.
    let mut apart = fastrand::Rng::with_seed(seed);
    let beats = apart.u32(0..3) == 0 && !simulates_kcl();
    settings.config.worker_heartbeat = beats;
    if beats && full_look_interval.is_none() && apart.u32(0..3) == 0 {
        settings.config.full_look_interval = Some(LeaseConfig::SPARSE_LOOK_INTERVAL);
    }
    // Workers whose clocks are far off measure different loads.
    let has_loads = settings.rates.0 > 0.9;
    let loads = if has_loads { Loads::draw(seed, &mut settings.config) } else { None };
    let mut fleet = Fleet::new(seed, size.shards, settings);
    fleet.loads = loads;
    fleet.trace = tracing.then(Vec::new);
    fleet.watch.gentle = fleet.settings.faults.are_none();
    let mut scenario = Scenario { random, apart, size, fleet };
    scenario.begin();
    scenario.storm();
    scenario.calm();
    let Fleet { watch, coverage, trace, .. } = scenario.fleet;
    Run { violation: watch.violation, coverage, trace: trace.unwrap_or_default() }
}

struct Scenario {
    random: fastrand::Rng,
    /// For what only runs with heartbeats of whole workers draw.
    apart: fastrand::Rng,
    size: Size,
    fleet: Fleet,
}

impl Scenario {
    fn begin(&mut self) {
        let (shards, gentle) = (self.size.shards, self.fleet.watch.gentle);
        self.fleet.note(|| format!("{shards} shards, gentle: {gentle}"));
        // Some streams have a past.
        for _ in 0..self.random.u32(0..3) {
            self.split_or_merge();
        }
        if matches!(self.fleet.settings.start, Start::Latest { .. }) {
            for shard in self.fleet.stream.shards.values_mut().filter(|shard| !shard.open) {
                shard.skipped = true;
            }
        }
        if matches!(self.fleet.settings.start, Start::Latest { .. }) && self.random.u32(0..3) == 0 {
            self.start_half_way();
        }
        for _ in 0..self.size.workers {
            self.fleet.add_worker();
            if self.random.bool() {
                self.wait(2_000);
            }
        }
        // Before the first leases nothing is known that a child could follow.
        while self.fleet.table.rows.is_empty() && self.goes_on() {
            self.wait(2_000);
        }
        self.fleet.run(Duration::from_secs(1));
        self.fleet.watch.storm = true;
    }

    /// The first worker crashes while it makes the leases, and the stream changes before anybody makes the others.
    fn start_half_way(&mut self) {
        self.fleet.half_start = true;
        self.fleet.add_worker();
        while self.fleet.half_start && self.goes_on() {
            self.wait(2_000);
        }
        for _ in 0..self.random.u32(0..4) {
            self.split_or_merge();
        }
    }

    fn goes_on(&self) -> bool {
        self.fleet.watch.violation.is_none()
    }

    fn wait(&mut self, longest: u64) {
        let length = Duration::from_millis(self.random.u64(1..longest));
        self.fleet.run(length);
    }

    fn any_worker(&mut self) -> Option<usize> {
        let workers = self.fleet.workers();
        self.random.choice(&workers).copied()
    }

    fn storm(&mut self) {
        for _ in 0..self.size.events {
            if !self.goes_on() {
                return;
            }
            let long = self.random.u32(0..4) == 0;
            self.wait(if long { 25_000 } else { 6_000 });
            self.doze();
            self.event();
        }
    }

    /// A worker is stopped while its next heartbeat is on its way.
    fn doze(&mut self) {
        let config = &self.fleet.settings.config;
        if !config.worker_heartbeat || self.fleet.watch.gentle || self.apart.u32(0..3) != 0 {
            return;
        }
        let workers = self.fleet.workers();
        let Some(worker) = self.apart.choice(&workers).copied() else { return };
        let reach = Duration::from_millis(self.apart.u64(100..10_000));
        let length = reach + Duration::from_millis(self.apart.u64(0..3_000));
        self.fleet.dozing = Some((worker, reach, length));
    }

    fn event(&mut self) {
        let gentle = self.fleet.watch.gentle;
        let Some(worker) = self.any_worker() else {
            self.fleet.add_worker();
            return;
        };
        let length = Duration::from_millis(self.random.u64(200..30_000));
        match self.random.u32(0..14) {
            0 => self.fleet.crash(worker),
            1 => self.fleet.stop(worker),
            2 | 3 if self.fleet.workers.len() < self.size.most_workers => {
                let limit = (self.random.u32(0..6) == 0).then(|| self.random.usize(1..4));
                self.fleet.add_limited_worker(limit);
            }
            4 if !gentle => self.fleet.pause(worker, length),
            5 if !gentle => self.fleet.cut(worker, length),
            6 => self.trim(),
            7 => {
                // A consumer that is behind: the shard's end comes late.
                self.split_or_merge();
                self.split_or_merge();
            }
            8..11 => self.split_or_merge(),
            11 | 12 => {
                let joins = self.fleet.workers.len() < self.size.most_workers;
                self.fleet.restless = Some(if joins { self.fleet.add_worker() } else { worker });
            }
            _ => {}
        }
    }

    fn split_or_merge(&mut self) {
        let open = self.fleet.stream.open();
        if self.fleet.stream.shards.len() > 600 {
            return;
        }
        let now = self.fleet.now;
        let left = Duration::from_millis(self.random.u64(0..20_000));
        let Some(shard) = self.random.choice(&open).copied() else { return };
        let other = self.random.choice(&open).copied().filter(|other| *other != shard);
        match other {
            Some(other) if self.random.bool() => {
                let more = Duration::from_millis(self.random.u64(0..20_000));
                self.fleet.note(|| format!("{shard} and {other} are merged"));
                self.fleet.stream.merge(shard, other, [left, more], now);
                self.fleet.coverage.merges += 1;
            }
            _ => {
                self.fleet.note(|| format!("{shard} is split"));
                self.fleet.stream.split(shard, left, now);
                self.fleet.coverage.splits += 1;
            }
        }
    }

    /// The records of a closed shard outlive their retention, now and then before anybody has read them.
    fn trim(&mut self) {
        let shards = &self.fleet.stream.shards;
        let is_old = |number: &u32| {
            let shard = &shards[number];
            let oldest = shard.parents.iter().all(|parent| shards[parent].trimmed || shards[parent].consumed);
            // A shard that no listing ever showed is one that nobody can know of.
            !shard.open && !shard.trimmed && oldest && self.fleet.has_row(*number)
        };
        let old: Vec<u32> = shards.keys().copied().filter(is_old).collect();
        let Some(number) = self.random.choice(&old).copied() else { return };
        self.fleet.note(|| format!("{number} outlives its retention"));
        self.fleet.stream.shards.entry(number).and_modify(|shard| shard.trimmed = true);
    }

    /// Nothing goes wrong any more: everything gets an owner, evenly, and then nothing moves.
    fn calm(&mut self) {
        self.fleet.note(|| "calm".to_owned());
        self.fleet.settings.faults = Faults::NONE;
        self.fleet.watch.storm = false;
        self.fleet.steady_loads();
        self.fleet.restless = None;
        self.fleet.dozing = None;
        // Whatever was stopped or cut off comes back first.
        let back = self.fleet.workers.values().map(|worker| worker.paused_until.max(worker.cut_until)).max();
        self.fleet.run(back.unwrap_or_default().saturating_sub(self.fleet.now));
        // As long as a worker may be about to stop.
        self.fleet.run(Duration::from_millis(200));
        self.fleet.disturbed();
        let unlimited = |worker: &super::worker::Worker| {
            worker.config.max_leases.is_none() && worker.stopping_since.is_none()
        };
        if !self.fleet.workers.values().any(unlimited) {
            self.fleet.add_worker();
        }
        self.settle();
        if !self.fleet.watch.gentle && self.random.u32(0..3) == 0 {
            // The only fault far and wide: a worker stops just when the reply to its first request is lost.
            self.fleet.restless = Some(self.fleet.add_worker());
            self.wait(8_000);
            self.fleet.restless = None;
            self.fleet.run(Duration::from_millis(200));
            self.settle();
        }
        if let Some(forgotten) = self.fleet.forgotten() {
            self.fleet.violated(forgotten);
        }
        self.fleet.coverage.balanced += u64::from(self.goes_on());
        let weighed = self.fleet.loads.is_some() && self.fleet.all_weigh() && self.goes_on();
        self.fleet.coverage.weighed += u64::from(weighed);
    }

    /// Until every shard has an owner, evenly, and nothing moves any more.
    fn settle(&mut self) {
        let began = self.fleet.now;
        let mut steady_from = None;
        while self.goes_on() {
            self.fleet.run(Duration::from_secs(1));
            let problem = self.fleet.unbalanced();
            let ends = self.fleet.coverage.ends;
            match (problem, steady_from) {
                (None, Some((since, done))) if done == ends => {
                    if self.fleet.moves == 0 && self.fleet.now - since >= self.load_time(1) + STABLE {
                        break;
                    }
                    if self.fleet.moves > 0 {
                        // A hand-over that was under way, or leases that bounce: then this has no end.
                        steady_from = None;
                        self.check_calm(began, "leases move for ever");
                    }
                }
                (None, _) if self.is_quiet() => {
                    self.fleet.moves = 0;
                    steady_from = Some((self.fleet.now, ends));
                }
                (problem, _) => {
                    steady_from = None;
                    self.check_calm(began, problem.as_deref().unwrap_or("shards end for ever"));
                }
            }
        }
    }

    fn check_calm(&mut self, began: Duration, problem: &str) {
        if self.fleet.now - began > CALM_LIMIT + self.load_time(30) {
            self.fleet.violated(format!("after a long calm: {problem}"));
        }
    }

    /// So many windows of the load, where that counts: a worker asks for one lease in each because of it.
    fn load_time(&self, windows: u32) -> Duration {
        self.fleet.loads.as_ref().map_or(Duration::ZERO, |_| self.fleet.settings.config.load_window * windows)
    }

    /// Whether no shard is about to end and nobody joins or stops.
    fn is_quiet(&self) -> bool {
        let ending = self.fleet.stream.shards.iter().any(|(number, shard)| {
            !shard.open && !shard.skipped && !shard.trimmed && {
                let row = self.fleet.table.rows.get(&super::key(*number));
                row.is_none_or(|row| !row.is_finished())
            }
        });
        !ending
            && self
                .fleet
                .workers
                .values()
                .all(|worker| worker.started.is_some() && worker.stopping_since.is_none())
    }
}
