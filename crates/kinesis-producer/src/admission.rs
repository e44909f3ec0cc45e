//! Back-pressure: who may put records in, and when.

use kinesis_core::OutboundRecord;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::ProducerConfig;
use crate::error::PutError;
use crate::packing::cost;

/// The room in the producer: slots for records that wait and bytes for all records. Whoever waits for room is served
/// in order.
#[derive(Debug)]
pub(crate) struct Admission {
    slots: Semaphore,
    bytes: Semaphore,
    all_slots: usize,
    all_bytes: usize,
}

/// Room that was found. Dropping it gives the room back.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    slots: SemaphorePermit<'a>,
    bytes: SemaphorePermit<'a>,
}

/// The room that records hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    slots: usize,
    bytes: usize,
}

impl Grant<'_> {
    pub(crate) fn room(&self) -> Room {
        Room { slots: self.slots.num_permits(), bytes: self.bytes.num_permits() }
    }

    /// The room is now held by records in the driver.
    pub(crate) fn hand_over(self) {
        self.slots.forget();
        self.bytes.forget();
    }
}

impl Admission {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        Self {
            slots: Semaphore::new(config.buffer_records),
            bytes: Semaphore::new(config.buffer_bytes),
            all_slots: config.buffer_records,
            all_bytes: config.buffer_bytes,
        }
    }

    /// Waits for room for all the records. Cancel-safe: what was not granted is not taken.
    pub(crate) async fn enter(&self, records: &[OutboundRecord]) -> Result<Grant<'_>, PutError> {
        let (slots, bytes) = self.need(records);
        let bytes = self.bytes.acquire_many(bytes).await.map_err(|_| PutError::Closed)?;
        let slots = self.slots.acquire_many(slots).await.map_err(|_| PutError::Closed)?;
        Ok(Grant { slots, bytes })
    }

    /// Room for all the records, if there is any right now and nobody waits for it.
    pub(crate) fn try_enter(&self, records: &[OutboundRecord]) -> Result<Grant<'_>, PutError> {
        let refuse = |error| match error {
            TryAcquireError::Closed => PutError::Closed,
            TryAcquireError::NoPermits => PutError::Full,
        };
        let (slots, bytes) = self.need(records);
        let bytes = self.bytes.try_acquire_many(bytes).map_err(refuse)?;
        let slots = self.slots.try_acquire_many(slots).map_err(refuse)?;
        Ok(Grant { slots, bytes })
    }

    /// What the records need; a batch that is larger than the whole room needs all of it.
    fn need(&self, records: &[OutboundRecord]) -> (u32, u32) {
        let whole = |need: usize, all| u32::try_from(need.min(all)).unwrap_or(u32::MAX);
        (whole(records.len(), self.all_slots), whole(records.iter().map(cost).sum(), self.all_bytes))
    }

    /// Refuses everyone from now on, those who wait too.
    pub(crate) fn close(&self) {
        self.slots.close();
        self.bytes.close();
    }

    /// How full it is with so many records waiting and bytes held, in percent.
    pub(crate) fn utilization(&self, waiting: usize, bytes: usize) -> f64 {
        let share = |used: usize, all: usize| used as f64 / all as f64;
        share(waiting, self.all_slots).max(share(bytes, self.all_bytes)).min(1.0) * 100.0
    }
}

/// The driver's side: makes the room that is held follow what is really there.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Room);

impl Ledger {
    pub(crate) fn take_over(&mut self, room: Room) {
        self.0.slots += room.slots;
        self.0.bytes += room.bytes;
    }

    /// `waiting` records wait for a call and all records count `bytes`.
    pub(crate) fn settle(&mut self, admission: &Admission, waiting: usize, bytes: usize) {
        settle(&admission.slots, &mut self.0.slots, waiting);
        settle(&admission.bytes, &mut self.0.bytes, bytes);
    }
}

/// Records that come back for a retry may need more slots than are free: then all free ones are taken, and none is
/// given back before fewer records wait than slots are held.
fn settle(semaphore: &Semaphore, held: &mut usize, wanted: usize) {
    if wanted < *held {
        semaphore.add_permits(*held - wanted);
        *held = wanted;
    } else if wanted > *held {
        *held += semaphore.forget_permits(wanted - *held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> OutboundRecord {
        OutboundRecord::new("key", "value")
    }

    fn room_for(records: usize) -> Admission {
        Admission::new(&ProducerConfig { buffer_records: records, ..ProducerConfig::default() })
    }

    #[test]
    fn records_that_come_back_take_the_free_slots_and_give_them_back_last() {
        let admission = room_for(4);
        let mut ledger = Ledger::default();
        let grant = admission.try_enter(&vec![record(); 3]).unwrap();
        ledger.take_over(grant.room());
        grant.hand_over();

        // All three went into a call; three others took their place, then the call failed.
        ledger.settle(&admission, 0, 0);
        let grant = admission.try_enter(&vec![record(); 3]).unwrap();
        ledger.take_over(grant.room());
        grant.hand_over();
        ledger.settle(&admission, 6, 0);
        assert_eq!(admission.try_enter(&[record()]).unwrap_err(), PutError::Full);

        ledger.settle(&admission, 4, 0);
        assert_eq!(admission.try_enter(&[record()]).unwrap_err(), PutError::Full);
        ledger.settle(&admission, 3, 0);
        assert!(admission.try_enter(&[record()]).is_ok());
        ledger.settle(&admission, 0, 0);
        assert_eq!(admission.slots.available_permits(), 4);
    }

    #[test]
    fn room_that_is_not_handed_over_comes_back() {
        let admission = room_for(1);
        drop(admission.try_enter(&[record()]).unwrap());
        assert!(admission.try_enter(&[record()]).is_ok());
    }

    #[test]
    fn a_batch_larger_than_the_room_needs_all_of_it() {
        let admission = room_for(2);
        let one = admission.try_enter(&[record()]).unwrap();
        assert_eq!(admission.try_enter(&vec![record(); 5]).unwrap_err(), PutError::Full);
        drop(one);
        assert_eq!(admission.try_enter(&vec![record(); 5]).unwrap().room().slots, 2);
    }

    #[test]
    fn utilization_is_the_fuller_of_slots_and_bytes() {
        let config =
            ProducerConfig { buffer_records: 10, buffer_bytes: 2_000_000, ..ProducerConfig::default() };
        let admission = Admission::new(&config);
        assert_eq!(admission.utilization(0, 0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(admission.utilization(5, 0).to_bits(), 50.0_f64.to_bits());
        assert_eq!(admission.utilization(5, 1_500_000).to_bits(), 75.0_f64.to_bits());
        assert_eq!(admission.utilization(12, 0).to_bits(), 100.0_f64.to_bits());
    }
}
