//! Leases shared by their load.

use std::time::Duration;

use kinesis_core::lease::{Lease, PrivateValue, TenureToken};

use super::bench::{Bench, fresh, millis, owned, worker};
use crate::sim::{Faults, Fleet, Loads, Settings, key};
use crate::{Balance, LeaseConfig, ops};

const WINDOW: Duration = Duration::from_secs(10);
const NOTHING: [u32; 0] = [];

fn config() -> LeaseConfig {
    LeaseConfig::default().balance(Balance::Load).load_window(WINDOW)
}

/// A lease with a load in thousandths.
fn loaded(shard: u32, owner: &str, load: i64) -> Lease {
    let mut lease = owned(shard, owner);
    lease.private.insert("load".into(), PrivateValue::Number(load));
    lease
}

fn load_of(bench: &Bench, shard: u32) -> Option<PrivateValue> {
    bench.row(shard).private.get("load").cloned()
}

/// What was asked for in a time in which the other holders live on.
fn asked(bench: &mut Bench, seconds: u64) -> Vec<u32> {
    for _ in 0..seconds {
        bench.run(millis(1_000));
        for row in bench.rows.clone().values().filter(|row| row.token == Some(TenureToken::from_random(77))) {
            bench.change(&ops::renew(row, TenureToken::from_random(77)));
        }
    }
    let asked = bench.rows.values().filter(|row| row.checkpoint_owner == Some(worker("other")));
    asked.map(|row| super::bench::number(&row.key)).collect()
}

/// Our leases with these loads, and those of another worker.
fn bench(ours: &[i64], theirs: &[i64]) -> Bench {
    let mut rows = Vec::new();
    for load in ours {
        let mut row = fresh(rows.len() as u32);
        row.private.insert("load".into(), PrivateValue::Number(*load));
        rows.push(row);
    }
    for load in theirs {
        rows.push(loaded(rows.len() as u32, "other", *load));
    }
    Bench::with(config(), rows)
}

/// Of a worker with more leases that one is asked for which evens the loads best: without any, half of everything.
#[test]
fn of_a_worker_with_more_leases_the_one_that_evens_best_is_asked_for() {
    assert_eq!(asked(&mut bench(&[], &[100, 800, 100, 100]), 1), [1]);
    assert_eq!(asked(&mut bench(&[700], &[100, 500, 100]), 1), NOTHING, "it has more leases, and less to do");
}

/// Two leases more do not count at once where the loads differ by less than the band: it may be that they are not measured
/// since a lease moved.
#[test]
fn small_differences_wait_until_loads_are_measured_also_where_numbers_differ() {
    let mut bench = bench(&[100; 10], &[100; 12]);
    assert_eq!(asked(&mut bench, 9), NOTHING, "the loads may be those of other holders");
    assert_eq!(asked(&mut bench, 8).len(), 1, "two leases more are uneven all the same");
}

/// Where numbers are even, loads have their time to be measured, and then a lease is asked for because of them.
#[test]
fn loads_count_where_numbers_are_even_once_they_are_measured() {
    let mut bench = bench(&[100, 100], &[800, 100]);
    assert_eq!(asked(&mut bench, 9), NOTHING, "the loads may be those of other holders");
    assert_eq!(asked(&mut bench, 4), [3], "the hot shard would be as hot here");
}

/// Without a clear gain nothing is asked for: neither for little noise, nor where all loads are small.
#[test]
fn small_differences_move_nothing() {
    assert_eq!(asked(&mut bench(&[100, 100], &[130, 120, 110]), 30), NOTHING);
    assert_eq!(asked(&mut bench(&[0, 0], &[8, 1]), 30), NOTHING, "eight times as much of nearly nothing");
    assert_eq!(asked(&mut bench(&[300, 300], &[500, 300]), 30), NOTHING, "no better the other way round");
}

/// Loads of hot shards are measured with errors that a few idle shards do not outweigh.
#[test]
fn what_may_be_an_error_of_the_measure_moves_nothing() {
    let beside_a_hot_one = |idle: usize| -> Vec<i64> { [900].into_iter().chain(vec![50; idle]).collect() };
    let asked_for = |idle| asked(&mut bench(&beside_a_hot_one(9), &beside_a_hot_one(idle)), 30);
    assert_eq!(asked_for(12), NOTHING, "1.8 more, and 3 are in doubt");
    assert_ne!(asked_for(20), NOTHING, "6 more");
}

/// A lease without a load weighs as much as the average one.
#[test]
fn a_lease_without_a_load_is_an_average_one() {
    let mut rows = vec![loaded(0, "other", 900), loaded(1, "other", 100)];
    rows.extend([owned(2, "other"), owned(3, "other")]);
    let mut bench = Bench::with(config(), rows);
    assert_eq!(asked(&mut bench, 1), [0], "1.9 and 0.1 beside two of 1");
}

/// Beside a worker that stores no loads only numbers count, so that nothing goes back and forth.
#[test]
fn beside_a_worker_that_does_not_weigh_numbers_count() {
    let rows = |ours: &[i64], theirs: &[i64]| {
        let mut bench = bench(ours, theirs);
        for row in bench.rows.values_mut().filter(|row| row.owner == Some(worker("other"))) {
            row.private.clear();
        }
        bench
    };
    assert_eq!(asked(&mut rows(&[900], &[0, 0, 0]), 30).len(), 1, "two leases more");
    assert_eq!(asked(&mut rows(&[0, 0], &[0, 0, 0]), 30), NOTHING);
    let mut third = rows(&[0, 0], &[0, 0]);
    for row in [loaded(5, "third", 900), loaded(6, "third", 900)] {
        third.rows.insert(row.key.clone(), row);
    }
    let busy = |bench: &Bench| bench.rows.values().any(|row| row.checkpoint_owner.is_some());
    asked(&mut third, 30);
    assert!(!busy(&third), "also of a third that does");
}

/// The load goes along with renewals and checkpoints; no write is made for it.
#[test]
fn loads_are_stored_with_writes_that_are_made_anyway() {
    let after = |balance| {
        let mut bench = Bench::with(LeaseConfig::default().balance(balance), [fresh(0), fresh(1)]);
        let meter = bench.meters[&key(0)].clone();
        for second in 0..60_u64 {
            meter.add(millis(250), 0, 0);
            bench.run(millis(1_000));
            if second % 7 == 0 {
                let token = bench.row(0).token.unwrap();
                bench.checkpoint(token, u128::from(second), second);
            }
        }
        let stored = load_of(&bench, 0);
        assert_eq!(load_of(&bench, 1), None, "nobody reported");
        (bench.writes, stored)
    };
    let (writes, stored) = after(Balance::Load);
    let Some(PrivateValue::Number(load)) = stored else { panic!("not stored") };
    assert!((240..=260).contains(&load), "{load}");
    assert_eq!(after(Balance::Count), (writes, None));
}

/// A worker that does not weigh leaves no load of another in what it takes.
#[test]
fn a_taking_without_weighing_forgets_the_load() {
    let row = || {
        let mut row = fresh(0);
        row.private.insert("load".into(), PrivateValue::Number(500));
        row
    };
    assert_eq!(load_of(&Bench::with(config(), [row()]), 0), Some(PrivateValue::Number(500)));
    assert_eq!(load_of(&Bench::new([row()]), 0), None);
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A fleet that shares by load, a while after it has begun.
fn settled(seed: u64, workers: usize, shards: u32, loads: Loads) -> Fleet {
    let mut settings = Settings::with(Faults::NONE);
    settings.config = config().load_window(secs(60)).look_interval(secs(4));
    let mut fleet = Fleet::new(seed, shards, settings);
    fleet.loads = Some(loads);
    for _ in 0..workers {
        fleet.add_worker();
        fleet.run(secs(1));
    }
    fleet.run(secs(900));
    fleet
}

/// The most moves of one lease in an hour, and all moves.
fn moves_in_an_hour(fleet: &mut Fleet) -> (u64, u64) {
    let before = fleet.epochs();
    fleet.run(secs(3_600));
    // A hand-over ends one tenure and begins another.
    let moves = fleet.epochs().into_iter().map(|(shard, epoch)| (epoch - before[&shard]) / 2);
    let moves: Vec<u64> = moves.collect();
    (moves.iter().copied().max().unwrap(), moves.iter().sum())
}

/// Loads that stay as they are, apart from noise: they are evened out, and then leases stay where they are.
#[test]
fn steady_loads_are_evened_and_then_leases_stay() {
    for (seed, workers, shards) in [(1, 2, 4), (2, 3, 12), (3, 4, 24), (4, 6, 7)] {
        let mut fleet = settled(seed, workers, shards, Loads::with(seed, None));
        let what = format!("{workers} workers, {shards} shards");
        assert_eq!(fleet.uneven(), None, "{what}");
        let (most, all) = moves_in_an_hour(&mut fleet);
        assert_eq!((most, all), (0, 0), "{what}");
        assert_eq!(fleet.uneven(), None, "{what}, after an hour");
        assert_eq!(fleet.watch_violation(), None, "{what}");
    }
}

/// Loads that rise and fall by half within ten minutes: leases follow, a few times in an hour.
#[test]
fn drifting_loads_move_few_leases() {
    for (seed, workers, shards) in [(3, 4, 24), (4, 3, 9)] {
        let mut fleet = settled(seed, workers, shards, Loads::with(seed, Some(secs(600))));
        let what = format!("{workers} workers, {shards} shards");
        let (most, all) = moves_in_an_hour(&mut fleet);
        assert!(all > 0, "{what}: loads that change that much are followed");
        assert!(most <= 12, "{what}: a lease moved {most} times, and all of them {all} times");
        assert_eq!(fleet.watch_violation(), None, "{what}");
    }
}

/// Workers that share by number beside others that share by load: the numbers are even, and nothing moves.
#[test]
fn mixed_fleets_are_at_rest() {
    for seed in [0, 1, 3] {
        let mut loads = Loads::with(seed, None);
        loads.unaware = 50;
        let mut fleet = settled(seed, 4, 14, loads);
        assert!(fleet.coverage.unaware > 0 && fleet.coverage.unaware < 4, "seed {seed} is mixed");
        let spread = fleet.spread();
        assert!(spread.iter().all(|count| (3..=4).contains(count)), "seed {seed}: {spread:?}");
        assert_eq!(moves_in_an_hour(&mut fleet), (0, 0), "seed {seed}");
    }
}
