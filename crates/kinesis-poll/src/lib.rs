#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ahead;
mod budget;
mod calls;
mod config;
#[cfg(feature = "fast-decode")]
mod fast;
pub mod limits;
mod machine;
mod meters;
mod reader;
mod shelf;
mod source;
mod stream;
mod task;

pub use config::PollConfig;
pub use kinesis_core::ConfigError;
pub use reader::PollReader;
pub use source::PollSource;
pub use stream::PollStream;
