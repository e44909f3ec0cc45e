#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod config;

mod admission;
mod aggregation;
mod batcher;
mod builder;
mod call;
mod driver;
mod encoding;
mod error;
mod intake;
mod listing;
mod meters;
mod packing;
mod producer;
mod receipt;
mod report;

pub use aggregation::{Aggregation, Misplaced};
pub use builder::ProducerBuilder;
pub use config::ProducerConfig;
pub use error::{PutError, RecordError, RecordErrorKind};
pub use kinesis_core::ConfigError;
pub use producer::Producer;
pub use receipt::{Receipt, Sent};
pub use report::{CloseReport, FlushReport};

pub use kinesis_core::aws::{ClientSource, FailureKind, ServiceFailure};
pub use kinesis_core::{HashKey, OutboundRecord, PartitionKey, Position, SequenceNumber, ShardId, StreamRef};

#[cfg(feature = "compress")]
#[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
pub use kinesis_compress as compress;
pub use kinesis_kpl as kpl;
