//! Listing the shards, one listing at a time.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::directory::{DirectoryError, ShardDirectory, ShardInfo, list_all_shards};
use kinesis_core::{StreamRef, error_chain};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// All shards, or `None` when they could not be listed.
pub(crate) type Shards = Option<Vec<ShardInfo>>;

#[derive(Debug)]
pub(crate) struct Listing {
    directory: Arc<dyn ShardDirectory>,
    stream: StreamRef,
    limit: Duration,
    /// At most one; dropping it ends it.
    task: JoinSet<Result<Result<Vec<ShardInfo>, DirectoryError>, Elapsed>>,
    /// Whether the last one failed: the first failure is warned about, and the end of it told.
    failing: bool,
}

impl Listing {
    pub(crate) fn new(directory: Arc<dyn ShardDirectory>, stream: StreamRef, limit: Duration) -> Self {
        Self { directory, stream, limit, task: JoinSet::new(), failing: false }
    }

    pub(crate) fn start(&mut self) {
        let (directory, stream, limit) = (Arc::clone(&self.directory), self.stream.clone(), self.limit);
        self.task.spawn(async move { timeout(limit, list_all_shards(&*directory, &stream)).await });
    }

    pub(crate) fn is_under_way(&self) -> bool {
        !self.task.is_empty()
    }

    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }

    /// Waits for the listing under way. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Shards {
        let problem = match self.task.join_next().await {
            Some(Ok(Ok(Ok(shards)))) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(stream = %self.stream, "the shards can be listed again");
                }
                tracing::debug!(stream = %self.stream, shards = shards.len(), "listed the shards");
                return Some(shards);
            }
            Some(Ok(Ok(Err(error)))) => error_chain(&error),
            Some(Ok(Err(_))) => format!("no answer within {} s", self.limit.as_secs_f64()),
            Some(Err(error)) => error.to_string(),
            None => return None,
        };
        let stream = &self.stream;
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(%stream, problem, "the shards could not be listed again");
        } else {
            tracing::warn!(
                %stream, problem,
                "the shards could not be listed: where they are not known, records are aggregated by key"
            );
        }
        None
    }
}
