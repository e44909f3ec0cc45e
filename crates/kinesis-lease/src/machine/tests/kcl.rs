//! Workers of ours beside workers of the KCL 2.x.

use std::time::Duration;

use kinesis_core::Checkpoint;
use kinesis_core::lease::{Outcome, TenureToken};

use super::bench::{Bench, fresh, millis, number, owned, worker};
use super::mixed::Mixed;
use crate::machine::kcl::SIMULATED;
use crate::machine::{Action, Event, Found};
use crate::sim::key;
use crate::{Coordination, LeaseWarning, LossReason, ops};

const KCL: Coordination = Coordination::KclCompatible;

/// Every lease is held, nobody has more than the target, and nobody more than one less.
fn assert_shared(mixed: &Mixed, shards: usize, what: &str) {
    let spread = mixed.spread();
    let target = shards.div_ceil(spread.len()).max(1);
    assert_eq!(spread.values().sum::<usize>(), shards, "{what}: {spread:?}");
    let is_fair = |count: &usize| *count <= target && *count + 1 >= target;
    assert!(spread.values().all(is_fair), "{what}: {spread:?}, target {target}");
}

fn assert_stable(mixed: &mut Mixed, what: &str) {
    mixed.moves.clear();
    mixed.run(300);
    assert_eq!(mixed.moves, [], "{what}: leases moved without a reason");
}

/// S-044, F-23: whoever is there first, workers of both kinds come to even parts, and then no lease moves.
#[test]
fn both_kinds_of_workers_come_to_even_parts_and_stay() {
    for (seed, shards) in [1_u32, 4, 9, 16].into_iter().enumerate() {
        for (javas, rusts) in [(1, 1), (2, 1), (2, 3)] {
            for java_first in [true, false] {
                let what = format!("{shards} shards, {javas} Java, {rusts} Rust, Java first: {java_first}");
                let mut mixed = Mixed::new(seed as u64, shards);
                for begins_with_java in [java_first, !java_first] {
                    if begins_with_java {
                        (0..javas).for_each(|number| mixed.add_java(&format!("java-{number}")));
                    } else {
                        (0..rusts).for_each(|number| mixed.add_rust(&format!("rust-{number}"), KCL));
                    }
                    mixed.run(60);
                }
                mixed.run(u64::from(shards) * 25);
                assert_shared_or_crowded(&mixed, shards as usize, javas + rusts, &what);
                assert_stable(&mut mixed, &what);
            }
        }
    }
}

/// With fewer leases than workers each lease is held by somebody, and nobody has two.
fn assert_shared_or_crowded(mixed: &Mixed, shards: usize, workers: usize, what: &str) {
    if shards >= workers {
        return assert_shared(mixed, shards, what);
    }
    let spread = mixed.spread();
    assert_eq!(spread.values().sum::<usize>(), shards, "{what}: {spread:?}");
    assert!(spread.values().all(|count| *count <= 1), "{what}: {spread:?}");
}

/// A worker of ours joins a running worker of the KCL: it takes one lease at a time, no sooner than the KCL does, until it
/// has its part.
#[test]
fn a_joining_worker_takes_one_lease_at_a_time() {
    let mut mixed = Mixed::new(1, 8);
    mixed.add_java("java");
    mixed.run(60);
    assert_eq!(mixed.spread()["java"], 8);
    mixed.moves.clear();
    mixed.add_rust("rust", KCL);
    mixed.run(200);
    assert_shared(&mixed, 8, "after the joining");
    let times: Vec<Duration> = mixed.moves.iter().map(|(at, ..)| *at).collect();
    assert_eq!(times.len(), 4, "{:?}", mixed.moves);
    let from_java = |(_, _, from, _): &(_, _, Option<kinesis_core::WorkerId>, _)| {
        from.as_ref().is_some_and(|from| mixed.is_java(from))
    };
    assert!(mixed.moves.iter().all(from_java), "{:?}", mixed.moves);
    let shortest = mixed.config.steal_interval() - mixed.config.look_interval;
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= shortest), "{times:?}");
    assert_eq!(mixed.robbed("rust"), 0, "Java takes nothing back");
}

/// More at one time where the setting says so, but never more than what is above the target.
#[test]
fn more_leases_are_taken_at_one_time_where_the_setting_says_so() {
    let mut mixed = Mixed::new(1, 8);
    mixed.config = mixed.config.clone().max_leases_to_steal(100);
    mixed.add_java("java");
    mixed.run(60);
    mixed.moves.clear();
    mixed.add_rust("rust", KCL);
    mixed.run(5);
    assert_shared(&mixed, 8, "after five seconds");
    assert_stable(&mut mixed, "at once");
}

/// S-042, S-043: each side takes all that the other leaves, whether it stops or dies.
#[test]
fn each_side_takes_over_from_the_other() {
    let mut mixed = Mixed::new(3, 9);
    mixed.add_java("java-0");
    mixed.add_java("java-1");
    mixed.add_rust("rust", KCL);
    mixed.run(300);
    assert_shared(&mixed, 9, "three workers");
    mixed.kill("java-0");
    // Seen as standing still, then taken in the next look or in the next round of the KCL.
    mixed.run(35);
    assert_eq!(mixed.spread().values().sum::<usize>(), 9, "{:?}", mixed.spread());
    mixed.run(120);
    assert_shared(&mixed, 9, "two workers");
    mixed.kill("java-1");
    mixed.run(12);
    assert_eq!(mixed.spread()["rust"], 9, "ours looks each second");
    mixed.add_java("java-2");
    mixed.run(250);
    assert_shared(&mixed, 9, "Java again");
    mixed.stop_rust("rust");
    mixed.run(22);
    assert_eq!(mixed.spread()["java-2"], 9, "what is given back is taken in the KCL's next round");
    assert_eq!(mixed.spread().len(), 1);
}

/// Between two workers of ours leases are handed over also on such a table: nobody is robbed.
#[test]
fn two_workers_of_ours_hand_over_without_a_loss() {
    let mut mixed = Mixed::new(4, 8);
    mixed.add_rust("rust-0", KCL);
    mixed.run(30);
    mixed.add_rust("rust-1", KCL);
    mixed.run(30);
    assert_shared(&mixed, 8, "two of ours");
    assert_eq!(mixed.robbed("rust-0") + mixed.robbed("rust-1"), 0);
    assert_eq!(mixed.held_by("rust-0").intersection(&mixed.held_by("rust-1")).count(), 0);
    assert_stable(&mut mixed, "two of ours");
}

/// Finished leases count for their owners, as in the KCL, and are never taken. A worker that has many of them has fewer
/// that can be worked on.
#[test]
fn finished_leases_count_for_their_owners_and_are_not_taken() {
    let mut mixed = Mixed::new(5, 12);
    for number in 0..4 {
        mixed.rows.get_mut(&key(number)).unwrap().checkpoint = Checkpoint::ShardEnd;
    }
    mixed.add_java("java");
    mixed.run(60);
    mixed.add_rust("rust", KCL);
    mixed.run(300);
    let held: Vec<u32> = mixed.held_by("rust").iter().map(number).collect();
    assert_eq!(held.len(), 6, "{held:?}");
    assert!(held.iter().all(|number| *number >= 4), "{held:?}");
    assert_stable(&mut mixed, "with finished leases");
}

/// Where nobody of the KCL is there, finished leases have no owner and leave the parts alone.
#[test]
fn finished_leases_without_an_owner_do_not_count() {
    let mut mixed = Mixed::new(5, 12);
    for number in 0..8 {
        mixed.rows.get_mut(&key(number)).unwrap().checkpoint = Checkpoint::ShardEnd;
    }
    mixed.add_rust("rust-0", KCL);
    mixed.run(30);
    mixed.add_rust("rust-1", KCL);
    mixed.run(60);
    assert_shared(&mixed, 4, "two of ours");
}

/// Natively nothing is taken from a worker of the KCL, but it is told once that one is there.
#[test]
fn natively_a_worker_of_the_kcl_is_told_of_and_left_alone() {
    let mut row = owned(0, "java");
    row.token = None;
    let mut bench = Bench::new([row, owned(1, "java"), fresh(2)]);
    for _ in 0..30 {
        bench.rows.get_mut(&key(0)).unwrap().counter += 1;
        bench.rows.get_mut(&key(1)).unwrap().counter += 1;
        bench.look();
    }
    assert_eq!(bench.row(0).owner, Some(worker("java")));
    let told = |action: &&Action| matches!(action, Action::Warn(LeaseWarning::KclWorker { worker: w, key: k }) if w.as_str() == "java" && *k == key(0));
    assert_eq!(bench.told.iter().filter(told).count(), 1, "{:?}", bench.told);
}

fn kcl_bench(rows: impl IntoIterator<Item = kinesis_core::lease::Lease>) -> Bench {
    let mut bench = Bench::new([]);
    bench.machine.coordinate(KCL);
    bench.rows = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
    bench
}

/// A taking that a heartbeat in between has defeated is made once more with the fresh counter, within the same round.
#[test]
fn a_refused_taking_is_made_once_more() {
    let java = |number| {
        let mut row = owned(number, "java");
        row.token = None;
        row
    };
    let mut bench = kcl_bench([java(0), java(1)]);
    bench.store = super::bench::Store::Hangs;
    bench.look();
    let (batch, writes) = bench.kept.pop().expect("it takes one of two");
    assert_eq!(writes.len(), 1);
    bench.rows.get_mut(&writes[0].key).unwrap().counter += 1;
    bench.store = super::bench::Store::Works;
    bench.apply(batch, &writes);
    assert_eq!((bench.writes, bench.acquired().len()), (2, 1), "a refused and a second one");
    let row = &bench.rows[&writes[0].key];
    assert_eq!((row.owner.clone(), row.owner_switches), (Some(worker("me")), 1));
}

/// A live worker of the KCL with our name is not robbed as if its leases had been handed to us, and it is told of.
#[test]
fn a_worker_of_the_kcl_with_our_name_keeps_its_leases() {
    let mut row = owned(0, "me");
    row.token = None;
    let mut bench = kcl_bench([row]);
    for _ in 0..30 {
        bench.rows.get_mut(&key(0)).unwrap().counter += 1;
        bench.look();
    }
    assert_eq!(bench.acquired(), []);
    let expected = format!(
        "another worker uses the name me, too: it holds {} with no token; this one holds nothing",
        key(0)
    );
    assert_eq!(bench.warnings(), [expected]);
    // When it is gone its leases are taken like those of anybody.
    bench.run(millis(12_000));
    assert_eq!(bench.acquired().len(), 1);
}

/// Java takes a lease that we were handing over, and leaves our name in it: a leader of 3.x would wait for us.
#[test]
fn what_a_hand_over_has_left_behind_is_removed() {
    let mut bench = kcl_bench([fresh(0)]);
    bench.look();
    let token = bench.only_token();
    let request = ops::request(bench.row(0), &worker("rust"));
    assert!(matches!(bench.change(&request), Outcome::Applied(_)));
    let row = bench.rows.get_mut(&key(0)).unwrap();
    (row.owner, row.token) = (Some(worker("java")), None);
    row.counter += 1;
    bench.run(millis(4_000));
    assert_eq!(bench.losses(), [(0, LossReason::Taken)]);
    assert_ne!(bench.row(0).token, Some(token));
    bench.rows.get_mut(&key(0)).unwrap().counter += 1;
    bench.look();
    assert_eq!(bench.row(0).checkpoint_owner, None);
    assert_eq!(bench.row(0).owner, Some(worker("java")));
}

/// A lease that was asked for and handed over is begun with at once.
#[test]
fn a_lease_that_was_handed_to_us_is_begun_with() {
    let mut bench = kcl_bench([owned(0, "rich"), owned(1, "rich")]);
    bench.look();
    let asked: Vec<u32> = bench
        .rows
        .values()
        .filter(|row| row.owner == Some(worker("me")))
        .map(|row| number(&row.key))
        .collect();
    assert_eq!(asked.len(), 1, "one is asked for");
    let row = bench.row(asked[0]).clone();
    let release = ops::release(&row, TenureToken::from_random(77), None, None);
    assert!(matches!(bench.change(&release), Outcome::Applied(_)));
    bench.look();
    assert_eq!(bench.acquired().len(), 1);
}

/// A finished row that a worker of the KCL still holds is left to it; one that nobody holds is removed when nothing has
/// needed it for a discovery interval.
#[test]
fn the_tombstone_of_a_live_worker_of_the_kcl_stays() {
    let mut row = owned(0, "java");
    (row.token, row.checkpoint) = (None, Checkpoint::ShardEnd);
    let mut bench = kcl_bench([row]);
    let spent = |bench: &mut Bench| {
        let found = Found { spent: [key(0)].into(), ..Found::default() };
        bench.step(Event::Discovered { began: bench.now, result: Ok(found) });
    };
    for _ in 0..30 {
        bench.run(millis(5_000));
        bench.rows.get_mut(&key(0)).unwrap().counter += 1;
        spent(&mut bench);
    }
    assert!(bench.rows.contains_key(&key(0)), "its owner looks after it");
    bench.run(millis(15_000));
    spent(&mut bench);
    bench.run(millis(1_000));
    assert!(!bench.rows.contains_key(&key(0)), "its owner is gone");
    assert_eq!(bench.acquired(), []);
}

/// S-041, S-057: fleets of ours that share as the KCL does keep what the simulation checks: no write of a former tenure is
/// accepted, no checkpoint goes back, no child begins early, no two believe at once, nothing is without an owner for too long.
#[test]
fn simulated_fleets_that_share_as_the_kcl_does_break_nothing() {
    SIMULATED.set(KCL);
    let violations: Vec<String> =
        (0..60).filter_map(|seed| Some(format!("{seed}: {}", crate::sim::run(seed).violation?))).collect();
    SIMULATED.set(Coordination::Native);
    assert_eq!(violations, [""; 0]);
}
