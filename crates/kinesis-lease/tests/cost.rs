//! What leases cost, counted at the store boundary.

#[path = "../examples/cost.rs"]
mod cost;

use std::time::Duration;

use cost::{Cost, Kind, kcl, measure};
use kinesis_lease::LeaseConfig;

/// Long enough for many looks at all rows.
const LONG: Duration = Duration::from_secs(606);

async fn ratios(kind: Kind, workers: u32, leases: u32, checkpoints: bool) -> (Cost, Cost) {
    let time = if kind == Kind::Sql { Duration::from_secs(60) } else { LONG };
    let ours = measure(kind, &LeaseConfig::default(), workers, leases, checkpoints, time).await;
    (ours, kcl(workers, leases, checkpoints))
}

/// S-026: an idle lease costs one write each 3 s, a tenth more than the KCL's, and all leases of a worker go together
/// in one call.
#[tokio::test(start_paused = true)]
async fn idle_leases_cost_one_write_each_heartbeat_and_one_call_for_all() {
    for (workers, leases) in [(1, 10), (10, 10), (1, 200)] {
        let (ours, kcl) = ratios(Kind::Sql, workers, leases, false).await;
        assert!(ours.writes / kcl.writes <= 1.105, "{workers}, {leases}: {ours:?} against {kcl:?}");
        assert!(ours.calls <= f64::from(workers) * 0.36, "{workers}, {leases}: {ours:?}");
    }
}

/// With one heartbeat for a whole worker, idle leases cost one write for each worker and 3 s, however many they are, and no
/// read more.
#[tokio::test(start_paused = true)]
async fn idle_leases_with_a_worker_heartbeat_cost_one_write_for_each_worker() {
    let config = LeaseConfig::default().worker_heartbeat(true);
    for (kind, workers, leases) in [(Kind::Sql, 1, 1_000), (Kind::Sql, 4, 100), (Kind::DynamoDb, 1, 1_000)] {
        let time = if kind == Kind::Sql { Duration::from_secs(60) } else { LONG };
        let ours = measure(kind, &config, workers, leases, false, time).await;
        let expected = f64::from(workers) / 3.0;
        assert!((0.98..=1.02).contains(&(ours.writes / expected)), "{kind:?}, {workers}, {leases}: {ours:?}");
        assert!(ours.calls <= expected * 1.02, "{kind:?}, {workers}, {leases}: {ours:?}");
        let rows = f64::from(leases + workers) * f64::from(workers);
        let looks = if kind == Kind::Sql { 1.1 } else { 1.0 / 20.0 + 1.0 / LONG.as_secs_f64() };
        assert!(ours.rows_read <= rows * looks, "{kind:?}, {workers}, {leases}: {ours:?}");
    }
}

/// A checkpoint is a renewal, too, with no write beside it, and one a second is stored each other second: at most half of
/// the KCL's writes.
#[tokio::test(start_paused = true)]
async fn checkpoints_a_second_cost_at_most_half_of_the_writes_of_the_kcl() {
    for (workers, leases) in [(1, 10), (10, 10), (1, 200)] {
        let (ours, kcl) = ratios(Kind::Sql, workers, leases, true).await;
        assert!(ours.writes <= f64::from(leases) * 0.51, "{workers}, {leases}: {ours:?}");
        assert!(ours.writes / kcl.writes <= 0.5, "{workers}, {leases}: {ours:?} against {kcl:?}");
    }
}

/// Where a scan is one cheap statement, rows read are those of one scan for each worker and look.
#[tokio::test(start_paused = true)]
async fn reads_are_one_scan_for_each_worker_and_look() {
    for (workers, leases) in [(1, 10), (10, 10), (2, 200)] {
        let (ours, _) = ratios(Kind::Sql, workers, leases, false).await;
        let expected = f64::from(workers * leases);
        // Looks are up to a tenth less than a second apart, and a discovery is one, too.
        assert!((1.0..1.1).contains(&(ours.rows_read / expected)), "{workers}, {leases}: {ours:?}");
    }
}

/// Where each row read is paid for, the rows that scans read are at most those of the KCL; by key each worker reads two
/// rows more for each of them, and the item with the hints each second.
#[tokio::test(start_paused = true)]
async fn reads_that_are_paid_for_are_those_of_the_kcl() {
    for kind in [Kind::DynamoDb, Kind::Shared] {
        for (workers, leases, checkpoints) in [(1, 10, false), (3, 30, true), (4, 100, false)] {
            let (ours, kcl) = ratios(kind, workers, leases, checkpoints).await;
            let scanned = ours.rows_read - ours.by_key;
            // It may begin and end with a look of each worker.
            let edge = f64::from(workers * leases) / LONG.as_secs_f64();
            assert!(
                scanned <= kcl.rows_read + edge,
                "{kind:?}, {workers}, {leases}: {ours:?} against {kcl:?}"
            );
            assert!(
                scanned / kcl.rows_read >= 0.95,
                "{kind:?}, {workers}, {leases}: {ours:?} against {kcl:?}"
            );
            let watched = f64::from(workers * (workers - 1).min(2)) / 20.0;
            assert!(ours.by_key <= watched, "{kind:?}, {workers}, {leases}: {ours:?}");
            assert!(ours.by_key >= watched * 0.85, "{kind:?}, {workers}, {leases}: {ours:?}");
            let hints = if kind == Kind::DynamoDb { f64::from(workers) } else { 0.0 };
            assert!((ours.hints_read - hints).abs() < 0.02 * hints.max(1.0), "{ours:?}");
        }
    }
}
