//! What a whole fleet must do, whatever happens to its members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::LeaseConfig;
use crate::sim::{self, Faults, Fleet, Settings};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fleet(seed: u64, shards: u32, faults: Faults) -> Fleet {
    Fleet::new(seed, shards, Settings::with(faults))
}

/// Even within one, nobody above the target, nothing without an owner.
fn assert_balanced(fleet: &Fleet, shards: usize, what: &str) {
    let spread = fleet.spread();
    let target = shards.div_ceil(spread.len());
    let held: usize = spread.iter().sum();
    assert_eq!(held, shards, "{what}: {spread:?}");
    assert!(spread.iter().all(|count| *count <= target), "{what}: {spread:?}, target {target}");
}

/// Nothing moves any more.
fn assert_stable(fleet: &mut Fleet, what: &str) {
    fleet.moves = 0;
    fleet.run(secs(20));
    assert_eq!(fleet.moves, 0, "{what}: leases moved without a reason");
}

/// S-044, F-23: from 1 to 64 shards and 1 to 16 workers the spread becomes even, and then no lease moves.
#[test]
fn leases_converge_to_the_target_and_stay() {
    for (seed, shards) in [1_u32, 5, 16, 64].into_iter().enumerate() {
        for workers in [1_usize, 2, 5, 16] {
            let what = format!("{shards} shards, {workers} workers");
            let mut fleet = fleet(seed as u64, shards, Faults::NONE);
            for _ in 0..workers {
                fleet.add_worker();
                fleet.run(Duration::from_millis(300));
            }
            fleet.run(secs(45));
            assert_balanced(&fleet, shards as usize, &what);
            assert_stable(&mut fleet, &what);
            assert_eq!(
                fleet.coverage.expiries + fleet.coverage.cut_short,
                0,
                "{what}: a lease was lost although every hand-over was answered"
            );
        }
    }
}

/// F-23: workers that start at once cause about as many moves as there are leases to move; when some of them stop
/// hard and others start, the rest is even again.
#[test]
fn few_leases_move_when_the_fleet_changes() {
    let mut fleet = fleet(3, 48, Faults::NONE);
    for _ in 0..4 {
        fleet.add_worker();
    }
    fleet.run(secs(20));
    assert_balanced(&fleet, 48, "4 workers");
    let before = fleet.coverage.hand_overs;
    for _ in 0..8 {
        fleet.add_worker();
    }
    fleet.run(secs(40));
    assert_balanced(&fleet, 48, "12 workers");
    // 8 newcomers need 4 each: 32 moves; those who start at once get in each other's way a little.
    let moved = fleet.coverage.hand_overs - before;
    assert!((32..=40).contains(&moved), "{moved} hand-overs for 32 moves");
    for worker in fleet.workers().into_iter().take(3) {
        fleet.crash(worker);
    }
    fleet.run(secs(30));
    assert_balanced(&fleet, 48, "9 workers");
    for _ in 0..3 {
        fleet.add_worker();
    }
    fleet.run(secs(40));
    assert_balanced(&fleet, 48, "12 workers again");
    assert_stable(&mut fleet, "12 workers again");
}

/// Lets the fleet live until 160 shards are spread evenly within one, for ten expiries at most, and returns how often each
/// was begun with.
fn until_even(fleet: &mut Fleet, what: &str) -> BTreeMap<u32, u32> {
    let end = fleet.now + secs(100);
    let is_even = |fleet: &Fleet| {
        let spread = fleet.spread();
        let (least, most) = (160 / spread.len(), 160_usize.div_ceil(spread.len()));
        spread.iter().sum::<usize>() == 160 && spread.iter().all(|count| (least..=most).contains(count))
    };
    while fleet.now < end && !is_even(fleet) {
        fleet.run(secs(1));
    }
    assert!(is_even(fleet), "{what}: {:?}", fleet.spread());
    fleet.take_begins()
}

/// What moved, each lease once.
fn moved_once(begins: &BTreeMap<u32, u32>, what: &str) -> usize {
    assert!(begins.values().all(|count| *count == 1), "{what}: a lease moved twice: {begins:?}");
    begins.len()
}

/// F-23: 160 shards and 20 workers that start one after the other, of which five stop hard and start again. Each time it is
/// even again within ten expiries. When workers join no more leases move than have to, and none twice.
#[test]
fn each_change_of_a_large_fleet_moves_few_leases() {
    let mut fleet = fleet(5, 160, Faults::NONE);
    for workers in 1..=20 {
        fleet.add_worker();
        let what = format!("{workers} workers");
        let begins = until_even(&mut fleet, &what);
        assert_eq!(moved_once(&begins, &what), 160 / workers, "{what}");
    }
    for worker in fleet.workers().into_iter().take(5) {
        fleet.crash(worker);
    }
    let begins = until_even(&mut fleet, "15 workers");
    // The dead go one by one, and those that are still to go count. So some of the 40 leases of the dead are nobody's part
    // at first; who looks next takes them all, and hands some on.
    assert!(begins.len() <= 50 && begins.values().all(|count| *count <= 2), "{begins:?}");
    assert!((40..=60).contains(&begins.values().sum::<u32>()), "{begins:?}");
    for _ in 0..5 {
        fleet.add_worker();
    }
    let begins = until_even(&mut fleet, "20 workers again");
    // 8 for each, and those who start at once get in each other's way a little.
    let moved = moved_once(&begins, "20 workers again");
    assert!((40..=42).contains(&moved), "{moved} moved");
    assert_stable(&mut fleet, "20 workers again");
    assert_eq!(fleet.coverage.cut_short, 0, "a lease was lost although every hand-over was answered");
}

/// F-23: of 20 workers that start at once the first takes all 160 leases, as it knows of nobody else; the others ask it for
/// their parts, and nobody is robbed or asked twice.
#[test]
fn many_workers_that_start_at_once_do_not_rob_each_other() {
    let mut fleet = fleet(1, 160, Faults::NONE);
    for _ in 0..20 {
        fleet.add_worker();
    }
    let begins = until_even(&mut fleet, "at once");
    let moved = begins.values().filter(|count| **count == 2).count();
    assert_eq!((begins.len(), moved, begins.values().max()), (160, 152, Some(&2)));
    assert_eq!((fleet.coverage.steals, fleet.coverage.cut_short), (0, 0));
    assert_stable(&mut fleet, "at once");
}

/// Which of the shards get no owner in time. (What has got one may be on its way to another a moment later.)
fn not_taken_within(fleet: &mut Fleet, mut left: BTreeSet<u32>, limit: Duration) -> BTreeSet<u32> {
    let end = fleet.now + limit;
    while !left.is_empty() && fleet.now < end {
        fleet.run(Duration::from_millis(100));
        let unowned = fleet.unowned();
        left.retain(|shard| unowned.contains(shard));
    }
    left
}

/// S-043: what a crashed worker held is taken within the expiry and two looks.
#[test]
fn leases_of_a_crashed_worker_are_taken_within_the_expiry_and_two_looks() {
    for seed in 0..8 {
        let mut fleet = fleet(seed, 12, Faults::NONE);
        for _ in 0..3 {
            fleet.add_worker();
        }
        fleet.run(secs(60));
        let victim = fleet.workers()[0];
        fleet.crash(victim);
        let left = fleet.unowned();
        assert_eq!(left.len(), 4, "seed {seed}");
        // Observers judge from the moment they saw the last heartbeat: up to one look after it was written. Calls take
        // up to 80 ms, and the slowest clock is 2 % slow. The last look is for what one worker leaves to another.
        let late = not_taken_within(&mut fleet, left, Duration::from_millis(10_200 + 3 * 1_100));
        assert_eq!(late, BTreeSet::new(), "seed {seed}");
    }
}

/// S-042: what a stopping worker held is taken in the next looks of the others, without waiting for an expiry.
#[test]
fn leases_of_a_stopped_worker_are_taken_at_once() {
    for seed in 0..8 {
        let mut fleet = fleet(seed, 9, Faults::NONE);
        for _ in 0..3 {
            fleet.add_worker();
        }
        fleet.run(secs(60));
        let stopped = fleet.workers()[1];
        fleet.stop(stopped);
        let left = fleet.unowned();
        assert_eq!(left.len(), 3, "seed {seed}");
        let late = not_taken_within(&mut fleet, left, secs(2));
        assert_eq!(late, BTreeSet::new(), "seed {seed}");
        fleet.run(secs(1));
        assert!(!fleet.workers().contains(&stopped), "seed {seed}: it has stopped");
    }
}

/// S-022, S-040, S-041, S-057, F-10, F-12, F-22, F-23: whatever happens, no write of a former tenure is accepted, no
/// checkpoint goes back, no child begins before its parents have ended, no two workers believe at once, nothing is
/// without an owner for too long; and when it is quiet again everything has an owner, evenly.
#[test]
fn no_fault_makes_two_owners_or_loses_a_shard() {
    let mut coverage = sim::Coverage::default();
    for seed in 0..60 {
        let run = sim::run(seed);
        assert_eq!(run.violation, None, "seed {seed}");
        coverage.add(&run.coverage);
    }
    let bites = [coverage.steals, coverage.expiries, coverage.cut_short, coverage.merges_across_workers];
    assert!(bites.iter().all(|count| *count > 10), "the faults did not bite:\n{coverage}");
}

/// S-043: where all rows are read each 20 s only, what a crashed worker held is taken within that, the expiry and 2 s,
/// whenever it crashes.
#[test]
fn a_sparing_fleet_takes_over_within_a_look_an_expiry_and_two_seconds() {
    let mut longest = Duration::ZERO;
    for seed in 0..24 {
        let config = LeaseConfig::default().full_look_interval(LeaseConfig::SPARSE_LOOK_INTERVAL);
        let mut fleet = Fleet::new(seed, 12, Settings { config, ..Settings::with(Faults::NONE) });
        for _ in 0..3 {
            fleet.add_worker();
        }
        fleet.run(secs(200) + Duration::from_millis(900) * u32::try_from(seed).unwrap());
        assert_balanced(&fleet, 12, &format!("seed {seed}"));
        let victim = fleet.workers()[usize::try_from(seed).unwrap() % 3];
        fleet.crash(victim);
        let (left, began) = (fleet.unowned(), fleet.now);
        assert_eq!(left.len(), 4, "seed {seed}");
        // The slowest clock is 2 % slow.
        let late = not_taken_within(&mut fleet, left, secs(32).div_f64(0.98));
        assert_eq!(late, BTreeSet::new(), "seed {seed}");
        longest = longest.max(fleet.now - began);
        fleet.run(secs(200));
        assert_balanced(&fleet, 12, &format!("seed {seed}, after the crash"));
    }
    assert!(longest > secs(25), "the worst crash was not among them: {longest:?}");
}

/// The same invariants hold where all rows are read seldom.
#[test]
fn sparing_fleets_make_no_two_owners_and_lose_no_shard() {
    for seed in 0..40 {
        assert_eq!(sim::run_sparing(seed).violation, None, "seed {seed}");
    }
}

/// The same seed gives the same run, byte by byte.
#[test]
fn a_run_is_repeatable() {
    for seed in [1, 7, 960] {
        let (first, second) = (sim::trace(seed), sim::trace(seed));
        assert!(first.trace.len() > 100, "seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.coverage, second.coverage, "seed {seed}");
    }
}

/// A fault of each kind is found: the simulation does not pass whatever happens.
#[test]
fn mutants_are_found() {
    for mutant in [sim::Mutant::FenceDropped, sim::Mutant::ChildEarly, sim::Mutant::ExpiryHalved] {
        let found = (0..200).find(|seed| sim::run_mutant(mutant, *seed).violation.is_some());
        assert!(found.is_some(), "{}", mutant.name());
    }
}
