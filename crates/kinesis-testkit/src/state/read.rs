//! GetShardIterator and GetRecords.

use super::iterator::{self, ShardIterator};
use super::sequence::Parsed;
use super::shard::{Shard, shard_id};
use super::stream::{Stream, hash_output};
use super::validate::{check_range, required, required_shard_id};
use super::{Kinesis, Status};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits::{self, Rule};
use crate::model::{
    Blob, ChildShard, GetRecordsInput, GetRecordsOutput, GetShardIteratorInput, GetShardIteratorOutput,
    RecordOutput, Response, Timestamp,
};

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
        let position = match kind {
            "TRIM_HORIZON" => 0,
            "LATEST" => stream.sequences.upcoming(),
            "AT_SEQUENCE_NUMBER" => sequence_position(stream, shard, &account, input)?,
            "AFTER_SEQUENCE_NUMBER" => sequence_position(stream, shard, &account, input)? + 1,
            "AT_TIMESTAMP" => {
                let Some(Timestamp(time)) = input.timestamp else {
                    return Err(ServiceError::invalid_argument(
                        "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. Current request \
                         has no timestamp parameter.",
                    ));
                };
                if future_refused && time > now {
                    return Err(ServiceError::invalid_argument(format!(
                        "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. \
                         timestampInMillis: {}, currentTimestampInMillis: {}",
                        time.millis(),
                        now.millis()
                    )));
                }
                stream.shards[shard].first_since(time).unwrap_or(stream.sequences.upcoming())
            }
            other => {
                return Err(ServiceError::constraint(
                    &format!("'{other}'"),
                    "shardIteratorType",
                    "satisfy enum value set: [AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, \
                     TRIM_HORIZON]",
                ));
            }
        };
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
    ) -> Result<Response, ServiceError> {
        let token = required(input.shard_iterator.as_deref(), "shardIterator")?;
        let highest = limits::READ_RECORDS_PER_CALL;
        let limit = check_range(input.limit, "limit", 1, highest as i64)?.unwrap_or(highest);
        let from = iterator::decode(token)
            .ok_or_else(|| ServiceError::invalid_argument("Invalid ShardIterator."))?;
        if self.enforces(Rule::IteratorLife) && now.since(from.issued) > limits::ITERATOR_LIFE {
            return Err(ServiceError::expired_iterator(format!(
                "Iterator expired. The iterator was created at time {} while right now it is {} which is further in \
                 the future than the tolerated delay of {} milliseconds.",
                from.issued.millis(),
                now.millis(),
                limits::ITERATOR_LIFE.as_millis()
            )));
        }
        if input.stream_arn.as_ref().is_some_and(|arn| *arn != self.arn(&from.stream)) {
            return Err(ServiceError::invalid_argument("The StreamARN is not that of the ShardIterator."));
        }
        let (calls_limited, bytes_limited) =
            (self.enforces(Rule::ReadCallRate), self.enforces(Rule::ReadByteRate));
        let retention = self.enforces(Rule::Retention);
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
        let allowed = (!calls_limited || shard.quotas.read_calls.holds(now, 1))
            && (!bytes_limited || shard.quotas.read_bytes.holds(now, 1));
        if !allowed {
            return Err(rate_exceeded(&shard.id(), &stream.name, &account));
        }
        shard.quotas.read_calls.take(now, 1);

        let first = shard.place_of(from.position);
        let (count, bytes) = page(shard, first, limit);
        shard.quotas.read_bytes.take(now, bytes);
        let shard = &stream.shards[from.shard];
        let records = shard.records.range(first..first + count);
        let last = shard.records.get((first + count).wrapping_sub(1)).filter(|_| count > 0);
        let unread = shard.records.len() > first + count;
        let ended = !shard.is_open() && !unread;
        let position = last.map_or(from.position, |last| last.ordinal + 1);
        Ok(Response::GetRecords(GetRecordsOutput {
            records: records
                .map(|record| RecordOutput {
                    sequence_number: stream.sequences.render(record.ordinal, shard.number),
                    approximate_arrival_timestamp: Timestamp(record.arrived),
                    data: Blob(record.data.clone()),
                    partition_key: record.partition_key.clone(),
                })
                .collect(),
            next_shard_iterator: (!ended).then(|| ShardIterator { position, issued: now, ..from }.encode()),
            millis_behind_latest: match last {
                _ if !unread => 0,
                // Zero means caught up, so what is behind by less than a millisecond says one.
                Some(last) => millis(now, last.arrived).max(1),
                None => shard.records.get(first).map_or(0, |next| millis(now, next.arrived).max(1)),
            },
            child_shards: ended.then(|| children(stream, shard)),
        }))
    }
}

/// How many records from place `first` on make one reply, and their size.
fn page(shard: &Shard, first: usize, limit: usize) -> (usize, u64) {
    let (mut count, mut bytes) = (0, 0);
    for record in shard.records.range(first..).take(limit) {
        let size = record.size();
        // A record as large as a reply may be is still returned, alone.
        if count > 0 && bytes + size > limits::READ_BYTES_PER_CALL {
            break;
        }
        count += 1;
        bytes += size;
    }
    (count, bytes)
}

fn millis(now: Moment, then: Moment) -> u64 {
    now.millis().saturating_sub(then.millis())
}

/// The children as GetRecords lists them at the end of their parent.
fn children(stream: &Stream, shard: &Shard) -> Vec<ChildShard> {
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

/// The ordinal in the request's sequence number, which must be one of this shard.
///
/// The number of a record that was trimmed is accepted: reading then starts at the oldest record that is left.
fn sequence_position(
    stream: &Stream,
    shard: usize,
    account: &str,
    input: &GetShardIteratorInput,
) -> Result<u64, ServiceError> {
    let Some(text) = input.starting_sequence_number.as_deref() else {
        return Err(ServiceError::invalid_argument(
            "Must either specify (1) StartingSequenceNumber parameter for iterator of type AT_SEQUENCE_NUMBER or \
             AFTER_SEQUENCE_NUMBER or (2) no StartingSequenceNumber for the other types.",
        ));
    };
    let id = shard_id(shard);
    match stream.sequences.parse(text) {
        Parsed::Malformed => Err(ServiceError::constraint(
            &format!("'{text}'"),
            "startingSequenceNumber",
            "satisfy regular expression pattern: 0|([1-9]\\d{0,128})",
        )),
        Parsed::Own { ordinal, shard: encoded } if encoded == shard => {
            if ordinal < stream.sequences.upcoming() {
                return Ok(ordinal);
            }
            Err(ServiceError::invalid_argument(format!(
                "StartingSequenceNumber {text} used in GetShardIterator on shard {id} in stream {} under account \
                 {account} is invalid because it has not been handed out.",
                stream.name
            )))
        }
        Parsed::Own { shard: encoded, .. } => Err(ServiceError::invalid_argument(format!(
            "Invalid StartingSequenceNumber. It encodes {}, while it was used in a call to a shard with {id}",
            shard_id(encoded)
        ))),
        Parsed::Foreign => Err(ServiceError::invalid_argument(format!(
            "StartingSequenceNumber {text} used in GetShardIterator on shard {id} in stream {} under account \
             {account} is invalid because it did not come from this stream.",
            stream.name
        ))),
    }
}

pub(super) fn rate_exceeded(shard: &str, stream: &str, account: &str) -> ServiceError {
    ServiceError::throughput_exceeded(format!(
        "Rate exceeded for shard {shard} in stream {stream} under account {account}."
    ))
}
