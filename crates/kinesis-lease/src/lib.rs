#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod columns;
mod config;
mod coordinator;
mod discovery;
#[cfg(feature = "dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "dynamodb")))]
mod dynamodb;
mod error;
mod event;
mod ext;
mod identity;
mod load;
mod machine;
mod memory;
mod mutant;
pub mod ops;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
mod postgres;
mod regime;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod sim;
mod source;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
mod sqlite;
mod worker_row;

pub use admin::{AdminPlan, AdminResult, LeaseAdmin, LeaseEntry, Listing, PlannedChange, ResetTo, Selection};
pub use config::{Balance, Coordination, HeartbeatMode, LeaseConfig};
pub use coordinator::{Coordinator, CoordinatorBuilder, DEFAULT_LATEST_MARGIN, LeaseEvents, Tenure};
#[cfg(feature = "dynamodb")]
pub use dynamodb::{
    DynamoDbClientSource, DynamoDbStore, DynamoDbStoreBuilder, NewTable, StreamIdentifier, TableBilling,
    TableLayout,
};
pub use error::{DiscoveryError, LeaseError, StartError};
pub use event::{LeaseEvent, LeaseWarning, LossReason, ReleaseReport};
pub use ext::LeaseStoreExt;
pub use kinesis_core::ConfigError;
pub use kinesis_core::lease::*;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{CheckpointInError, Pooler, PostgresStore, PostgresStoreBuilder};
pub use regime::{Regime, RegimeProbe, RegimeSighting, TableTenants};
pub use source::LeaseStoreSource;
#[cfg(feature = "sqlite")]
pub use sqlite::{Durability, SqliteStore, SqliteStoreBuilder};
