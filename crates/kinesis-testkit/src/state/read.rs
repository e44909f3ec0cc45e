//! GetShardIterator and GetRecords.

use super::iterator::{self, ShardIterator};
use super::position::Start;
use super::shard::{Shard, Stored, shard_id};
use super::stream::{Stream, hash_output};
use super::validate::{check_range, required, required_shard_id};
use super::{Kinesis, Status};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::faults::RecordFaults;
use crate::limits;
use crate::model::{
    Blob, ChildShard, GetRecordsInput, GetRecordsOutput, GetShardIteratorInput, GetShardIteratorOutput,
    RecordOutput, Response, Timestamp,
};
use crate::rule::Rule;

impl Kinesis {
    pub(super) fn get_shard_iterator(
        &mut self,
        now: Moment,
        input: &GetShardIteratorInput,
    ) -> Result<Response, ServiceError> {
        let id = required_shard_id(input.shard_id.as_deref(), "shardId")?;
        let kind = required(input.shard_iterator_type.as_deref(), "shardIteratorType")?;
        let account = self.settings.account.clone();
        let (limited, future_refused) =
            (self.enforces(Rule::IteratorCallRate), self.enforces(Rule::FutureTimestamp));
        let retention = self.enforces(Rule::Retention);

        let stream_name = self.find_serving(input)?.name.clone();
        let missing = self.shard_not_found(id, &stream_name);
        let stream = self.find_serving(input)?;
        let horizon = stream.horizon(now).filter(|_| retention);
        let shard = stream.shard(id, horizon).ok_or(missing)?.number;
        let start = Start {
            operation: "GetShardIterator",
            member: "shardIteratorType",
            kind,
            sequence_number: input.starting_sequence_number.as_deref(),
            timestamp: input.timestamp,
        };
        let position = start.resolve(now, stream, shard, &account, future_refused)?;
        input.dry_run.check()?;
        let quota = &mut stream.shards[shard].quotas.iterator_calls;
        if limited {
            if !quota.holds(now, 1) {
                return Err(rate_exceeded(id, &stream.name, &account));
            }
            quota.take(now, 1);
        }
        let shard_iterator = ShardIterator {
            stream: stream_name,
            incarnation: stream.incarnation,
            shard,
            position,
            issued: now,
        }
        .encode();
        Ok(Response::GetShardIterator(GetShardIteratorOutput { shard_iterator }))
    }

    pub(super) fn get_records(
        &mut self,
        now: Moment,
        input: &GetRecordsInput,
        faults: &RecordFaults,
    ) -> Result<Response, ServiceError> {
        let token = required(input.shard_iterator.as_deref(), "shardIterator")?;
        let sized = self.enforces(Rule::ReadPageSize);
        let (highest, most_bytes) = if sized {
            (limits::READ_RECORDS_PER_CALL, limits::READ_BYTES_PER_CALL)
        } else {
            (usize::MAX, u64::MAX)
        };
        let accepted = i64::try_from(highest).unwrap_or(i64::MAX);
        let limit = check_range(input.limit, "limit", 1, accepted)?.unwrap_or(highest);
        let from = iterator::decode(token)
            .ok_or_else(|| ServiceError::invalid_argument("Invalid ShardIterator."))?;
        if self.enforces(Rule::IteratorLife) && now.since(from.issued) > self.settings.iterator_life {
            return Err(ServiceError::expired_iterator(format!(
                "Iterator expired. The iterator was created at time {} while right now it is {} which is further in \
                 the future than the tolerated delay of {} milliseconds.",
                from.issued.millis(),
                now.millis(),
                self.settings.iterator_life.as_millis()
            )));
        }
        if input.stream_arn.as_ref().is_some_and(|arn| *arn != self.arn(&from.stream)) {
            return Err(ServiceError::invalid_argument("The StreamARN is not that of the ShardIterator."));
        }
        let (calls_limited, bytes_limited) =
            (self.enforces(Rule::ReadCallRate), self.enforces(Rule::ReadByteRate));
        let retention = self.enforces(Rule::Retention);
        let (tells_lag, tells_children) =
            (self.enforces(Rule::MillisBehindLatest), self.enforces(Rule::ChildShards));
        self.check_key(&from.stream)?;
        let account = self.settings.account.clone();
        let missing = self.not_found(&from.stream);
        let no_shard = self.shard_not_found(&from.shard_id(), &from.stream);

        let stream = self
            .streams
            .get_mut(&from.stream)
            .filter(|stream| stream.incarnation == from.incarnation && stream.status != Status::Creating)
            .ok_or(missing)?;
        let horizon = stream.horizon(now).filter(|_| retention);
        let expired = |shard: &Shard| horizon.is_some_and(|horizon| shard.is_expired(horizon));
        let shard = stream.shards.get_mut(from.shard).filter(|shard| !expired(shard)).ok_or(no_shard)?;
        if let Some(horizon) = horizon {
            shard.trim(horizon);
        }
        input.dry_run.check()?;
        let allowed = (!calls_limited || shard.quotas.read_calls.holds(now, 1))
            && (!bytes_limited || shard.quotas.read_bytes.holds(now, 1));
        if !allowed {
            return Err(rate_exceeded(&shard.id(), &stream.name, &account));
        }
        shard.quotas.read_calls.take(now, 1);

        let limit = if faults.empty_page().is_some() { 0 } else { limit };
        let page = Page::of(shard, from.position, limit, most_bytes);
        shard.quotas.read_bytes.take(now, page.bytes);
        let shard = &stream.shards[from.shard];
        let ended = !shard.is_open() && !page.leaves_unread(shard) && faults.empty_page().is_none();
        let position = page.position(shard, from.position);
        Ok(Response::GetRecords(GetRecordsOutput {
            records: page.records(stream, shard),
            next_shard_iterator: (!ended).then(|| ShardIterator { position, issued: now, ..from }.encode()),
            millis_behind_latest: faults
                .empty_page()
                .unwrap_or_else(|| if tells_lag { page.millis_behind(shard, now) } else { 0 }),
            child_shards: (ended && tells_children).then(|| children(stream, shard)),
        }))
    }
}

/// Consecutive records of a shard that one reply or event carries.
pub(super) struct Page {
    first: usize,
    pub(super) count: usize,
    pub(super) bytes: u64,
}

impl Page {
    /// As many records from `position` on as fit.
    pub(super) fn of(shard: &Shard, position: u64, records: usize, most_bytes: u64) -> Self {
        let first = shard.place_of(position);
        let (mut count, mut bytes) = (0, 0);
        for record in shard.records.from(first..).take(records) {
            let size = record.size();
            // A record that is larger than a page may be is still returned, alone.
            if count > 0 && bytes + size > most_bytes {
                break;
            }
            count += 1;
            bytes += size;
        }
        Self { first, count, bytes }
    }

    fn end(&self) -> usize {
        self.first + self.count
    }

    /// The last record of the page.
    pub(super) fn last<'a>(&self, shard: &'a Shard) -> Option<&'a Stored> {
        if self.count == 0 { None } else { shard.records.get(self.end() - 1) }
    }

    pub(super) fn leaves_unread(&self, shard: &Shard) -> bool {
        shard.records.len() > self.end()
    }

    /// The lowest ordinal after the page; where it began if it is empty.
    pub(super) fn position(&self, shard: &Shard, began: u64) -> u64 {
        self.last(shard).map_or(began, |last| last.ordinal + 1)
    }

    pub(super) fn records(&self, stream: &Stream, shard: &Shard) -> Vec<RecordOutput> {
        let encryption_type = stream.encryption_of_records();
        let records = shard.records.from(self.first..);
        records
            .take(self.count)
            .map(|record| RecordOutput {
                sequence_number: stream.sequences.render(record.ordinal, shard.number),
                approximate_arrival_timestamp: Timestamp(record.arrived),
                data: Blob(record.data.clone()),
                partition_key: record.partition_key.clone(),
                encryption_type,
            })
            .collect()
    }

    pub(super) fn millis_behind(&self, shard: &Shard, now: Moment) -> u64 {
        if !self.leaves_unread(shard) {
            return 0;
        }
        // Zero means caught up, so what is behind by less than a millisecond says one.
        let newest_read = self.last(shard).or_else(|| shard.records.get(self.first));
        newest_read.map_or(0, |record| now.millis().saturating_sub(record.arrived.millis()).max(1))
    }
}

/// The children as they are told at the end of their parent.
pub(super) fn children(stream: &Stream, shard: &Shard) -> Vec<ChildShard> {
    let child = |number: &usize| {
        let child = &stream.shards[*number];
        ChildShard {
            shard_id: child.id(),
            parent_shards: child.parent.into_iter().chain(child.adjacent_parent).map(shard_id).collect(),
            hash_key_range: hash_output(child.range),
        }
    };
    shard.children.iter().map(child).collect()
}

pub(super) fn rate_exceeded(shard: &str, stream: &str, account: &str) -> ServiceError {
    ServiceError::throughput_exceeded(format!(
        "Rate exceeded for shard {shard} in stream {stream} under account {account}."
    ))
}
