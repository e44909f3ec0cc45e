//! SplitShard, MergeShards and UpdateShardCount: how shards come from shards.

use std::time::Duration;

use super::Kinesis;
use super::hash::{HashRange, parse_hash_key};
use super::shard::{Shard, shard_number};
use super::stream::{Change, Mode, Status, Stream};
use super::validate::{Addressed, check_range, required, required_shard_id};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{
    MergeShardsInput, Response, SplitShardInput, UpdateShardCountInput, UpdateShardCountOutput,
};
use crate::rule::Rule;

/// What the number of changes of the shard count is limited for.
const DAY: Duration = Duration::from_secs(86_400);

/// A change of the shards, found valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reshard {
    /// The second child starts at `at`.
    Split {
        shard: usize,
        at: u128,
    },
    Merge {
        shard: usize,
        adjacent: usize,
    },
    /// Equal ranges, as far as splits and merges lead there.
    Scale {
        target: usize,
    },
}

impl Kinesis {
    pub(super) fn split_shard(
        &mut self,
        now: Moment,
        input: &SplitShardInput,
    ) -> Result<Response, ServiceError> {
        let id = required_shard_id(input.shard_to_split.as_deref(), "shardToSplit")?;
        let key = required(input.new_starting_hash_key.as_deref(), "newStartingHashKey")?;
        let account = self.settings.account.clone();
        let stream = self.find(input)?;
        self.check_reshardable(stream)?;
        let shard = self.open_shard_number(stream, id)?;
        let range = stream.shards[shard].range;
        // The service wants the new start above the second key of the parent and below its last.
        let at = parse_hash_key(key)
            .filter(|&at| at > range.start.saturating_add(1) && at < range.end)
            .ok_or_else(|| {
                ServiceError::invalid_argument(format!(
                    "NewStartingHashKey {key} used in SplitShard() on shard {id} in stream {} under account {account} \
                     is not both greater than one plus the shard's StartingHashKey {} and less than the shard's \
                     EndingHashKey {}.",
                    stream.name, range.start, range.end
                ))
            })?;
        self.check_shard_quota(1)?;
        self.begin(now, input, Reshard::Split { shard, at })?;
        Ok(Response::Empty)
    }

    pub(super) fn merge_shards(
        &mut self,
        now: Moment,
        input: &MergeShardsInput,
    ) -> Result<Response, ServiceError> {
        let id = required_shard_id(input.shard_to_merge.as_deref(), "shardToMerge")?;
        let other = required_shard_id(input.adjacent_shard_to_merge.as_deref(), "adjacentShardToMerge")?;
        let stream = self.find(input)?;
        self.check_reshardable(stream)?;
        let shard = self.open_shard_number(stream, id)?;
        let adjacent = self.open_shard_number(stream, other)?;
        if !stream.shards[shard].range.is_adjacent_to(stream.shards[adjacent].range) {
            return Err(ServiceError::invalid_argument(format!(
                "Shards {id} and {other} in stream {} under account {} are not an adjacent pair of shards eligible \
                 for merging.",
                stream.name, self.settings.account
            )));
        }
        self.begin(now, input, Reshard::Merge { shard, adjacent })?;
        Ok(Response::Empty)
    }

    pub(super) fn update_shard_count(
        &mut self,
        now: Moment,
        input: &UpdateShardCountInput,
    ) -> Result<Response, ServiceError> {
        let target = check_range(input.target_shard_count, "targetShardCount", 1, i64::from(i32::MAX))?
            .ok_or_else(|| ServiceError::missing("targetShardCount"))?;
        let scaling = required(input.scaling_type.as_deref(), "scalingType")?;
        if scaling != "UNIFORM_SCALING" {
            return Err(ServiceError::constraint(
                &format!("'{scaling}'"),
                "scalingType",
                "satisfy enum value set: [UNIFORM_SCALING]",
            ));
        }
        let stream = self.find(input)?;
        self.check_reshardable(stream)?;
        let current = stream.open.len();
        let counts = format!("Current open shard count: {current}, Target shard count: {target}");
        let factor = self.enforces(Rule::ScaleFactor);
        if factor && target > current.saturating_mul(2) {
            return Err(ServiceError::limit_exceeded(format!(
                "UpdateShardCount cannot scale up over double your current open shard count. {counts}"
            )));
        }
        if factor && target.saturating_mul(2) < current {
            return Err(ServiceError::limit_exceeded(format!(
                "UpdateShardCount cannot scale down below half your current open shard count. {counts}"
            )));
        }
        if self.enforces(Rule::ShardCountChanges) {
            let recent = stream.count_changes.iter().filter(|change| now.since(**change) < DAY).count();
            if recent >= limits::SHARD_COUNT_CHANGES_PER_DAY {
                return Err(ServiceError::limit_exceeded(format!(
                    "UpdateShardCount was called {recent} times for stream {} in the last 24 hours.",
                    stream.name
                )));
            }
        }
        let (stream_name, stream_arn) = (stream.name.clone(), stream.arn.clone());
        self.check_shard_quota(target.saturating_sub(current))?;
        let changes = &mut self.find_mut(input)?.count_changes;
        changes.retain(|change| now.since(*change) < DAY);
        changes.push(now);
        self.begin(now, input, Reshard::Scale { target })?;
        Ok(Response::UpdateShardCount(UpdateShardCountOutput {
            stream_name,
            stream_arn,
            current_shard_count: current,
            target_shard_count: target,
        }))
    }

    fn check_reshardable(&self, stream: &Stream) -> Result<(), ServiceError> {
        stream.require_active(&self.settings.account)?;
        if stream.mode == Mode::OnDemand {
            return Err(ServiceError::validation(format!(
                "Stream {} under account {} is in ON_DEMAND mode: its shards cannot be changed by request.",
                stream.name, self.settings.account
            )));
        }
        Ok(())
    }

    pub(super) fn open_shard_number(&self, stream: &Stream, id: &str) -> Result<usize, ServiceError> {
        let shard = shard_number(id)
            .and_then(|number| stream.shards.get(number))
            .ok_or_else(|| self.shard_not_found(id, &stream.name))?;
        if shard.is_open() {
            return Ok(shard.number);
        }
        Err(ServiceError::invalid_argument(format!(
            "Shard {id} in stream {} under account {} has already been merged or split, and thus is not eligible for \
             merging or splitting.",
            stream.name, self.settings.account
        )))
    }

    /// Puts the stream into `UPDATING`; the change itself happens when the delay is over.
    fn begin(&mut self, now: Moment, input: &impl Addressed, reshard: Reshard) -> Result<(), ServiceError> {
        let due = now.plus(self.settings.reshard_delay);
        let stream = self.find_mut(input)?;
        stream.status = Status::Updating;
        stream.pending = Some((due, Change::Reshard(reshard)));
        self.settle(now);
        Ok(())
    }
}

impl Stream {
    /// Changes the shards.
    pub(super) fn apply(&mut self, reshard: &Reshard, now: Moment) {
        let is_open = |shard: usize| self.shards.get(shard).is_some_and(Shard::is_open);
        match *reshard {
            Reshard::Split { shard, at } if is_open(shard) => self.split(shard, at, now),
            Reshard::Merge { shard, adjacent } if is_open(shard) && is_open(adjacent) => {
                self.merge(shard, adjacent, now);
            }
            Reshard::Scale { target } => self.scale(target, now),
            // Something else was faster.
            Reshard::Split { .. } | Reshard::Merge { .. } => {}
        }
    }

    fn split(&mut self, parent: usize, at: u128, now: Moment) {
        let range = self.close(parent, now);
        for half in [HashRange { start: range.start, end: at - 1 }, HashRange { start: at, end: range.end }] {
            let child = self.open_shard(half, now);
            self.shards[child].parent = Some(parent);
            self.shards[parent].children.push(child);
        }
    }

    fn merge(&mut self, parent: usize, adjacent: usize, now: Moment) -> usize {
        let range = self.close(parent, now).join(self.close(adjacent, now));
        let child = self.open_shard(range, now);
        self.shards[child].parent = Some(parent);
        self.shards[child].adjacent_parent = Some(adjacent);
        for shard in [parent, adjacent] {
            self.shards[shard].children.push(child);
        }
        child
    }

    /// Splits at every boundary that is missing, then merges what lies within one target range. As with the
    /// service, short-lived shards come and go on the way.
    fn scale(&mut self, target: usize, now: Moment) {
        for wanted in HashRange::uniform(target) {
            let within = self.route(wanted.start);
            if self.shards[within].range.start != wanted.start {
                self.split(within, wanted.start, now);
            }
        }
        for wanted in HashRange::uniform(target) {
            let pieces: Vec<_> =
                self.open.range(wanted.start..=wanted.end).map(|(_, &number)| number).collect();
            let mut pieces = pieces.into_iter();
            let first = pieces.next();
            pieces.fold(first, |merged, piece| merged.map(|merged| self.merge(merged, piece, now)));
        }
    }

    /// Closes a shard and returns its range. What is written later gets higher sequence numbers.
    fn close(&mut self, number: usize, now: Moment) -> HashRange {
        let ending = self.sequences.allocate();
        let shard = &mut self.shards[number];
        shard.ending = Some(ending);
        shard.closed = Some(now);
        self.open.remove(&shard.range.start);
        self.woken.extend(&shard.subscribers);
        shard.range
    }
}
