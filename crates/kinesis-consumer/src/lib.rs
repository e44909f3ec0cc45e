#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod config;
mod consumer;
mod decoding;
mod door;
mod engine;
mod error;
#[cfg(all(feature = "efo", feature = "poll"))]
mod fallback;
mod processor;
#[cfg(feature = "efo")]
mod read_mode;
mod report;
mod source;

pub use builder::{BatchDoor, ConsumerBuilder, NoDoor, RecordDoor};
pub use config::{Checkpoints, ConsumerConfig, FailurePolicy, OnExhausted};
pub use consumer::{Consumer, ConsumerHandle};
#[cfg(feature = "compress")]
pub use decoding::Decompression;
#[cfg(feature = "kpl")]
pub use decoding::Undecoded;
pub use door::{BatchService, RecordService, ServiceFuture};
pub use error::ConsumerError;
#[cfg(all(feature = "efo", feature = "poll"))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "efo", feature = "poll"))))]
pub use fallback::{FallbackConfig, FallbackSource};
pub use kinesis_core::ConfigError;
pub use processor::{Initialize, RecordProcessor};
#[cfg(feature = "efo")]
#[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
pub use read_mode::ReadMode;
pub use report::{Report, ShardOutcome, ShardReport};

#[cfg(feature = "compress")]
#[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
pub use kinesis_compress as compress;
pub use kinesis_core as core;
#[cfg(feature = "efo")]
#[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
pub use kinesis_efo as efo;
#[cfg(feature = "kpl")]
#[cfg_attr(docsrs, doc(cfg(feature = "kpl")))]
pub use kinesis_kpl as kpl;
pub use kinesis_lease as lease;
#[cfg(feature = "poll")]
#[cfg_attr(docsrs, doc(cfg(feature = "poll")))]
pub use kinesis_poll as poll;

pub use kinesis_core::processing::{
    CheckpointError, CheckpointVerb, Checkpointer, Completion, FailureClass, HandlerError,
};
pub use kinesis_core::{
    Ack, BoxError, DeadLetter, DeadLetterReason, Position, Record, RecordAck, RecordBatch, StartPosition,
};
