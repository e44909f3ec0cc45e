//! From what users bring to a door: services, closures, processors.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use kinesis_core::processing::Checkpointer;
use kinesis_core::{Ack, BoxError, IntoAck, IntoRecordAck, Record, RecordBatch, ShardRef};
use tokio::sync::Mutex;
use tower_service::Service;

use super::{BatchService, Door, HandlerService, Lifecycle, RecordService, ServiceFuture, ShardHandler};
use crate::{Initialize, RecordProcessor};

pub(crate) fn from_batches(service: BatchService) -> Door {
    Door(Arc::new(move |_| ShardHandler {
        service: HandlerService::Batches(service.clone()),
        lifecycle: None,
    }))
}

pub(crate) fn from_records(service: RecordService) -> Door {
    Door(Arc::new(move |_| ShardHandler {
        service: HandlerService::Records(service.clone()),
        lifecycle: None,
    }))
}

pub(crate) fn from_processor<F, P>(factory: F) -> Door
where
    F: Fn(&ShardRef) -> P + Send + Sync + 'static,
    P: RecordProcessor,
{
    Door(Arc::new(move |shard| {
        let processor = Processor(Arc::new(Mutex::new(factory(shard))));
        ShardHandler {
            service: HandlerService::Batches(BatchService::new(processor.clone())),
            lifecycle: Some(Arc::new(processor)),
        }
    }))
}

pub(crate) fn batch_closure<F, Fut, A, E>(handler: F) -> BatchService
where
    F: Fn(RecordBatch) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<A, E>> + Send + 'static,
    A: IntoAck + 'static,
    E: Into<BoxError> + 'static,
{
    BatchService::new(tower::service_fn(handler))
}

pub(crate) fn record_closure<F, Fut, A, E>(handler: F) -> RecordService
where
    F: Fn(Record) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<A, E>> + Send + 'static,
    A: IntoRecordAck + 'static,
    E: Into<BoxError> + 'static,
{
    RecordService::new(tower::service_fn(handler))
}

/// The processor of one tenure behind a lock: batches and lifecycle calls take the same one, so none overlap.
struct Processor<P>(Arc<Mutex<P>>);

impl<P> Clone for Processor<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: RecordProcessor> Service<RecordBatch> for Processor<P> {
    type Response = Ack;
    type Error = BoxError;
    type Future = ServiceFuture<Ack>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, batch: RecordBatch) -> Self::Future {
        let processor = Arc::clone(&self.0);
        Box::pin(async move { processor.lock().await.process(batch).await.map_err(Into::into) })
    }
}

#[async_trait]
impl<P: RecordProcessor> Lifecycle for Processor<P> {
    async fn initialize(&self, start: &Initialize) -> Result<(), BoxError> {
        self.0.lock().await.initialize(start).await.map_err(Into::into)
    }

    async fn shard_ended(&self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
        self.0.lock().await.shard_ended(checkpointer).await.map_err(Into::into)
    }

    async fn shutdown_requested(&self, checkpointer: &Checkpointer) -> Result<(), BoxError> {
        self.0.lock().await.shutdown_requested(checkpointer).await.map_err(Into::into)
    }

    async fn lease_lost(&self) {
        self.0.lock().await.lease_lost().await;
    }
}
