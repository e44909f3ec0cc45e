//! User records and batches of them, as handlers and layers see them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::lease::Fence;
use crate::processing::{Checkpointer, Completion, CompletionTicket};
use crate::{HashKey, Ownership, PartitionKey, Position, ShardRef, Timestamp};

/// How the service keeps a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Encryption {
    /// Not encrypted at rest.
    #[default]
    None,
    /// Encrypted with a key of AWS KMS.
    Kms,
}

/// Why a payload that looked like an aggregate was handed on as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UndecodedReason {
    /// The digest does not match the content.
    BadDigest,
    /// The content is not a valid protobuf message.
    BadProtobuf,
    /// A required field is missing.
    MissingField,
    /// A key is not UTF-8.
    BadUtf8,
    /// A record points outside of the key tables.
    IndexOutOfRange,
}

/// How a user record came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Origin {
    /// The record is the whole Kinesis record.
    #[default]
    Plain,
    /// The record is one of several in an aggregate.
    Aggregated {
        /// Its place, from 0.
        index: u64,
        /// How many records the aggregate has.
        count: u64,
    },
    /// The Kinesis record looked like an aggregate and could not be split; the bytes are as they came.
    Undecoded {
        /// What was wrong.
        reason: UndecodedReason,
    },
}

/// A tag of a user record inside an aggregate. The KPL's format has them; the KPL itself never writes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tag's key.
    pub key: String,
    /// The tag's value, where it has one.
    pub value: Option<String>,
}

/// One user record.
///
/// Cheap to clone: payload and keys are shared. A clone does not carry the [`completion`](Self::completion).
/// `Debug` shows sizes and the position, never payload or keys.
pub struct Record {
    source: ShardRef,
    position: Position,
    partition_key: Option<PartitionKey>,
    explicit_hash_key: Option<HashKey>,
    data: Bytes,
    arrived_at: Option<Timestamp>,
    origin: Origin,
    tags: Option<Arc<[Tag]>>,
    encryption: Encryption,
    completion: Option<CompletionTicket>,
}

impl Record {
    /// Starts a record with what every record has.
    pub fn builder(source: ShardRef, position: impl Into<Position>, data: impl Into<Bytes>) -> RecordBuilder {
        RecordBuilder(Self {
            source,
            position: position.into(),
            partition_key: None,
            explicit_hash_key: None,
            data: data.into(),
            arrived_at: None,
            origin: Origin::Plain,
            tags: None,
            encryption: Encryption::None,
            completion: None,
        })
    }

    /// A record for tests of handlers and layers: `stream` `test`, shard `shardId-000000000000`.
    #[must_use]
    pub fn for_test(sequence: u128, partition_key: &str, data: impl Into<Bytes>) -> Self {
        Self::builder(test_shard(), Position::new(sequence.into(), 0), data)
            .partition_key(Some(PartitionKey::new(partition_key)))
            .build()
    }

    /// The shard that the record was read from.
    #[must_use]
    pub fn source(&self) -> &ShardRef {
        &self.source
    }

    /// The place of the record in its shard; what a checkpoint takes.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The partition key; absent on streams with record distribution `AUTO`.
    #[must_use]
    pub fn partition_key(&self) -> Option<&PartitionKey> {
        self.partition_key.as_ref()
    }

    /// The explicit hash key, where the producer's aggregate kept one. The service does not return it otherwise.
    #[must_use]
    pub fn explicit_hash_key(&self) -> Option<HashKey> {
        self.explicit_hash_key
    }

    /// The payload.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// The payload, without a copy.
    #[must_use]
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// About when the service took the Kinesis record (millisecond resolution, not exact by the service's own word).
    #[must_use]
    pub fn arrived_at(&self) -> Option<Timestamp> {
        self.arrived_at
    }

    /// Whether the record was alone or part of an aggregate.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The tags inside an aggregate, mostly none.
    #[must_use]
    pub fn tags(&self) -> &[Tag] {
        self.tags.as_deref().unwrap_or_default()
    }

    /// How the service keeps the record.
    #[must_use]
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// Takes the handle that finishes this record later, for a handler that answers
    /// [`RecordAck::Manual`](crate::RecordAck::Manual). `None` when it was taken before, on clones, and outside of
    /// the record door.
    pub fn completion(&mut self) -> Option<Completion> {
        self.completion.take().map(CompletionTicket::claim)
    }

    /// The same record with another payload: what decoders and layers make.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = data.into();
        self
    }

    /// Attaches the ticket from which [`completion`](Self::completion) makes the handle; for engines.
    #[must_use]
    pub fn with_completion(mut self, ticket: CompletionTicket) -> Self {
        self.completion = Some(ticket);
        self
    }
}

impl Clone for Record {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            position: self.position.clone(),
            partition_key: self.partition_key.clone(),
            explicit_hash_key: self.explicit_hash_key,
            data: self.data.clone(),
            arrived_at: self.arrived_at,
            origin: self.origin,
            tags: self.tags.clone(),
            encryption: self.encryption,
            completion: None,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("source", &self.source)
            .field("position", &format_args!("{}", self.position))
            .field("partition_key", &self.partition_key)
            .field("data", &format_args!("{} bytes", self.data.len()))
            .field("arrived_at", &self.arrived_at)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Makes a [`Record`]; for engines, sources and tests.
#[derive(Debug)]
#[must_use]
pub struct RecordBuilder(Record);

impl RecordBuilder {
    /// Sets the partition key.
    pub fn partition_key(mut self, key: Option<PartitionKey>) -> Self {
        self.0.partition_key = key;
        self
    }

    /// Sets the explicit hash key.
    pub fn explicit_hash_key(mut self, key: Option<HashKey>) -> Self {
        self.0.explicit_hash_key = key;
        self
    }

    /// Sets the time of arrival.
    pub fn arrived_at(mut self, at: Option<Timestamp>) -> Self {
        self.0.arrived_at = at;
        self
    }

    /// Sets how the record came to be.
    pub fn origin(mut self, origin: Origin) -> Self {
        self.0.origin = origin;
        self
    }

    /// Sets the tags.
    pub fn tags(mut self, tags: Option<Arc<[Tag]>>) -> Self {
        self.0.tags = tags;
        self
    }

    /// Sets the kind of encryption.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.0.encryption = encryption;
        self
    }

    /// The record.
    #[must_use]
    pub fn build(self) -> Record {
        self.0
    }
}

/// Records of one shard, in order, with what a handler may do with them.
///
/// Cheap to clone, so that a failed batch can be offered again.
#[derive(Clone)]
pub struct RecordBatch {
    source: ShardRef,
    records: Arc<Vec<Record>>,
    behind_latest: Option<Duration>,
    checkpointer: Checkpointer,
    fence: Fence,
    ownership: Ownership,
}

impl RecordBatch {
    /// Starts a batch with what every batch has; for engines.
    pub fn builder(source: ShardRef, fence: Fence, records: Vec<Record>) -> RecordBatchBuilder {
        let checkpointer = Checkpointer::detached(records.last().map(|record| record.position().clone()));
        RecordBatchBuilder(Self {
            source,
            records: Arc::new(records),
            behind_latest: None,
            checkpointer,
            fence,
            ownership: Ownership::unowned(),
        })
    }

    /// A batch for tests of handlers and layers: its checkpointer accepts everything and stores nothing.
    #[must_use]
    pub fn for_test(records: Vec<Record>) -> Self {
        let source = records.first().map_or_else(test_shard, |record| record.source().clone());
        let fence = Fence::for_test(&source);
        Self::builder(source, fence, records).build()
    }

    /// The shard.
    #[must_use]
    pub fn source(&self) -> &ShardRef {
        &self.source
    }

    /// The records, oldest first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none. The engine delivers no empty batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records by value: without a copy when this is the only handle, else as cheap clones.
    #[must_use]
    pub fn into_records(self) -> Vec<Record> {
        Arc::try_unwrap(self.records).unwrap_or_else(|shared| shared.to_vec())
    }

    /// The place of the last record.
    #[must_use]
    pub fn last_position(&self) -> Option<&Position> {
        self.records.last().map(Record::position)
    }

    /// How far this batch is behind the tip of the shard, by the service's word; zero when caught up.
    #[must_use]
    pub fn behind_latest(&self) -> Option<Duration> {
        self.behind_latest
    }

    /// Stores how far the work is done; valid as long as the lease is ours.
    #[must_use]
    pub fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    /// A fencing token for other systems: it grows with every change of owner.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Whether the lease is still ours.
    #[must_use]
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The same batch with other records, which must keep their order and positions; for layers.
    #[must_use]
    pub fn with_records(mut self, records: Vec<Record>) -> Self {
        self.records = Arc::new(records);
        self
    }
}

impl fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBatch")
            .field("source", &self.source)
            .field("records", &self.records.len())
            .field("first", &self.records.first().map(Record::position))
            .field("last", &self.last_position())
            .field("behind_latest", &self.behind_latest)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// Makes a [`RecordBatch`]; for engines and tests.
#[derive(Debug)]
#[must_use]
pub struct RecordBatchBuilder(RecordBatch);

impl RecordBatchBuilder {
    /// Sets the distance from the tip.
    pub fn behind_latest(mut self, behind: Option<Duration>) -> Self {
        self.0.behind_latest = behind;
        self
    }

    /// Sets the checkpointer; without one every checkpoint is accepted and stored nowhere.
    pub fn checkpointer(mut self, checkpointer: Checkpointer) -> Self {
        self.0.checkpointer = checkpointer;
        self
    }

    /// Sets the ownership; without one it is never lost.
    pub fn ownership(mut self, ownership: Ownership) -> Self {
        self.0.ownership = ownership;
        self
    }

    /// The batch.
    #[must_use]
    pub fn build(self) -> RecordBatch {
        self.0
    }
}

fn test_shard() -> ShardRef {
    let stream = crate::StreamRef::new("test").expect("a valid name");
    ShardRef::new(stream, crate::ShardId::new("shardId-000000000000").expect("a valid id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-42: payload and keys do not show in debug output.
    #[test]
    fn debug_of_records_hides_payload_and_keys() {
        let record = Record::for_test(7, "secret-key", "secret-payload");
        let batch = RecordBatch::for_test(vec![record.clone()]);
        for text in [format!("{record:?}"), format!("{batch:?}")] {
            assert!(!text.contains("secret"), "{text}");
        }
    }

    /// S-012: a batch carries its records, a checkpointer and the distance from the tip.
    #[test]
    fn a_batch_has_records_checkpointer_and_lag() {
        let records = vec![Record::for_test(1, "a", "x"), Record::for_test(2, "b", "y")];
        let source = records[0].source().clone();
        let batch = RecordBatch::builder(source.clone(), Fence::for_test(&source), records)
            .behind_latest(Some(Duration::from_millis(1_500)))
            .build();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.behind_latest(), Some(Duration::from_millis(1_500)));
        assert_eq!(batch.last_position(), Some(&Position::new(2_u128.into(), 0)));
        assert_eq!(batch.checkpointer().last(), batch.last_position());
    }

    #[test]
    fn a_batch_gives_its_records_away_without_a_copy() {
        let batch = RecordBatch::for_test(vec![Record::for_test(1, "a", "x")]);
        let payload = batch.records()[0].data().as_ptr();
        assert_eq!(batch.into_records()[0].data().as_ptr(), payload);
    }
}
