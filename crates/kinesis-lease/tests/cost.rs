//! What leases cost, counted at the store boundary.

#[path = "../examples/cost.rs"]
mod cost;

use std::time::Duration;

use cost::{Cost, kcl, measure};
use kinesis_lease::LeaseConfig;

async fn ratios(look: u64, workers: u32, leases: u32, checkpoints: bool) -> (Cost, Cost) {
    let config = LeaseConfig::default().look_interval(Duration::from_secs(look));
    let ours = measure(&config, workers, leases, checkpoints, Duration::from_secs(look * 60)).await;
    (ours, kcl(workers, leases, checkpoints))
}

/// S-026: an idle lease costs one write each 3 s, a tenth more than the KCL's, and all leases of a worker go together
/// in one call.
#[tokio::test(start_paused = true)]
async fn idle_leases_cost_one_write_each_heartbeat_and_one_call_for_all() {
    for (workers, leases) in [(1, 10), (10, 10), (1, 200)] {
        let (ours, kcl) = ratios(1, workers, leases, false).await;
        assert!(ours.writes / kcl.writes <= 1.105, "{workers}, {leases}: {ours:?} against {kcl:?}");
        assert!(ours.calls <= f64::from(workers) * 0.36, "{workers}, {leases}: {ours:?}");
    }
}

/// A checkpoint is a renewal, too: no write beside it.
#[tokio::test(start_paused = true)]
async fn checkpoints_cost_nothing_but_themselves() {
    for (workers, leases) in [(1, 10), (10, 10), (1, 200)] {
        let (ours, kcl) = ratios(1, workers, leases, true).await;
        assert!(ours.writes <= f64::from(leases) * 1.01, "{workers}, {leases}: {ours:?}");
        assert!(ours.writes / kcl.writes <= 0.78, "{workers}, {leases}: {ours:?} against {kcl:?}");
    }
}

/// Rows read are those of one scan for each worker and look; with a look of 25 s they are the KCL's (some
/// looks follow a discovery too soon to be needed).
#[tokio::test(start_paused = true)]
async fn reads_are_one_scan_for_each_worker_and_look() {
    for (workers, leases) in [(1, 10), (10, 10), (2, 200)] {
        let (ours, _) = ratios(1, workers, leases, false).await;
        let expected = f64::from(workers * leases);
        assert!((ours.rows_read / expected - 1.0).abs() < 0.1, "{ours:?}");
        let (ours, kcl) = ratios(25, workers, leases, false).await;
        assert!(ours.rows_read / kcl.rows_read <= 1.02, "{ours:?} against {kcl:?}");
    }
}
