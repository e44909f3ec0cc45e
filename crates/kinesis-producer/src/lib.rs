#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod config;

mod admission;
mod batcher;
mod builder;
mod call;
mod driver;
mod error;
mod meters;
mod producer;
mod receipt;
mod report;

pub use builder::ProducerBuilder;
pub use config::ProducerConfig;
pub use error::{PutError, RecordError, RecordErrorKind};
pub use kinesis_core::ConfigError;
pub use producer::Producer;
pub use receipt::{Receipt, Sent};
pub use report::{CloseReport, FlushReport};

pub use kinesis_core::aws::{ClientSource, FailureKind, ServiceFailure};
pub use kinesis_core::{HashKey, OutboundRecord, PartitionKey, SequenceNumber, ShardId, StreamRef};
