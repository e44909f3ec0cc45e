//! The row that shows that a whole worker lives: an ordinary row, so that every store can have it, beside the leases of
//! its stream and under the name of a shard that no service gives.

use kinesis_core::lease::{Lease, LeaseKey, PrivateValue, TenureToken};
use kinesis_core::{Checkpoint, ShardId, WorkerId};

/// Names of shards have no colon.
const PREFIX: &str = "worker:";

/// The private attribute that names a shard whose lease somebody has asked the worker for.
pub(crate) const ASKED_FOR: &str = "asked_for";

/// Whether a row is that of a worker and no lease.
pub(crate) fn is_one(key: &LeaseKey) -> bool {
    key.shard().as_str().starts_with(PREFIX)
}

/// The key of a worker's row, beside that lease.
pub(crate) fn key(beside: &LeaseKey, worker: &WorkerId) -> LeaseKey {
    // A worker's name can be longer than that of a shard, and have dividers of keys in it.
    let name = format!("{PREFIX}{:032x}", hash(worker.as_str()));
    beside.sibling(ShardId::new(name).expect("39 letters"))
}

/// FNV-1a. Two names with one hash do no harm: the second worker is refused, and renews its leases one by one.
fn hash(text: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// A worker's first row.
pub(crate) fn new(key: LeaseKey, worker: &WorkerId, token: TenureToken, counter: u64) -> Lease {
    let mut row = Lease::new(key, Checkpoint::TrimHorizon);
    row.owner = Some(worker.clone());
    row.token = Some(token);
    row.counter = counter;
    row
}

/// The shard whose lease somebody has asked this worker for, if its row says so.
pub(crate) fn asked_for(row: &Lease) -> Option<ShardId> {
    match row.private.get(ASKED_FOR) {
        Some(PrivateValue::Text(shard)) => ShardId::new(shard.as_str()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also names of 2,048 bytes have a key; it is not that of a shard, and no two are the same.
    #[test]
    fn each_worker_has_a_key_that_no_shard_has() {
        let beside = crate::sim::key(0);
        let worker = |name: &str| WorkerId::new(name).unwrap();
        let keys = [worker("a"), worker("b"), worker("a|b:c"), worker(&"x".repeat(2_048))]
            .map(|worker| key(&beside, &worker));
        assert!(keys.iter().all(is_one) && !is_one(&beside));
        assert!(keys.iter().all(|key| key.shard().as_str().len() == 39));
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), 4);
        // From the reference of the function, so that workers of all versions meet at one row.
        assert_eq!(keys[0].shard().as_str(), "worker:d228cb696f1a8caf78912b704e4a8964");
    }
}
