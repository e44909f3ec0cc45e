#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod calls;
mod config;
pub mod limits;
mod machine;
mod meters;
mod reader;
mod source;
mod stream;

pub use config::PollConfig;
pub use kinesis_core::ConfigError;
pub use reader::PollReader;
pub use source::PollSource;
pub use stream::PollStream;
