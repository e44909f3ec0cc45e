#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod calls;
mod clock;
mod connector;
mod error;
mod faults;
mod format;
mod frames;
#[cfg(any(feature = "fuzzing", test))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
pub mod limits;
mod model;
mod rule;
mod rules_file;
pub mod scenarios;
mod server;
mod service;
mod state;
mod stream_faults;
mod streaming;
mod stubs;
mod view;
mod wait;
mod wire;

pub use builder::{Builder, DEFAULT_DELAY, DEFAULT_HEARTBEAT, DEFAULT_MEMORY_LIMIT};
pub use calls::{CALL_LOG_LENGTH, Call, Outcome};
pub use clock::{DEFAULT_START_SECONDS, TestClock};
pub use error::ServiceError;
pub use faults::{Fault, FaultRule, Faults};
pub use handle::TestKinesis;
pub use model::{Operation, UnknownOperation};
pub use rule::{Rule, UnknownRule};
pub use rules_file::RulesError;
pub use server::{SHUTDOWN_GRACE, ServeOptions, Server};
pub use state::KeyState;
pub use stream_faults::{StreamFault, StreamPoint};
pub use view::{Placement, ShardView, StoredRecord, SubscriptionView};
pub use wait::WaitError;
