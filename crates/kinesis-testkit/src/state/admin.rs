//! What tests do to the service directly, past quotas and delays.

use super::Kinesis;
use super::reshard::Reshard;
use super::shard::shard_id;
use super::stream::{Mode, Status, Stream};
use super::validate::check_stream_name;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{
    ConsumerInput, MergeShardsInput, PutEntry, SplitShardInput, StreamInput, UpdateShardCountInput,
};
use crate::view::{Placement, ShardView, StoredRecord};

impl Kinesis {
    /// Makes an active stream.
    pub(crate) fn create_now(&mut self, now: Moment, name: &str, shards: usize) -> Result<(), ServiceError> {
        self.settle(now);
        check_stream_name(name)?;
        if shards == 0 {
            return Err(ServiceError::constraint(
                "'0'",
                "shardCount",
                "have value greater than or equal to 1",
            ));
        }
        if self.streams.contains_key(name) {
            return Err(ServiceError::resource_in_use(format!(
                "Stream {name} under account {} already exists.",
                self.settings.account
            )));
        }
        self.check_shard_quota(shards)?;
        let mut stream = self.new_stream(
            now,
            name.to_owned(),
            Mode::Provisioned,
            limits::DEFAULT_MAX_RECORD_KIB,
            std::collections::BTreeMap::new(),
        );
        stream.populate(shards, now);
        stream.status = Status::Active;
        self.streams.insert(stream.name.clone(), stream);
        Ok(())
    }

    /// Removes a stream.
    pub(crate) fn delete_now(&mut self, now: Moment, name: &str) -> Result<(), ServiceError> {
        self.settle(now);
        self.streams.remove(name).ok_or_else(|| self.not_found(name))?;
        self.forget_stream(name);
        Ok(())
    }

    /// Registers a consumer that is active, and returns its ARN.
    pub(crate) fn register_now(
        &mut self,
        now: Moment,
        stream: &str,
        name: &str,
    ) -> Result<String, ServiceError> {
        self.settle(now);
        let input = ConsumerInput {
            stream_arn: Some(self.arn(stream)),
            consumer_name: Some(name.to_owned()),
            consumer_arn: None,
        };
        Ok(self.register(now, &input, std::time::Duration::ZERO)?.consumer_arn)
    }

    /// Stores a record past the write quotas.
    pub(crate) fn put_now(
        &mut self,
        now: Moment,
        name: &str,
        entry: PutEntry,
    ) -> Result<Placement, ServiceError> {
        self.settle(now);
        let (sequence_number, shard_id) = self.put_unlimited(now, name, entry)?;
        Ok(Placement { shard_id: (*shard_id).to_owned(), sequence_number: sequence_number.into() })
    }

    /// Splits a shard at once, in the middle unless `at` says where; returns the children.
    pub(crate) fn split_now(
        &mut self,
        now: Moment,
        name: &str,
        shard: &str,
        at: Option<u128>,
    ) -> Result<Vec<String>, ServiceError> {
        self.settle(now);
        let at = match at {
            Some(at) => at,
            None => {
                let stream = self.existing(name)?;
                let missing = self.shard_not_found(shard, name);
                let range = stream.shard(shard, None).ok_or(missing)?.range;
                range.start + (range.end - range.start) / 2 + 1
            }
        };
        let input = SplitShardInput {
            stream_name: Some(name.to_owned()),
            shard_to_split: Some(shard.to_owned()),
            new_starting_hash_key: Some(at.to_string()),
            ..SplitShardInput::default()
        };
        self.at_once(now, name, |service| service.split_shard(now, &input))
    }

    /// Merges two adjacent shards at once; returns the child.
    pub(crate) fn merge_now(
        &mut self,
        now: Moment,
        name: &str,
        shard: &str,
        adjacent: &str,
    ) -> Result<Vec<String>, ServiceError> {
        let input = MergeShardsInput {
            stream_name: Some(name.to_owned()),
            shard_to_merge: Some(shard.to_owned()),
            adjacent_shard_to_merge: Some(adjacent.to_owned()),
            ..MergeShardsInput::default()
        };
        self.at_once(now, name, |service| service.merge_shards(now, &input))
    }

    /// Scales a stream at once; returns the new shards.
    pub(crate) fn scale_now(
        &mut self,
        now: Moment,
        name: &str,
        target: usize,
    ) -> Result<Vec<String>, ServiceError> {
        let input = UpdateShardCountInput {
            stream_name: Some(name.to_owned()),
            target_shard_count: Some(i64::try_from(target).unwrap_or(i64::MAX)),
            scaling_type: Some("UNIFORM_SCALING".to_owned()),
            ..UpdateShardCountInput::default()
        };
        let made = self.at_once(now, name, |service| service.update_shard_count(now, &input));
        // What a test does directly counts against no quota.
        if let (Ok(_), Some(stream)) = (&made, self.streams.get_mut(name)) {
            stream.count_changes.pop();
        }
        made
    }

    /// Splits a shard, in the middle, once it has taken so many more records.
    pub(crate) fn split_after(
        &mut self,
        now: Moment,
        name: &str,
        shard: &str,
        records: u64,
    ) -> Result<(), ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let number = self.open_shard_number(stream, shard)?;
        let range = stream.shards[number].range;
        if range.end - range.start <= 2 {
            return Err(ServiceError::invalid_argument(format!("Shard {shard} is too narrow for a split.")));
        }
        let at = range.start + (range.end - range.start) / 2 + 1;
        self.change_after(now, name, number, records, Reshard::Split { shard: number, at });
        Ok(())
    }

    /// Merges two adjacent shards once the first has taken so many more records.
    pub(crate) fn merge_after(
        &mut self,
        now: Moment,
        name: &str,
        shard: &str,
        adjacent: &str,
        records: u64,
    ) -> Result<(), ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let number = self.open_shard_number(stream, shard)?;
        let other = self.open_shard_number(stream, adjacent)?;
        if !stream.shards[number].range.is_adjacent_to(stream.shards[other].range) {
            return Err(ServiceError::invalid_argument(format!(
                "Shards {shard} and {adjacent} are not adjacent."
            )));
        }
        self.change_after(now, name, number, records, Reshard::Merge { shard: number, adjacent: other });
        Ok(())
    }

    fn change_after(&mut self, now: Moment, name: &str, shard: usize, records: u64, change: Reshard) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        if records == 0 {
            stream.apply(&change, now);
        } else {
            stream.shards[shard].next_change = Some((records, change));
        }
    }

    /// Does a reshard without its delay; returns the shards that it made.
    fn at_once<T>(
        &mut self,
        now: Moment,
        name: &str,
        change: impl FnOnce(&mut Self) -> Result<T, ServiceError>,
    ) -> Result<Vec<String>, ServiceError> {
        self.settle(now);
        let before = self.existing(name)?.shards.next_number();
        let delay = std::mem::take(&mut self.settings.reshard_delay);
        let done = change(self);
        self.settings.reshard_delay = delay;
        done?;
        let after = self.existing(name)?.shards.next_number();
        Ok((before..after).map(shard_id).collect())
    }

    /// Forgets every record of a shard up to and including `sequence`, as if it had aged out.
    pub(crate) fn trim_now(
        &mut self,
        now: Moment,
        name: &str,
        shard: &str,
        sequence: &str,
    ) -> Result<usize, ServiceError> {
        self.settle(now);
        let missing = self.shard_not_found(shard, name);
        let stream = self.find_serving(&StreamInput::named(name))?;
        let number = stream.shard(shard, None).ok_or(missing)?.number;
        let super::sequence::Parsed::Own { ordinal, .. } = stream.sequences.parse(sequence) else {
            return Err(ServiceError::invalid_argument("The sequence number is not one of this stream."));
        };
        let shard = &mut stream.shards[number];
        Ok(shard.records.forget_first(shard.place_of(ordinal.saturating_add(1))))
    }

    /// Forgets every record of a stream.
    pub(crate) fn clear_now(&mut self, now: Moment, name: &str) -> Result<usize, ServiceError> {
        self.settle(now);
        let stream = self.find_serving(&StreamInput::named(name))?;
        Ok(stream.shards.iter_mut().map(|shard| shard.records.forget_first(usize::MAX)).sum())
    }

    /// How many records the stream holds.
    pub(crate) fn stored_count(&mut self, now: Moment, name: &str) -> Result<usize, ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let horizon = self.horizon(stream, now);
        let old = |shard: &super::shard::Shard| {
            horizon.map_or(0, |horizon| shard.records.first_not(|record| record.arrived <= horizon))
        };
        Ok(stream.shards.iter().map(|shard| shard.records.len() - old(shard)).sum())
    }

    /// Whether the stream is active; none if there is none.
    pub(crate) fn is_active(&mut self, now: Moment, name: &str) -> Option<bool> {
        self.settle(now);
        Some(self.streams.get(name)?.status == Status::Active)
    }

    /// Whether the stream has this consumer and it is active.
    pub(crate) fn consumer_is_active(&mut self, now: Moment, name: &str, consumer: &str) -> bool {
        self.settle(now);
        let found = self.streams.get(name).and_then(|stream| stream.consumers.get(consumer));
        found.is_some_and(super::consumer::Consumer::is_active)
    }

    /// Every stored record in the order of shard and sequence number.
    pub(crate) fn stored(&mut self, now: Moment, name: &str) -> Result<Vec<StoredRecord>, ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let horizon = self.horizon(stream, now);
        let kept = |arrived: Moment| horizon.is_none_or(|horizon| arrived > horizon);
        Ok(stream
            .shards
            .iter()
            .flat_map(|shard| shard.records.iter().map(move |record| (shard, record)))
            .filter(|(_, record)| kept(record.arrived))
            .map(|(shard, record)| StoredRecord {
                shard_id: shard.id(),
                sequence_number: stream.sequences.render(record.ordinal, shard.number).into(),
                partition_key: record.partition_key.as_deref().unwrap_or_default().to_owned(),
                explicit_hash_key: record.explicit_hash_key,
                data: record.data.clone(),
                arrived_at: record.arrived.into(),
            })
            .collect())
    }

    /// Every shard that is still listed, by number.
    pub(crate) fn shard_views(&mut self, now: Moment, name: &str) -> Result<Vec<ShardView>, ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let horizon = self.horizon(stream, now);
        Ok(stream
            .shards
            .iter()
            .filter(|shard| !horizon.is_some_and(|horizon| shard.is_expired(horizon)))
            .map(|shard| ShardView {
                shard_id: shard.id(),
                parents: shard.parent.into_iter().chain(shard.adjacent_parent).map(shard_id).collect(),
                children: shard.children.iter().copied().map(shard_id).collect(),
                starting_hash_key: shard.range.start,
                ending_hash_key: shard.range.end,
                starting_sequence_number: stream.sequences.render(shard.starting, shard.number).into(),
                ending_sequence_number: shard
                    .ending
                    .map(|ending| stream.sequences.render(ending, shard.number).into()),
            })
            .collect())
    }

    pub(super) fn existing(&self, name: &str) -> Result<&Stream, ServiceError> {
        self.streams.get(name).ok_or_else(|| self.not_found(name))
    }
}
