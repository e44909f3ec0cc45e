//! Streams come, go and change their settings.

use super::mode::{Distribution, parse_mode};
use super::stream::{Change, Mode, NewStream, Status, Stream};
use super::validate::{check_range, check_stream_name, required};
use super::{Kinesis, validate};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{CreateStreamInput, MaxRecordSizeInput, Response, RetentionInput, StreamInput, TagsInput};
use crate::rule::Rule;

impl Kinesis {
    pub(super) fn create_stream(
        &mut self,
        now: Moment,
        input: CreateStreamInput,
    ) -> Result<Response, ServiceError> {
        let name = required(input.stream_name.as_deref(), "streamName")?;
        check_stream_name(name)?;
        let mode = parse_mode(input.stream_mode_details.as_ref())?;
        let distribution = match input.record_distribution_strategy.as_deref() {
            Some(text) => Distribution::parse(text)?.check(mode)?,
            None => Distribution::default(),
        };
        let shards = match (mode, check_range(input.shard_count, "shardCount", 1, i64::from(i32::MAX))?) {
            (Mode::Provisioned, Some(count)) => count,
            (Mode::Provisioned, None) => return Err(ServiceError::missing("shardCount")),
            (Mode::OnDemand, None) => limits::ON_DEMAND_SHARDS,
            (Mode::OnDemand, Some(_)) => {
                return Err(ServiceError::validation(
                    "ShardCount cannot be set for a stream in ON_DEMAND mode.",
                ));
            }
        };
        let max_record_kib = check_record_limit(input.max_record_size_in_kib)?;
        if self.streams.contains_key(name) {
            return Err(ServiceError::resource_in_use(format!(
                "Stream {name} under account {} already exists.",
                self.settings.account
            )));
        }
        let creating = self.streams.values().filter(|stream| stream.status == Status::Creating).count();
        if self.enforces(Rule::StreamsInCreation) && creating >= limits::STREAMS_IN_CREATION {
            return Err(ServiceError::limit_exceeded(format!(
                "The account {} has {creating} streams in CREATING already.",
                self.settings.account
            )));
        }
        self.check_shard_quota(shards)?;
        let name = name.to_owned();
        let mut stream = self.new_stream(now, name, mode, max_record_kib, input.tags);
        stream.distribution = distribution;
        let due = now.plus(self.settings.create_delay);
        let stream = self.streams.entry(stream.name.clone()).or_insert(stream);
        stream.populate(shards, now);
        stream.pending = Some((due, Change::Activate));
        self.settle(now);
        Ok(Response::Empty)
    }

    pub(super) fn new_stream(
        &mut self,
        now: Moment,
        name: String,
        mode: Mode,
        max_record_kib: u64,
        tags: std::collections::BTreeMap<String, String>,
    ) -> Stream {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let seed = self.settings.seed.wrapping_add(u64::from(incarnation));
        let arn = self.arn(&name);
        let growing_numbers = self.settings.growing_numbers;
        let usage = self.usage.clone();
        NewStream { name, arn, incarnation, mode, max_record_kib, tags, seed, growing_numbers, usage }
            .build(now)
    }

    /// Fails if `more` open shards would exceed the account's quota.
    pub(super) fn check_shard_quota(&self, more: usize) -> Result<(), ServiceError> {
        let quota = self.settings.shard_quota;
        let open = self.open_shards();
        if !self.enforces(Rule::ShardQuota) || open.saturating_add(more) <= quota {
            return Ok(());
        }
        Err(ServiceError::limit_exceeded(format!(
            "This request would exceed the shard limit for the account {} in {}. Current shard count for the \
             account: {open}. Limit: {quota}. Number of additional shards that would have resulted from this request: \
             {more}.",
            self.settings.account, self.settings.region
        )))
    }

    pub(super) fn delete_stream(
        &mut self,
        now: Moment,
        input: &StreamInput,
    ) -> Result<Response, ServiceError> {
        let account = self.settings.account.clone();
        let due = now.plus(self.settings.delete_delay);
        let stream = self.find_mut(input)?;
        stream.require_active(&account)?;
        stream.status = Status::Deleting;
        stream.pending = Some((due, Change::Delete));
        self.settle(now);
        Ok(Response::Empty)
    }

    pub(super) fn increase_retention(&mut self, input: &RetentionInput) -> Result<Response, ServiceError> {
        self.change_retention(input, |current, wanted| {
            if wanted < current {
                Some("RetentionPeriodHours must not be below the current period.")
            } else {
                None
            }
        })
    }

    pub(super) fn decrease_retention(&mut self, input: &RetentionInput) -> Result<Response, ServiceError> {
        self.change_retention(input, |current, wanted| {
            if wanted > current {
                Some("RetentionPeriodHours must not be above the current period.")
            } else {
                None
            }
        })
    }

    fn change_retention(
        &mut self,
        input: &RetentionInput,
        refuse: impl Fn(u32, u32) -> Option<&'static str>,
    ) -> Result<Response, ServiceError> {
        let hours =
            input.retention_period_hours.ok_or_else(|| ServiceError::missing("retentionPeriodHours"))?;
        let (lowest, highest) = (limits::MIN_RETENTION_HOURS, limits::MAX_RETENTION_HOURS);
        // The model of the service has no range for it: it is an argument that exceeds its restrictions.
        let hours = u32::try_from(hours).ok().filter(|hours| (lowest..=highest).contains(hours)).ok_or_else(
            || {
                ServiceError::invalid_argument(format!(
                    "A retention period has {lowest} to {highest} hours. Requested were {hours}."
                ))
            },
        )?;
        let account = self.settings.account.clone();
        let stream = self.find_mut(input)?;
        stream.require_active(&account)?;
        if let Some(reason) = refuse(stream.retention_hours, hours) {
            return Err(ServiceError::invalid_argument(reason));
        }
        stream.retention_hours = hours;
        Ok(Response::Empty)
    }

    pub(super) fn update_max_record_size(
        &mut self,
        input: &MaxRecordSizeInput,
    ) -> Result<Response, ServiceError> {
        if input.max_record_size_in_kib.is_none() {
            return Err(ServiceError::missing("maxRecordSizeInKiB"));
        }
        let kib = check_record_limit(input.max_record_size_in_kib)?;
        let account = self.settings.account.clone();
        let stream = self.find_mut(input)?;
        stream.require_active(&account)?;
        stream.max_record_kib = kib;
        Ok(Response::Empty)
    }

    pub(super) fn add_tags(&mut self, input: TagsInput) -> Result<Response, ServiceError> {
        if input.tags.is_empty() {
            return Err(ServiceError::missing("tags"));
        }
        self.find_mut(&input)?.tags.extend(input.tags);
        Ok(Response::Empty)
    }
}

/// A stream's record limit in KiB, the default where none is given.
fn check_record_limit(kib: Option<i64>) -> Result<u64, ServiceError> {
    let lowest = limits::DEFAULT_MAX_RECORD_KIB.cast_signed();
    let highest = limits::HIGHEST_MAX_RECORD_KIB.cast_signed();
    let kib = validate::check_range(kib, "maxRecordSizeInKiB", lowest, highest)?;
    Ok(kib.map_or(limits::DEFAULT_MAX_RECORD_KIB, |kib| kib as u64))
}
