//! PutRecord and PutRecords.

use std::sync::Arc;
use std::time::Duration;

use super::Kinesis;
use super::hash::{hash_partition_key, is_hash_key, parse_hash_key};
use super::mode::Distribution;
use super::read::rate_exceeded;
use super::shard::{Stored, shard_id};
use super::stream::Stream;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::faults::RecordFaults;
use crate::limits;
use crate::model::{
    PutEntry, PutRecordInput, PutRecordOutput, PutRecordsInput, PutRecordsOutput, PutResult, Response,
    SequenceText,
};
use crate::rule::Rule;

/// A record that was found valid.
pub(super) struct Checked {
    partition_key: Option<Arc<str>>,
    explicit_hash_key: Option<u128>,
    data: bytes::Bytes,
}

impl Checked {
    fn size(&self) -> u64 {
        (self.data.len() + self.partition_key.as_ref().map_or(0, |key| key.len())) as u64
    }
}

/// Which of the rules for writes hold.
#[derive(Clone, Copy)]
struct WriteRules {
    bytes: bool,
    records: bool,
    retention: bool,
    call_size: bool,
    record_size: bool,
    on_demand_splits: Option<Duration>,
}

impl Kinesis {
    pub(super) fn put_record(
        &mut self,
        now: Moment,
        mut input: PutRecordInput,
    ) -> Result<Response, ServiceError> {
        let entry = PutEntry {
            data: input.data.take(),
            partition_key: input.partition_key.take(),
            explicit_hash_key: input.explicit_hash_key.take(),
        };
        let ordering = input.sequence_number_for_ordering.as_deref();
        if ordering.is_some_and(|text| text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(ServiceError::invalid_argument("Invalid SequenceNumberForOrdering."));
        }
        let rules = self.write_rules();
        let account = self.settings.account.clone();
        let name = self.find_serving(&input)?.name.clone();
        self.check_key(&name)?;
        let stream = self.find_serving(&input)?;
        let record = check(entry, None, stream, rules)?;
        input.dry_run.check()?;
        let (sequence_number, shard_id) = stream.write(now, record, rules, &account)?;
        let encryption_type = stream.encryption_of_records();
        self.make_room();
        Ok(Response::PutRecord(PutRecordOutput { shard_id, sequence_number, encryption_type }))
    }

    pub(super) fn put_records(
        &mut self,
        now: Moment,
        mut input: PutRecordsInput,
        faults: &RecordFaults,
    ) -> Result<Response, ServiceError> {
        let entries = input.records.take().ok_or_else(|| ServiceError::missing("records"))?;
        if entries.is_empty() {
            return Err(ServiceError::constraint(
                "'[]'",
                "records",
                "have length greater than or equal to 1",
            ));
        }
        let rules = self.write_rules();
        if rules.call_size && entries.len() > limits::WRITE_RECORDS_PER_CALL {
            return Err(ServiceError::constraint(
                &format!("'[{} entries]'", entries.len()),
                "records",
                &format!("have length less than or equal to {}", limits::WRITE_RECORDS_PER_CALL),
            ));
        }
        let account = self.settings.account.clone();
        let name = self.find_serving(&input)?.name.clone();
        self.check_key(&name)?;
        let mut order: Vec<_> = (0..entries.len()).collect();
        if self.enforces(Rule::RecordOrder) {
            self.random.shuffle(&mut order);
        }
        let stream = self.find_serving(&input)?;
        let mut records: Vec<_> = entries
            .into_iter()
            .enumerate()
            .map(|(index, entry)| check(entry, Some(index + 1), stream, rules).map(Some))
            .collect::<Result<_, _>>()?;
        let bytes: u64 = records.iter().flatten().map(Checked::size).sum();
        if rules.call_size && bytes > limits::WRITE_BYTES_PER_CALL {
            return Err(ServiceError::invalid_argument(format!(
                "Records size exceeds {} MB limit",
                limits::WRITE_BYTES_PER_CALL >> 20
            )));
        }
        input.dry_run.check()?;
        let mut failed = 0;
        let mut results = vec![PutResult::default(); records.len()];
        // The results keep the order of the request, whatever the order of the records in the stream.
        for index in order {
            let Some(record) = records[index].take() else { continue };
            let written = match faults.refuse(index) {
                Some(error) => Err(error),
                None => stream.write(now, record, rules, &account),
            };
            let result = &mut results[index];
            match written {
                Ok((sequence, shard)) => {
                    result.sequence_number = Some(sequence);
                    result.shard_id = Some(shard);
                }
                Err(error) => {
                    failed += 1;
                    result.error_code = Some(error.code().to_owned());
                    result.error_message = Some(error.message().to_owned());
                }
            }
        }
        let failed_record_count = faults.failed_count().unwrap_or(failed);
        let encryption_type = stream.encryption_of_records();
        self.make_room();
        Ok(Response::PutRecords(PutRecordsOutput { failed_record_count, records: results, encryption_type }))
    }

    fn write_rules(&self) -> WriteRules {
        WriteRules {
            bytes: self.enforces(Rule::WriteByteRate),
            records: self.enforces(Rule::WriteRecordRate),
            retention: self.enforces(Rule::Retention),
            call_size: self.enforces(Rule::WriteCallSize),
            record_size: self.enforces(Rule::RecordSize),
            on_demand_splits: self.enforces(Rule::OnDemandSplits).then_some(self.settings.reshard_delay),
        }
    }

    /// Stores a record without asking the write quotas.
    pub(super) fn put_unlimited(
        &mut self,
        now: Moment,
        name: &str,
        entry: PutEntry,
    ) -> Result<(SequenceText, Arc<str>), ServiceError> {
        let rules = WriteRules { bytes: false, records: false, ..self.write_rules() };
        let account = self.settings.account.clone();
        let stream = self.find_serving(&crate::model::StreamInput::named(name))?;
        let record = check(entry, None, stream, rules)?;
        let written = stream.write(now, record, rules, &account);
        self.make_room();
        written
    }
}

impl Stream {
    /// Stores a record and returns its sequence number and shard, or refuses it for its shard's quota.
    fn write(
        &mut self,
        now: Moment,
        record: Checked,
        rules: WriteRules,
        account: &str,
    ) -> Result<(SequenceText, Arc<str>), ServiceError> {
        let number = match (self.distribution, record.explicit_hash_key, &record.partition_key) {
            (Distribution::UserPartitionKey, Some(hash_key), _) => self.route(hash_key),
            (Distribution::UserPartitionKey, None, Some(key)) => self.route(hash_partition_key(key)),
            _ => self.next_in_turn(),
        };
        let size = record.size();
        let horizon = if rules.retention { self.horizon(now) } else { None };
        let shard = &mut self.shards[number];
        let quotas = &mut shard.quotas;
        let allowed = (!rules.records || quotas.write_records.holds(now, 1))
            && (!rules.bytes || quotas.write_bytes.holds(now, size));
        if !allowed {
            if let Some(delay) = rules.on_demand_splits {
                self.split_on_demand(number, now.plus(delay));
            }
            return Err(rate_exceeded(&shard_id(number), &self.name, account));
        }
        if rules.records {
            quotas.write_records.take(now, 1);
        }
        if rules.bytes {
            quotas.write_bytes.take(now, size);
        }
        let ordinal = self.sequences.allocate();
        let Checked { partition_key, explicit_hash_key, data } = record;
        shard.records.push(Stored { ordinal, partition_key, explicit_hash_key, data, arrived: now });
        self.woken.extend(&shard.subscribers);
        if let Some(horizon) = horizon {
            shard.trim(horizon);
        }
        let shard_id = Arc::clone(&shard.name);
        let change = shard.count_towards_change();
        if let Some(change) = change {
            self.apply(&change, now);
        }
        Ok((self.sequences.render(ordinal, number), shard_id))
    }
}

/// Checks one record. `place` counts from one and is absent for a call with a single record.
fn check(
    entry: PutEntry,
    place: Option<usize>,
    stream: &Stream,
    rules: WriteRules,
) -> Result<Checked, ServiceError> {
    let member = |name: &str| match place {
        Some(place) => format!("records.{place}.member.{name}"),
        None => name.to_owned(),
    };
    let data = entry.data.ok_or_else(|| ServiceError::missing(&member("data")))?.0;
    let by_key = stream.distribution == Distribution::UserPartitionKey;
    if by_key && entry.partition_key.is_none() {
        return Err(ServiceError::missing(&member("partitionKey")));
    }
    if let Some(key) = &entry.partition_key {
        check_partition_key(key, &member("partitionKey"))?;
    }
    let explicit_hash_key = match entry.explicit_hash_key.as_deref() {
        None => None,
        Some(text) if !is_hash_key(text) => {
            return Err(ServiceError::constraint(
                "of another form",
                &member("explicitHashKey"),
                "satisfy regular expression pattern: 0|([1-9]\\d{0,38})",
            ));
        }
        Some(text) => Some(parse_hash_key(text).ok_or_else(|| {
            ServiceError::invalid_argument(format!(
                "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was \
                 {text}"
            ))
        })?),
    };
    let record = Checked { partition_key: entry.partition_key.map(Arc::from), explicit_hash_key, data };
    let most = stream.max_record_bytes();
    if rules.record_size && record.size() > most {
        return Err(ServiceError::constraint(
            &format!("of {} bytes with its partition key", record.size()),
            &member("data"),
            &format!("have length less than or equal to {most}"),
        ));
    }
    Ok(record)
}

fn check_partition_key(key: &str, member: &str) -> Result<(), ServiceError> {
    if key.is_empty() {
        return Err(ServiceError::constraint("''", member, "have length greater than or equal to 1"));
    }
    if key.chars().count() > limits::PARTITION_KEY_CHARS {
        // Partition keys are the caller's data: the message shows none of it.
        let constraint = format!("have length less than or equal to {}", limits::PARTITION_KEY_CHARS);
        return Err(ServiceError::constraint("of too many characters", member, &constraint));
    }
    Ok(())
}
