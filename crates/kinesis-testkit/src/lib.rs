#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod calls;
mod clock;
mod connector;
mod error;
mod faults;
mod handle;
pub mod limits;
mod model;
mod server;
mod service;
mod state;
mod view;
mod wire;

pub use builder::{Builder, DEFAULT_DELAY};
pub use calls::{CALL_LOG_LENGTH, Call, Outcome};
pub use clock::{DEFAULT_START_SECONDS, TestClock};
pub use error::ServiceError;
pub use faults::{Fault, FaultRule, Faults};
pub use handle::TestKinesis;
pub use limits::Rule;
pub use model::{Operation, UnknownOperation};
pub use server::{SHUTDOWN_GRACE, Server};
pub use view::{Placement, ShardView, StoredRecord};
