//! The two doors: batches in order, or one call per record. Whatever a user brings is erased here, once.

mod adapter;
mod service;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use kinesis_core::processing::Checkpointer;
use kinesis_core::{BoxError, ShardRef};

pub(crate) use adapter::{batch_closure, from_batches, from_processor, from_records, record_closure};
pub use service::{BatchService, RecordService, ServiceFuture};

use crate::Initialize;

/// The callbacks around the records of a tenure; they run outside of the layers.
#[async_trait]
pub(crate) trait Lifecycle: Send + Sync {
    async fn initialize(&self, start: &Initialize) -> Result<(), BoxError>;
    async fn shard_ended(&self, checkpointer: &Checkpointer) -> Result<(), BoxError>;
    async fn shutdown_requested(&self, checkpointer: &Checkpointer) -> Result<(), BoxError>;
    async fn lease_lost(&self);
}

/// What one tenure of a shard is processed with.
#[derive(Clone)]
pub(crate) struct ShardHandler {
    pub(crate) service: HandlerService,
    pub(crate) lifecycle: Option<Arc<dyn Lifecycle>>,
}

/// The erased service of either door.
#[derive(Clone)]
pub(crate) enum HandlerService {
    Batches(BatchService),
    Records(RecordService),
}

/// Makes the handler of each tenure.
#[derive(Clone)]
pub(crate) struct Door(pub(crate) Arc<dyn Fn(&ShardRef) -> ShardHandler + Send + Sync>);

impl Door {
    pub(crate) fn open(&self, shard: &ShardRef) -> ShardHandler {
        (self.0)(shard)
    }

    /// Wraps the service of every tenure.
    pub(crate) fn map(self, wrap: impl Fn(HandlerService) -> HandlerService + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |shard| {
            let handler = self.open(shard);
            ShardHandler { service: wrap(handler.service), lifecycle: handler.lifecycle }
        }))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}
