//! The read-only side of the control plane: descriptions and lists.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::shard::{Shard, shard_number};
use super::stream::{Stream, no_metrics};
use super::validate::{check_range, check_stream_name, required, required_shard_id};
use super::{Kinesis, Status};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{
    DescribeStreamInput, DescribeStreamOutput, DescribeStreamSummaryOutput, ListShardsInput,
    ListShardsOutput, ListStreamsInput, ListStreamsOutput, Response, ShardFilterInput, StreamDescription,
    StreamDescriptionSummary, StreamInput, StreamSummary, Timestamp,
};
use crate::rule::Rule;

/// Streams of one ListStreams reply, or shards of one DescribeStream reply, where the request sets no limit.
const DEFAULT_PAGE: usize = 100;
/// The highest limit of both.
const HIGHEST_PAGE: i64 = 10_000;

/// Which shards a ListShards call wants. The times are fixed with the first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    All,
    After(usize),
    OpenAt(Moment),
    Latest,
    From(Moment),
}

impl Filter {
    fn matches(self, shard: &Shard) -> bool {
        match self {
            Self::All => true,
            Self::After(number) => shard.number > number,
            Self::OpenAt(time) => shard.opened <= time && shard.closed.is_none_or(|closed| closed > time),
            Self::Latest => shard.is_open(),
            Self::From(time) => shard.closed.is_none_or(|closed| closed > time),
        }
    }

    /// The filter in a token.
    fn encode(self) -> String {
        match self {
            Self::All => "a".to_owned(),
            Self::After(number) => format!("n{number}"),
            // To the nanosecond: a shard that was opened at this very moment must stay in.
            Self::OpenAt(time) => format!("o{}", time.nanos()),
            Self::Latest => "l".to_owned(),
            Self::From(time) => format!("f{}", time.nanos()),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(1)?;
        Some(match kind {
            "a" => Self::All,
            "n" => Self::After(rest.parse().ok()?),
            "o" => Self::OpenAt(Moment::from_nanos(rest.parse().ok()?)),
            "l" => Self::Latest,
            "f" => Self::From(Moment::from_nanos(rest.parse().ok()?)),
            _ => return None,
        })
    }
}

/// Where a ListShards goes on: everything that the following page needs, so that it takes the token alone.
struct Page {
    stream: String,
    incarnation: u32,
    issued: Moment,
    filter: Filter,
    /// The first shard number that has not been listed.
    next: usize,
}

impl Page {
    fn encode(&self) -> String {
        STANDARD.encode(format!(
            "{}/{}/{}/{}/{}",
            self.stream,
            self.incarnation,
            self.issued.millis(),
            self.filter.encode(),
            self.next
        ))
    }

    fn decode(token: &str) -> Option<Self> {
        let text = String::from_utf8(STANDARD.decode(token).ok()?).ok()?;
        let mut parts = text.split('/');
        let page = Self {
            stream: parts.next()?.to_owned(),
            incarnation: parts.next()?.parse().ok()?,
            issued: Moment::from_millis(parts.next()?.parse().ok()?),
            filter: Filter::decode(parts.next()?)?,
            next: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(page)
    }
}

/// The stream that a ListShards token belongs to.
pub(crate) fn stream_of_token(token: &str) -> Option<String> {
    Page::decode(token).map(|page| page.stream)
}

impl Kinesis {
    pub(super) fn list_shards(&self, now: Moment, input: &ListShardsInput) -> Result<Response, ServiceError> {
        let limit = check_range(input.max_results, "maxResults", 1, HIGHEST_PAGE)?
            .unwrap_or(limits::LIST_SHARDS_PER_CALL)
            .min(limits::LIST_SHARDS_PER_CALL);
        let page = match input.next_token.as_deref() {
            Some(token) => self.following_page(now, input, token)?,
            None => self.first_page(now, input)?,
        };
        let stream = self
            .streams
            .get(&page.stream)
            .filter(|stream| stream.incarnation == page.incarnation)
            .ok_or_else(|| self.not_found(&page.stream))?;
        if matches!(stream.status, Status::Creating | Status::Deleting) {
            stream.require_active(&self.settings.account)?;
        }
        let horizon = self.horizon(stream, now);
        let mut wanted = stream
            .shards
            .from(page.next)
            .filter(|shard| page.filter.matches(shard) && self.is_listed(now, shard, horizon));
        let shards = wanted.by_ref().take(limit).map(|shard| stream.shard_output(shard)).collect();
        let next_token = wanted.next().map(|shard| Page { next: shard.number, issued: now, ..page }.encode());
        Ok(Response::ListShards(ListShardsOutput { shards, next_token }))
    }

    /// Whether lists of shards show the shard: it has not expired, and its birth has got around.
    fn is_listed(&self, now: Moment, shard: &Shard, horizon: Option<Moment>) -> bool {
        let lag =
            if self.enforces(Rule::ShardListLag) { self.settings.shard_list_lag } else { Duration::ZERO };
        // The first shards are there with the stream.
        let known = shard.parent.is_none() || shard.opened.plus(lag) <= now;
        known && !horizon.is_some_and(|horizon| shard.is_expired(horizon))
    }

    fn first_page(&self, now: Moment, input: &ListShardsInput) -> Result<Page, ServiceError> {
        let stream = self.find(input)?;
        if let Some(Timestamp(created)) = input.stream_creation_timestamp
            && created.millis() != stream.created.millis()
        {
            return Err(self.not_found(&stream.name));
        }
        let mut next = 0;
        if let Some(id) = input.exclusive_start_shard_id.as_deref() {
            let number = shard_number(required_shard_id(Some(id), "exclusiveStartShardId")?);
            next = number.ok_or_else(|| self.shard_not_found(id, &stream.name))? + 1;
        }
        let filter = match &input.shard_filter {
            Some(filter) => self.filter(stream, now, filter)?,
            None => Filter::All,
        };
        Ok(Page { stream: stream.name.clone(), incarnation: stream.incarnation, issued: now, filter, next })
    }

    fn following_page(
        &self,
        now: Moment,
        input: &ListShardsInput,
        token: &str,
    ) -> Result<Page, ServiceError> {
        let named = input.stream_name.is_some()
            || input.exclusive_start_shard_id.is_some()
            || input.stream_creation_timestamp.is_some();
        if named {
            return Err(ServiceError::invalid_argument(
                "NextToken cannot be provided together with StreamName, StreamCreationTimestamp or \
                 ExclusiveStartShardId.",
            ));
        }
        let page = Page::decode(token).ok_or_else(|| ServiceError::invalid_argument("Invalid NextToken."))?;
        if self.enforces(Rule::NextTokenLife) && now.since(page.issued) > limits::NEXT_TOKEN_LIFE {
            return Err(ServiceError::expired_next_token("The NextToken has expired."));
        }
        Ok(page)
    }

    fn filter(&self, stream: &Stream, now: Moment, input: &ShardFilterInput) -> Result<Filter, ServiceError> {
        // A stream younger than its retention period has its horizon at its creation.
        let horizon = self.horizon(stream, now).unwrap_or(Moment::EPOCH).max(stream.created);
        let timestamp = || {
            let Timestamp(time) =
                input.timestamp.ok_or_else(|| ServiceError::missing("shardFilter.timestamp"))?;
            Ok(time.max(horizon))
        };
        Ok(match required(input.kind.as_deref(), "shardFilter.type")? {
            "AFTER_SHARD_ID" => {
                let id = required_shard_id(input.shard_id.as_deref(), "shardFilter.shardId")?;
                Filter::After(shard_number(id).ok_or_else(|| self.shard_not_found(id, &stream.name))?)
            }
            "AT_TRIM_HORIZON" => Filter::OpenAt(horizon),
            "FROM_TRIM_HORIZON" => Filter::From(horizon),
            "AT_LATEST" => Filter::Latest,
            "AT_TIMESTAMP" => Filter::OpenAt(timestamp()?),
            "FROM_TIMESTAMP" => Filter::From(timestamp()?),
            other => {
                return Err(ServiceError::constraint(
                    &format!("'{other}'"),
                    "shardFilter.type",
                    "satisfy enum value set: [AFTER_SHARD_ID, AT_TRIM_HORIZON, FROM_TRIM_HORIZON, AT_LATEST, \
                     AT_TIMESTAMP, FROM_TIMESTAMP]",
                ));
            }
        })
    }

    pub(super) fn describe_stream_summary(&self, input: &StreamInput) -> Result<Response, ServiceError> {
        let stream = self.find(input)?;
        Ok(Response::DescribeStreamSummary(DescribeStreamSummaryOutput {
            stream_description_summary: StreamDescriptionSummary {
                stream_name: stream.name.clone(),
                stream_arn: stream.arn.clone(),
                stream_status: stream.status.name(),
                stream_mode_details: stream.mode.output(),
                retention_period_hours: stream.retention_hours,
                stream_creation_timestamp: Timestamp(stream.created),
                enhanced_monitoring: no_metrics(),
                encryption_type: stream.encryption_type(),
                key_id: stream.encryption.as_ref().map(|encryption| encryption.key_id.clone()),
                record_distribution_strategy: stream.distribution_name(),
                open_shard_count: if stream.status == Status::Creating { 0 } else { stream.open.len() },
                consumer_count: stream.consumers.len(),
                max_record_size_in_kib: stream.max_record_kib,
            },
        }))
    }

    pub(super) fn describe_stream(
        &self,
        now: Moment,
        input: &DescribeStreamInput,
    ) -> Result<Response, ServiceError> {
        let limit = check_range(input.limit, "limit", 1, HIGHEST_PAGE)?.unwrap_or(DEFAULT_PAGE);
        let stream = self.find(input)?;
        let start = match input.exclusive_start_shard_id.as_deref() {
            Some(id) => shard_number(id).ok_or_else(|| self.shard_not_found(id, &stream.name))? + 1,
            None => 0,
        };
        let horizon = self.horizon(stream, now);
        let visible = stream.status != Status::Creating;
        let mut wanted =
            stream.shards.from(start).filter(|shard| visible && self.is_listed(now, shard, horizon));
        let shards = wanted.by_ref().take(limit).map(|shard| stream.shard_output(shard)).collect();
        let has_more_shards = wanted.next().is_some();
        Ok(Response::DescribeStream(DescribeStreamOutput {
            stream_description: StreamDescription {
                stream_name: stream.name.clone(),
                stream_arn: stream.arn.clone(),
                stream_status: stream.status.name(),
                stream_mode_details: stream.mode.output(),
                shards,
                has_more_shards,
                retention_period_hours: stream.retention_hours,
                stream_creation_timestamp: Timestamp(stream.created),
                enhanced_monitoring: no_metrics(),
                encryption_type: stream.encryption_type(),
                key_id: stream.encryption.as_ref().map(|encryption| encryption.key_id.clone()),
            },
        }))
    }

    pub(super) fn list_streams(&self, input: &ListStreamsInput) -> Result<Response, ServiceError> {
        let limit = check_range(input.limit, "limit", 1, HIGHEST_PAGE)?.unwrap_or(DEFAULT_PAGE);
        // The token is the name that the page before ended with.
        let after = input.next_token.as_deref().or(input.exclusive_start_stream_name.as_deref());
        if let Some(name) = after {
            check_stream_name(name)?;
        }
        let mut wanted =
            self.streams.values().filter(|stream| after.is_none_or(|name| stream.name.as_str() > name));
        let page: Vec<_> = wanted.by_ref().take(limit).collect();
        let has_more_streams = wanted.next().is_some();
        let last = page.last().map(|stream| stream.name.clone());
        Ok(Response::ListStreams(ListStreamsOutput {
            stream_names: page.iter().map(|stream| stream.name.clone()).collect(),
            has_more_streams,
            next_token: last.filter(|_| has_more_streams),
            stream_summaries: page
                .iter()
                .map(|stream| StreamSummary {
                    stream_name: stream.name.clone(),
                    stream_arn: stream.arn.clone(),
                    stream_status: stream.status.name(),
                    stream_mode_details: stream.mode.output(),
                    stream_creation_timestamp: Timestamp(stream.created),
                })
                .collect(),
        }))
    }
}
