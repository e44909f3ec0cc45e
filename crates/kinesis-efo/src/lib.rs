#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffer;
mod calls;
mod config;
mod driver;
mod groups;
mod history;
pub mod limits;
mod machine;
mod meters;
mod reader;
mod registration;
mod source;
mod stream;
mod turns;

pub use config::EfoConfig;
pub use kinesis_core::ConfigError;
pub use reader::EfoReader;
pub use registration::{ConsumerRegistration, RegistrationError};
pub use source::EfoSource;
pub use stream::EfoStream;
