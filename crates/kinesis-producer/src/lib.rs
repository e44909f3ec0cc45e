#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod batcher;
mod builder;
mod call;
mod config;
mod driver;
mod error;
mod meters;
mod producer;
mod receipt;
mod report;

pub use builder::ProducerBuilder;
pub use config::{
    ConfigError, DEFAULT_BATCH_BYTES, DEFAULT_BATCH_RECORDS, DEFAULT_BUFFER_BYTES, DEFAULT_BUFFER_RECORDS,
    DEFAULT_CLOSE_TIMEOUT, DEFAULT_DELIVERY_TIMEOUT, DEFAULT_IN_FLIGHT, DEFAULT_LINGER,
    DEFAULT_MAX_RECORD_BYTES, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_INITIAL, DEFAULT_RETRY_MAX, MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS, MAX_DURATION, MAX_IN_FLIGHT, MAX_RECORD_BYTES, ProducerConfig, RECORD_OVERHEAD,
};
pub use error::{PutError, RecordError, RecordErrorKind};
pub use producer::Producer;
pub use receipt::{Receipt, Sent};
pub use report::{CloseReport, FlushReport};

pub use kinesis_core::aws::{ClientSource, DEFAULT_ATTEMPT_TIMEOUT, FailureKind, ServiceFailure};
pub use kinesis_core::{HashKey, OutboundRecord, PartitionKey, SequenceNumber, ShardId, StreamRef};
