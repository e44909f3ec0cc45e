#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "aws")]
#[cfg_attr(docsrs, doc(cfg(feature = "aws")))]
pub mod aws;
pub mod backoff;
pub mod clock;
pub mod directory;
pub mod lease;
pub mod metrics;
pub mod payload;
pub mod processing;
pub mod source;

mod config_error;
mod dead_letter;
mod error_chain;
mod hash_key;
mod id;
mod outbound;
mod ownership;
mod position;
mod record;
mod sequence;
mod stable_hash;
mod time;

pub use config_error::ConfigError;
pub use dead_letter::{DeadLetter, DeadLetterReason};
pub use error_chain::error_chain;
pub use hash_key::{HashKey, HashKeyRange, InvalidHashKey};
pub use id::{ApplicationName, InvalidId, PartitionKey, ShardId, ShardRef, StreamRef, WorkerId};
pub use outbound::{OutboundBatch, OutboundRecord};
pub use ownership::{Ownership, OwnershipGuard};
pub use position::{Checkpoint, Position, StartPosition};
pub use processing::{Ack, IntoAck, IntoRecordAck, RecordAck};
pub use record::{
    Encryption, Origin, Record, RecordBatch, RecordBatchBuilder, RecordBuilder, Tag, UndecodedReason,
};
pub use sequence::{InvalidSequenceNumber, SequenceBuf, SequenceNumber};
pub use stable_hash::stable_hash;
pub use time::Timestamp;

/// A boxed error that can cross threads: the error of services and layers.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;
