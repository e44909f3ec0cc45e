//! The comfortable form of the batch door: an object per shard with callbacks for its life.

use std::future::Future;

use kinesis_core::lease::Fence;
use kinesis_core::processing::Checkpointer;
use kinesis_core::{Ack, BoxError, Checkpoint, RecordBatch, ShardRef};

/// What a processor is told before its first record.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Initialize {
    /// The shard.
    pub shard: ShardRef,
    /// How far the shard is finished, by what is stored: the first record comes after it.
    pub checkpoint: Checkpoint,
    /// The fencing token of this tenure.
    pub fence: Fence,
}

/// Processes the batches of one shard, from the taking of its lease to the end of that tenure.
///
/// Only [`process`](Self::process) must be written, as an `async fn`. The order of calls for each processor is:
/// `initialize` until it works, `process` any number of times, then exactly one of `shard_ended`, `shutdown_requested`
/// and `lease_lost`. No two calls of one processor overlap. A call that fails or panics is repeated as the failure policy
/// says, except for `shutdown_requested` and `lease_lost`. A worker that dies makes no last call.
pub trait RecordProcessor: Send + 'static {
    /// The error of the callbacks. A [`HandlerError`](crate::HandlerError) tells the engine more.
    type Error: Into<BoxError>;

    /// Processes one batch, oldest record first.
    ///
    /// The future is dropped at an await point when the lease is lost or a stop runs out of time; the records come
    /// again on the next owner.
    fn process(&mut self, batch: RecordBatch) -> impl Future<Output = Result<Ack, Self::Error>> + Send;

    /// The tenure begins; called before any record. An error is retried like a failed batch. A stop that comes meanwhile
    /// waits for it until its deadline and then drops it.
    fn initialize(&mut self, start: &Initialize) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = start;
        async { Ok(()) }
    }

    /// The shard is closed and all its records are finished. The library stores the end itself, after this returned.
    /// An error is retried. When the tenure has to end before it works, no other callback follows; the next owner
    /// comes to the end of the shard again.
    fn shard_ended(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = checkpointer;
        async { Ok(()) }
    }

    /// The consumer stops or hands the shard over, and this is the last chance: it may finish what is in work, and
    /// store it. What is unfinished when it returns comes again on the next owner.
    ///
    /// It may run until the stop's deadline, at least [`close_timeout`](crate::ConsumerConfig::close_timeout).
    /// [`Checkpointer::checkpoint`] here means everything that [`process`](Self::process) took without an error.
    fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = checkpointer;
        async { Ok(()) }
    }

    /// The lease was lost: another worker has the shard, or will. Nothing can be stored any more.
    fn lease_lost(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
