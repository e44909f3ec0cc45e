//! What the shards cost their consumers, in runs in which leases are shared by their load.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::time::Duration;

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey};

use super::fleet::Fleet;
use super::number;
use super::worker::Worker;
use crate::{Balance, LeaseConfig};

/// Drawn apart from everything else, so that a seed whose run has no loads is not changed by them.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    pub(super) random: fastrand::Rng,
    seed: u64,
    /// What all shards cost, where they cost the same.
    even: Option<f64>,
    /// The time in which a load rises and falls, until it is left alone.
    period: Option<Duration>,
    steady_from: Option<Duration>,
    /// Of 100 workers, how many share by numbers.
    pub(crate) unaware: u32,
}

/// How far single pieces of work are from what is usual.
const NOISE: f64 = 0.2;

impl Loads {
    /// The loads of a fourth of the runs; their window is short, so that balance is soon reached.
    pub(super) fn draw(seed: u64, config: &mut LeaseConfig) -> Option<Self> {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x10ad);
        if random.u32(0..4) > 0 {
            return None;
        }
        config.balance = Balance::Load;
        config.load_window = Duration::from_secs(random.u64(8..20));
        let period = random.bool().then(|| Duration::from_secs(random.u64(60..600)));
        let even = (random.u32(0..4) == 0).then(|| random.f64());
        let unaware = if random.u32(0..3) == 0 { 40 } else { 0 };
        Some(Self { seed: random.u64(..), random, even, period, steady_from: None, unaware })
    }

    /// Loads for a test: uneven, steady or not.
    #[cfg(test)]
    pub(crate) fn with(seed: u64, period: Option<Duration>) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, seed, even: None, period, steady_from: None, unaware: 0 }
    }

    /// The load of a shard, without noise.
    pub(super) fn of(&self, shard: u32, now: Duration) -> f64 {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_add(u64::from(shard)));
        let phase = random.f64();
        let usual = self.even.unwrap_or_else(|| match random.u32(0..10) {
            0..6 => 0.02 + random.f64() * 0.08,
            6..9 => 0.1 + random.f64() * 0.3,
            _ => 0.5 + random.f64() * 0.5,
        });
        let at = self.steady_from.map_or(now, |from| from.min(now));
        let drift =
            self.period.map_or(0.0, |period| (TAU * (phase + at.as_secs_f64() / period.as_secs_f64())).sin());
        usual * (1.0 + drift / 2.0)
    }
}

impl Fleet {
    /// From now on loads are left alone, apart from noise.
    pub(super) fn steady_loads(&mut self) {
        let now = self.now;
        if let Some(loads) = &mut self.loads {
            loads.steady_from = Some(now);
        }
    }

    /// A consumer has worked for so long, and says what of that time its handler was busy.
    pub(super) fn report_load(&mut self, worker: usize, key: &LeaseKey, length: Duration) {
        let (now, shard) = (self.now, number(key));
        let Some(loads) = &mut self.loads else { return };
        let noise = 1.0 + NOISE * (2.0 * loads.random.f64() - 1.0);
        let busy = length.mul_f64(loads.of(shard, now) * noise);
        if let Some(meter) = self.workers.get(&worker).and_then(|worker| worker.meters.get(key)) {
            meter.add(busy, 0, 0);
        }
    }

    /// Whether every worker shares by load.
    pub(super) fn all_weigh(&self) -> bool {
        self.workers.values().all(|worker| worker.machine.load_window().is_some())
    }

    /// Why the true loads are not within the band, or nothing. Workers know the loads with some noise only, so that a move
    /// must be worth twice of what they ask for.
    pub(crate) fn uneven(&self) -> Option<String> {
        let loads = self.loads.as_ref()?;
        let runnable = self.runnable();
        let load = |shard: u32| loads.of(shard, self.now);
        let mean = runnable.iter().map(|shard| load(*shard)).sum::<f64>() / runnable.len().max(1) as f64;
        let unit = mean.max(LeaseConfig::LEAST_LOAD);
        let average = 1.0 + 2.0 * mean / unit;
        let held = |worker: &Worker| -> BTreeMap<u32, f64> {
            let shards = worker.believes.keys().map(number).filter(|shard| runnable.contains(shard));
            shards.map(|shard| (shard, (1.0 + 2.0 * load(shard) / unit) / average)).collect()
        };
        let all: Vec<(usize, BTreeMap<u32, f64>)> =
            self.workers.iter().map(|(number, worker)| (*number, held(worker))).collect();
        let share = runnable.len() as f64 / all.len().max(1) as f64;
        let band = LeaseConfig::LOAD_BAND * share;
        let floor = 1.0 / average;
        let squares =
            |held: &BTreeMap<u32, f64>| held.values().map(|weight| (weight - floor).powi(2)).sum::<f64>();
        let doubt = self.settings.config.load_doubt();
        for (heavy, theirs) in &all {
            for (light, ours) in all.iter().filter(|(number, _)| self.has_room(*number)) {
                let difference = theirs.values().sum::<f64>() - ours.values().sum::<f64>();
                let least = band.max(doubt * (squares(theirs) + squares(ours)).sqrt());
                let worth = |(_, weight): &(&u32, &f64)| {
                    let gain = **weight * (difference - **weight);
                    difference >= 1.5 * least
                        && gain >= 2.0 * LeaseConfig::LEAST_GAIN
                        && **weight <= difference / 2.0
                };
                if let Some((shard, _)) = theirs.iter().find(worth) {
                    return Some(format!(
                        "w{heavy} is heavier by {difference:.2} than w{light}, and keeps {shard}"
                    ));
                }
            }
        }
        None
    }

    fn has_room(&self, worker: usize) -> bool {
        let room = |worker: &Worker| worker.config.max_leases.is_none_or(|most| worker.believes.len() < most);
        self.workers.get(&worker).is_some_and(room)
    }

    /// A lease was asked for: whether the other worker had less than two leases more, so that its load was the reason.
    pub(super) fn count_request(&mut self, row: &Lease) {
        let count = |name: &Option<WorkerId>| {
            self.table.rows.values().filter(|row| !row.is_finished() && row.owner == *name).count()
        };
        // The row has the name of the one that asks already.
        if self.loads.is_some() && count(&row.checkpoint_owner) < count(&row.owner) {
            self.coverage.load_moves += 1;
        }
    }

    /// How often each lease was begun.
    #[cfg(test)]
    pub(crate) fn epochs(&self) -> BTreeMap<u32, u64> {
        self.table.rows.values().map(|row| (number(&row.key), row.epoch)).collect()
    }

    /// What went wrong.
    #[cfg(test)]
    pub(crate) fn watch_violation(&self) -> Option<String> {
        self.watch.violation.clone()
    }
}
