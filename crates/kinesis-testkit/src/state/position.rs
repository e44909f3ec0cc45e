//! Where a read starts: what GetShardIterator and SubscribeToShard share.

use super::sequence::Parsed;
use super::shard::shard_id;
use super::stream::Stream;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::model::Timestamp;

/// A start as a request names it.
pub(super) struct Start<'a> {
    /// The operation, for messages.
    pub(super) operation: &'a str,
    /// The member that holds the type, for messages.
    pub(super) member: &'a str,
    pub(super) kind: &'a str,
    pub(super) sequence_number: Option<&'a str>,
    pub(super) timestamp: Option<Timestamp>,
}

impl Start<'_> {
    /// The lowest ordinal to be read.
    pub(super) fn resolve(
        &self,
        now: Moment,
        stream: &Stream,
        shard: usize,
        account: &str,
        refuse_future: bool,
    ) -> Result<u64, ServiceError> {
        match self.kind {
            "TRIM_HORIZON" => Ok(0),
            "LATEST" => Ok(stream.sequences.upcoming()),
            "AT_SEQUENCE_NUMBER" => self.ordinal(stream, shard, account),
            "AFTER_SEQUENCE_NUMBER" => Ok(self.ordinal(stream, shard, account)? + 1),
            "AT_TIMESTAMP" => {
                let Some(Timestamp(time)) = self.timestamp else {
                    return Err(ServiceError::invalid_argument(
                        "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. Current request \
                         has no timestamp parameter.",
                    ));
                };
                if refuse_future && time > now {
                    return Err(ServiceError::invalid_argument(format!(
                        "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. \
                         timestampInMillis: {}, currentTimestampInMillis: {}",
                        time.millis(),
                        now.millis()
                    )));
                }
                Ok(stream.shards[shard].first_since(time).unwrap_or(stream.sequences.upcoming()))
            }
            other => Err(ServiceError::constraint(
                &format!("'{other}'"),
                self.member,
                "satisfy enum value set: [AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, \
                 TRIM_HORIZON]",
            )),
        }
    }

    /// The ordinal in the sequence number, which must be one of this shard.
    ///
    /// The number of a record that was trimmed is accepted: reading then starts at the oldest record that is left.
    fn ordinal(&self, stream: &Stream, shard: usize, account: &str) -> Result<u64, ServiceError> {
        let operation = self.operation;
        let Some(text) = self.sequence_number else {
            return Err(ServiceError::invalid_argument(
                "Must either specify (1) StartingSequenceNumber parameter for iterator of type AT_SEQUENCE_NUMBER or \
                 AFTER_SEQUENCE_NUMBER or (2) no StartingSequenceNumber for the other types.",
            ));
        };
        let id = shard_id(shard);
        let refuse = |reason: &str| {
            Err(ServiceError::invalid_argument(format!(
                "StartingSequenceNumber {text} used in {operation} on shard {id} in stream {} under account {account} \
                 is invalid because it {reason}.",
                stream.name
            )))
        };
        match stream.sequences.parse(text) {
            Parsed::Malformed => Err(ServiceError::constraint(
                &format!("'{text}'"),
                "startingSequenceNumber",
                "satisfy regular expression pattern: 0|([1-9]\\d{0,128})",
            )),
            Parsed::Own { ordinal, shard: encoded } if encoded == shard => {
                if ordinal < stream.sequences.upcoming() {
                    Ok(ordinal)
                } else {
                    refuse("has not been handed out")
                }
            }
            Parsed::Own { shard: encoded, .. } => Err(ServiceError::invalid_argument(format!(
                "Invalid StartingSequenceNumber. It encodes {}, while it was used in a call to a shard with {id}",
                shard_id(encoded)
            ))),
            Parsed::Foreign => refuse("did not come from this stream"),
        }
    }
}
