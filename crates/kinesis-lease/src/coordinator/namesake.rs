//! Other workers of the same name: one that is gone is our predecessor, one that lives is a mistake.

use std::collections::BTreeMap;
use std::time::Instant;

use kinesis_core::WorkerId;
use kinesis_core::lease::{Lease, LeaseKey, ScanCost};
use tokio::time::sleep;

use super::boot::{Stage, start_error};
use super::calls::Calls;
use super::now;
use crate::machine::Look;
use crate::{Coordination, LeaseConfig, StartError, worker_row};

/// Beside workers of the KCL a row without a token may be that of a live one, too.
fn held_under<'a>(
    name: &'a WorkerId,
    rows: &'a [Lease],
    coordination: Coordination,
) -> impl Iterator<Item = &'a Lease> {
    let counts = move |row: &Lease| row.token.is_some() || coordination == Coordination::KclCompatible;
    rows.iter().filter(move |row| row.holder() == Some(name) && counts(row) && !row.is_finished())
}

/// Watches the leases that are held under our name for one expiry, and our name's row as a worker. Those that stand still
/// are our predecessor's, and are returned with the time since when they do: we may take them at once.
///
/// # Errors
/// [`StartError::Namesake`] when one of them moves, [`StartError::Store`] when they cannot be watched.
pub(super) async fn watch(
    calls: &Calls,
    name: &WorkerId,
    config: &LeaseConfig,
    first: &Look,
) -> Stage<Vec<(Lease, Instant)>> {
    let began = first.started;
    let mut still: BTreeMap<LeaseKey, Lease> =
        held_under(name, &first.rows, calls.coordination).map(|row| (row.key.clone(), row.clone())).collect();
    if !still.is_empty() {
        tracing::info!(worker = %name, leases = still.len(), "leases are held under our name, watching them");
    }
    let between = match calls.store.profile().scan_cost {
        // A counter that moves does so each heartbeat; more reads would only cost more.
        ScanCost::PerRow => config.heartbeat_interval,
        _ => config.look_interval.min(config.expiry),
    };
    let mut failures = 0;
    while !still.is_empty() && now() < began + config.expiry {
        sleep(between).await;
        let keys: Vec<LeaseKey> = still.keys().cloned().collect();
        let rows: Vec<Lease> = match calls.get(&keys).await {
            Ok(rows) => rows.into_iter().flatten().collect(),
            Err(error) => {
                failures += 1;
                if !error.is_retryable() || failures >= TRIES {
                    return Err(start_error(("get", error)));
                }
                continue;
            }
        };
        failures = 0;
        let rows: BTreeMap<&LeaseKey, &Lease> =
            held_under(name, &rows, calls.coordination).map(|row| (&row.key, row)).collect();
        // Released or taken by another worker meanwhile.
        still.retain(|key, _| rows.contains_key(key));
        let moved = still.values().find(|row| rows[&row.key].counter != row.counter).map(|row| &row.key);
        // Its leases may stand still from now on.
        let begun = rows.keys().copied().find(|key| worker_row::is_one(key) && !still.contains_key(*key));
        if let Some(key) = moved.or(begun) {
            // A lease says more than the worker's row that keeps it.
            let key = rows.keys().copied().find(|key| !worker_row::is_one(key)).unwrap_or(key);
            return Err(StartError::Namesake {
                worker: name.clone(),
                key: Box::new(key.clone()),
                token: rows[key].token,
                process: std::process::id(),
            });
        }
    }
    Ok(still.into_values().map(|row| (row, began)).collect())
}

/// Reads that may fail one after the other.
const TRIES: u32 = 5;
