//! The way from records to the queue: packed, and packed anew when the shards turn out to be others.

use std::time::Instant;

use kinesis_core::directory::ShardInfo;

use super::{Action, Batcher};
use crate::error::RecordErrorKind;
use crate::packing::{Listed, Load, Parcel, Put};

impl<P: Put> Batcher<P> {
    /// Gives a record to the packer, or keeps it until the shards are known.
    pub(super) fn pack(&mut self, load: Load<P>) {
        match self.atlas.address(load.put.record()) {
            Some(address) => {
                let mut parcels = Vec::new();
                self.packer.push(load, address, &mut parcels);
                self.enqueue(parcels);
            }
            None => self.unaddressed.push_back(load),
        }
    }

    fn enqueue(&mut self, parcels: Vec<Parcel<P>>) {
        for parcel in parcels {
            self.held_bytes += parcel.own_bytes;
            self.queue.push(parcel);
        }
    }

    /// Closes the aggregates whose time has come. While no call can start they go on growing.
    pub(super) fn close_due(&mut self, now: Instant) {
        let Some((_, oldest)) = self.packer.oldest() else { return };
        let lingered = |admitted: Instant| admitted + self.settings.linger <= now;
        let front_lingered = self.queue.front().is_some_and(|front| lingered(front.admitted));
        let expired = oldest + self.settings.delivery_timeout <= now;
        // One call takes them all.
        let all = expired || (self.can_start(now) && (lingered(oldest) || front_lingered));
        if let Some(through) = if all { Some(u64::MAX) } else { self.urgent_through } {
            let mut parcels = Vec::new();
            self.packer.close_through(through, &mut parcels);
            self.enqueue(parcels);
        }
    }

    /// Gives up what is too old.
    pub(super) fn expire(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        let is_late = |admitted: Instant| admitted + self.settings.delivery_timeout <= now;
        let mut late = Vec::new();
        while self.queue.front().is_some_and(|front| is_late(front.admitted)) {
            late.extend(self.queue.pop_front());
        }
        let strays = self.strays.extract_if(.., |stray| is_late(stray.admitted()));
        let strays: Vec<_> = strays.map(super::Stray::into_parcel).collect();
        let mut loads = Vec::new();
        while self.unaddressed.front().is_some_and(|load| is_late(load.admitted)) {
            loads.extend(self.unaddressed.pop_front());
        }
        for parcel in late.into_iter().chain(strays) {
            self.fail(parcel, RecordErrorKind::Expired, None, actions);
        }
        for load in loads {
            self.fail_load(load, RecordErrorKind::Expired, None, actions);
        }
    }

    /// A listing of the shards ended.
    pub(super) fn listed(
        &mut self,
        now: Instant,
        shards: Option<Vec<ShardInfo>>,
        actions: &mut Vec<Action<P>>,
    ) {
        let listed = self.atlas.listed(now, shards);
        if listed == Listed::Unpredictable {
            actions.push(Action::Unpredictable);
        }
        let mut anew: Vec<Load<P>> = Vec::new();
        if listed != Listed::AsBefore {
            anew.extend(self.packer.take_all());
            anew.extend(self.unaddressed.drain(..));
            let atlas = &self.atlas;
            let homeless = |parcel: &Parcel<P>| {
                parcel.mixed && parcel.shard.as_ref().is_some_and(|shard| atlas.range(shard).is_none())
            };
            for parcel in self.queue.take_if(homeless) {
                self.held_bytes -= parcel.own_bytes;
                anew.extend(parcel.unpack());
            }
        }
        // In the order of admission, so that the order within each key is kept.
        anew.sort_by_key(|load| load.serial);
        anew.into_iter().for_each(|load| self.pack(load));
        for stray in std::mem::take(&mut self.strays) {
            self.judge(now, stray, actions);
        }
    }
}
