//! What the crates that talk to Kinesis share: where clients come from, how failures are told apart, the directory.

mod client;
mod date;
mod directory;
mod failure;

pub use client::{ClientSource, DEFAULT_ATTEMPT_TIMEOUT, DEFAULT_CONTROL_ATTEMPT_TIMEOUT, Purpose};
pub use date::DateHeader;
pub use directory::KinesisDirectory;
pub use failure::{FailureKind, ServiceFailure};

use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types;

use crate::directory::ShardInfo;
use crate::source::SourceRecord;
use crate::{
    Encryption, HashKeyRange, InvalidSequenceNumber, PartitionKey, SequenceNumber, ShardId, StreamRef,
    Timestamp,
};

/// What the service sent is not what its API says.
#[derive(Debug, thiserror::Error)]
#[error("the service's answer is not valid: {problem}")]
pub struct InvalidAnswer {
    problem: &'static str,
}

impl InvalidAnswer {
    /// Names what is wrong, without the value.
    #[must_use]
    pub const fn new(problem: &'static str) -> Self {
        Self { problem }
    }
}

impl StreamRef {
    /// The name for an API call: absent when the call carries the ARN.
    #[must_use]
    pub fn api_name(&self) -> Option<String> {
        self.arn().is_none().then(|| self.name().to_owned())
    }

    /// The ARN for an API call.
    #[must_use]
    pub fn api_arn(&self) -> Option<String> {
        self.arn().map(str::to_owned)
    }
}

/// The SDK's time as a timestamp; times out of range are cut to the nearest end.
#[must_use]
pub fn timestamp(time: &DateTime) -> Timestamp {
    time.to_millis().map_or(Timestamp::from_millis(i64::MAX), Timestamp::from_millis)
}

/// A timestamp as the SDK's time.
#[must_use]
pub fn date_time(timestamp: Timestamp) -> DateTime {
    DateTime::from_millis(timestamp.as_millis())
}

/// Takes the records of an answer apart without copying payloads or keys.
///
/// # Errors
/// [`InvalidSequenceNumber`] when one of them has one.
pub fn source_records(records: Vec<types::Record>) -> Result<Vec<SourceRecord>, InvalidSequenceNumber> {
    // There are up to ten thousand at a time: each is made where the SDK's was, in the same memory, which it would not be
    // if the first bad number were returned at once.
    let mut problem = None;
    let take_apart = |record: types::Record| SourceRecord {
        sequence: record.sequence_number.parse().unwrap_or_else(|invalid| {
            problem = Some(invalid);
            SequenceNumber::ZERO
        }),
        partition_key: record.partition_key.map(PartitionKey::from),
        data: record.data.into_bytes(),
        arrived_at: record.approximate_arrival_timestamp.as_ref().map(timestamp),
        encryption: match record.encryption_type {
            Some(types::EncryptionType::Kms) => Encryption::Kms,
            _ => Encryption::None,
        },
    };
    let taken = records.into_iter().map(take_apart).collect();
    problem.map_or(Ok(taken), Err)
}

impl TryFrom<types::Shard> for ShardInfo {
    type Error = InvalidAnswer;

    fn try_from(shard: types::Shard) -> Result<Self, InvalidAnswer> {
        let id = shard_id(shard.shard_id)?;
        let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id]
            .into_iter()
            .flatten()
            .map(shard_id)
            .collect::<Result<_, _>>()?;
        let mut info = Self::new(id)
            .parents(parents)
            .hash_range(shard.hash_key_range.as_ref().map(hash_range).transpose()?);
        if let Some(range) = shard.sequence_number_range {
            info.closed = range.ending_sequence_number.is_some();
            info.starting_sequence = range.starting_sequence_number.parse().ok();
        }
        Ok(info)
    }
}

impl TryFrom<types::ChildShard> for ShardInfo {
    type Error = InvalidAnswer;

    fn try_from(child: types::ChildShard) -> Result<Self, InvalidAnswer> {
        let parents = child.parent_shards.into_iter().map(shard_id).collect::<Result<_, _>>()?;
        let range = child.hash_key_range.as_ref().map(hash_range).transpose()?;
        Ok(Self::new(shard_id(child.shard_id)?).parents(parents).hash_range(range))
    }
}

fn shard_id(text: String) -> Result<ShardId, InvalidAnswer> {
    ShardId::new(text).map_err(|_| InvalidAnswer::new("a shard id is blank"))
}

fn hash_range(range: &types::HashKeyRange) -> Result<HashKeyRange, InvalidAnswer> {
    let problem = InvalidAnswer::new("a hash key range is not two decimal numbers in order");
    match (range.starting_hash_key.parse(), range.ending_hash_key.parse()) {
        (Ok(start), Ok(end)) => HashKeyRange::new(start, end).ok_or(problem),
        _ => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::primitives::Blob;

    use super::*;

    fn record(sequence: &str, key: Option<&str>) -> types::Record {
        types::Record::builder()
            .sequence_number(sequence)
            .data(Blob::new(format!("data of {sequence}")))
            .set_partition_key(key.map(str::to_owned))
            .approximate_arrival_timestamp(DateTime::from_millis(1_700))
            .encryption_type(if key.is_some() { "KMS" } else { "NONE" }.into())
            .build()
            .unwrap()
    }

    #[test]
    fn records_are_taken_apart_in_their_order() {
        let taken = source_records(vec![record("17", Some("a")), record("18", None)]).unwrap();
        let [first, second] = &taken[..] else { panic!("{}", taken.len()) };
        assert_eq!((&first.sequence, &second.sequence), (&17.into(), &18.into()));
        assert_eq!((&first.data[..], &second.data[..]), (&b"data of 17"[..], &b"data of 18"[..]));
        assert_eq!(first.partition_key.as_ref().map(PartitionKey::as_str), Some("a"));
        assert_eq!(second.partition_key, None);
        assert_eq!(first.arrived_at, Some(Timestamp::from_millis(1_700)));
        assert_eq!((first.encryption, second.encryption), (Encryption::Kms, Encryption::None));
    }

    /// Whichever it is: no record gets a number that is not its own.
    #[test]
    fn one_bad_number_fails_the_answer() {
        for bad in 0..3 {
            let texts = (0..3).map(|place| if place == bad { "x" } else { "17" });
            let records = texts.map(|text| record(text, None)).collect();
            assert!(source_records(records).is_err(), "{bad}");
        }
    }
}
