//! What each lease weighs where leases are shared by their load, and which one to ask for then.
//!
//! Weights are in units of the average lease. While stored loads stay as they are, each move lowers the sum of the squares
//! of all workers' weights by at least `2 × LEAST_GAIN`; so there are only so many moves, and no lease goes back. Stored loads
//! are measures: what may be an error of theirs moves nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey};

use super::Machine;
use super::balance::Spread;
use super::observe::Seen;
use crate::mutant::{self, Mutant};
use crate::{Balance, LeaseConfig, load};

/// Which part of a lease's weight is there whatever its load is.
const FLOOR: f64 = 1.0 / 3.0;
/// A difference that two leases more make, with some tolerance, is not within the band, however wide that is.
const TWO_MORE: f64 = 1.5;
/// Leases that would gain this part of the most are as good: workers that look at the same time should not all ask for
/// the same one.
const AS_GOOD: f64 = 0.9;

/// What loads are measured with.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// The load of the average lease.
    mean: f64,
    unit: f64,
}

impl Scale {
    fn of<'a>(rows: impl Iterator<Item = &'a Lease>) -> Self {
        let (mut sum, mut count) = (0.0, 0.0);
        for load in rows.filter_map(load::of_row) {
            sum += load;
            count += 1.0;
        }
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        Self { mean, unit: mean.max(LeaseConfig::LEAST_LOAD) }
    }

    /// What a lease weighs because of its load; one without a load is an average one.
    fn of_load(&self, row: &Lease) -> f64 {
        let load = load::of_row(row).filter(|_| !mutant::is_on(Mutant::LoadUnseen)).unwrap_or(self.mean);
        (1.0 - FLOOR) * load / self.unit / self.average()
    }

    fn weight(&self, row: &Lease) -> f64 {
        FLOOR / self.average() + self.of_load(row)
    }

    /// The weight of the average lease, before that is made the unit.
    fn average(&self) -> f64 {
        FLOOR + (1.0 - FLOOR) * self.mean / self.unit
    }
}

/// By how much a move of a lease evens two workers, of which the heavier one has so much more than the other; nothing
/// where they would not be clearly closer to each other.
fn gain(difference: f64, weight: f64) -> f64 {
    if mutant::is_on(Mutant::LoadMovedTwice) {
        return weight * difference;
    }
    let turns = (2.0 * weight - difference) > LeaseConfig::LOAD_TURN * difference;
    if turns { 0.0 } else { weight * (difference - weight) }
}

impl Machine {
    /// How long loads are averaged, where leases are shared by them.
    pub(crate) fn load_window(&self) -> Option<Duration> {
        let weighs = self.config.balance == Balance::Load && !self.is_kcl_compatible();
        weighs.then_some(self.config.load_window)
    }

    /// Whether leases are shared by their loads: as long as one worker does not weigh, it would take back by numbers what
    /// moved because of the loads.
    pub(super) fn weighs(&self, spread: &Spread, now: Instant) -> bool {
        let Some(window) = self.load_window() else { return false };
        // Who has only young ones had no time to measure.
        let tells = |seen: &Seen| load::of_row(&seen.row).is_some();
        let weighs = |keys: &Vec<LeaseKey>| {
            let mut leases = keys.iter().filter_map(|key| self.seen.get(key)).peekable();
            leases.peek().is_none()
                || keys.iter().filter_map(|key| self.seen.get(key)).any(tells)
                || leases.all(|seen| now < seen.tenure_since + window)
        };
        weighs(&spread.mine) && spread.others.values().all(weighs)
    }

    /// The lease of a heavier worker whose move evens the loads best, if that is worth it.
    pub(super) fn choose_by_load(&mut self, spread: &Spread, now: Instant) -> Option<LeaseKey> {
        let row_of = |key: &LeaseKey| self.seen.get(key).map(|seen| &seen.row);
        let others = || spread.others.iter().filter(|(owner, _)| **owner != self.me);
        let all = others().flat_map(|(_, leases)| leases).chain(&spread.mine);
        let scale = Scale::of(all.clone().filter_map(row_of));
        let weight_of = |leases: &[LeaseKey]| -> f64 {
            leases.iter().filter_map(row_of).map(|row| scale.weight(row)).sum()
        };
        let workers = others().count() + 1;
        // Errors of measures that know nothing of each other add up as squares do.
        let squares_of = |leases: &[LeaseKey]| -> f64 {
            leases.iter().filter_map(row_of).map(|row| scale.of_load(row).powi(2)).sum()
        };
        let share = all.count() as f64 / workers as f64;
        let band = LeaseConfig::LOAD_BAND * share;
        let (mine, my_squares) = (weight_of(&spread.mine), squares_of(&spread.mine));
        let lighter = others().filter(|(_, leases)| weight_of(leases) < share).count() + 1;
        let unmeasured = self.unmeasured(now);
        // Those who could ask for a lease because of the loads do so one after the other, or they would take too many.
        let our_turn = !unmeasured.contains(&self.me) && self.random.usize(..lighter) == 0;
        let mut worth = Vec::new();
        for (owner, leases) in others() {
            let difference = weight_of(leases) - mine;
            let has_more = leases.len() >= spread.mine.len() + 2;
            // Small differences between loads of which some are not measured since they moved may be none.
            let doubt = self.config.load_doubt() * (my_squares + squares_of(leases)).sqrt();
            let is_plain = has_more && difference >= band.max(TWO_MORE);
            let may_ask = is_plain || (our_turn && !unmeasured.contains(owner));
            let least = if has_more { band.min(TWO_MORE) } else { band };
            if !may_ask || difference < least.max(doubt) {
                continue;
            }
            for key in
                leases.iter().filter(|key| self.can_be_asked_for(key) && !self.has_just_moved(key, now))
            {
                let gain = row_of(key).map_or(0.0, |row| gain(difference, scale.weight(row)));
                if gain >= LeaseConfig::LEAST_GAIN {
                    worth.push((gain, key));
                }
            }
        }
        let best = worth.iter().map(|(gain, _)| *gain).fold(0.0, f64::max);
        worth.retain(|(gain, _)| *gain >= best * AS_GOOD);
        let chosen = self.random.choice(&worth)?;
        Some(chosen.1.clone())
    }

    /// Whatever loads do, a lease moves only so often because of them.
    fn has_just_moved(&self, key: &LeaseKey, now: Instant) -> bool {
        let rest = self.config.load_window * LeaseConfig::LOAD_REST;
        let moved_at = self.seen.get(key).and_then(|seen| seen.moved_at);
        moved_at.is_some_and(|at| now < at + rest) && !mutant::is_on(Mutant::LoadMovedTwice)
    }

    /// Workers that have got a lease or are about to, whose loads are not measured since.
    fn unmeasured(&self, now: Instant) -> BTreeSet<WorkerId> {
        let is_new = |seen: &&Seen| {
            let moves = seen.row.checkpoint_owner.is_some() || seen.row.token.is_none();
            moves || now < seen.tenure_since + self.config.load_window
        };
        let unfinished = self.seen.values().filter(|seen| !seen.row.is_finished());
        unfinished
            .filter(is_new)
            .flat_map(|seen| seen.row.owner.iter().chain(&seen.row.checkpoint_owner))
            .cloned()
            .collect()
    }
}
