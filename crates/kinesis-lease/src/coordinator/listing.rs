//! The task that lists the stream's shards, on the caller's runtime: the directory's connections belong there.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::StreamRef;
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::directory::{DirectoryError, ShardDirectory, ShardInfo};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::command::{Command, Waiting};

/// How long one call to the directory may take; the directory itself repeats what fails for a moment.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// The first delay after a listing that failed; it grows up to the discovery interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// For so long a start tries calls again that are refused because there are too many,
const START_PATIENCE: Duration = Duration::from_secs(30);
/// so far apart at the most.
const START_RETRY: Duration = Duration::from_secs(4);

/// The interval is longer by up to this part of it.
const JITTER: f64 = 0.02;

/// Looks at a stream, each call with a time limit.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    pub(super) directory: Arc<dyn ShardDirectory>,
    pub(super) stream: StreamRef,
}

impl Directory {
    pub(super) async fn limited<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, DirectoryError>> + Send,
    ) -> Result<T, Arc<DirectoryError>> {
        match timeout(CALL_LIMIT, call).await {
            Ok(result) => result.map_err(Arc::new),
            Err(late) => Err(Arc::new(DirectoryError::unavailable(self.stream.clone(), action, late))),
        }
    }

    /// Makes a call of a start. Many workers may start at the same moment, and the rates of the service are those of the
    /// whole account: what is refused because of them is tried again for a while, at times that differ from worker to
    /// worker.
    pub(super) async fn patiently<T, F>(
        seed: u64,
        call: impl Fn() -> F + Send,
    ) -> Result<T, Arc<DirectoryError>>
    where
        F: Future<Output = Result<T, Arc<DirectoryError>>> + Send,
    {
        let mut backoff = Backoff::new(BackoffConfig::new(FIRST_RETRY, START_RETRY), seed);
        let end = Instant::now() + START_PATIENCE;
        loop {
            match call().await {
                Err(error) if error.is_throttled() && Instant::now() < end => {
                    tracing::info!(error = %error, "too many workers start at the same time, trying again");
                    sleep(backoff.next_delay()).await;
                }
                result => return result,
            }
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<ShardInfo>, Arc<DirectoryError>> {
        let mut shards = Vec::new();
        let mut page = None;
        loop {
            let call = self.directory.list_shards(&self.stream, page.as_deref());
            let found = self.limited("ListShards", call).await?;
            shards.extend(found.shards);
            match found.next {
                Some(next) => page = Some(next),
                None => return Ok(shards),
            }
        }
    }
}

/// Lists the shards now and then and whenever it is asked to.
pub(super) async fn run(
    directory: Directory,
    interval: Duration,
    seed: u64,
    mut asked: mpsc::Receiver<Option<Waiting>>,
    commands: mpsc::Sender<Command>,
) {
    let mut backoff = Backoff::new(BackoffConfig::new(FIRST_RETRY.min(interval), interval), seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = Instant::now() + interval;
    loop {
        let mut waiting = Vec::new();
        tokio::select! {
            () = sleep_until(next) => {}
            request = asked.recv() => match request {
                Some(request) => waiting.extend(request),
                None => return,
            },
        }
        while let Ok(request) = asked.try_recv() {
            waiting.extend(request);
        }
        let began = super::now();
        let shards = directory.list().await;
        // Workers that started together should not go on listing at the same moments.
        let jittered = interval.mul_f64(1.0 + random.f64() * JITTER);
        next = Instant::now() + if shards.is_ok() { jittered } else { backoff.next_delay() };
        if shards.is_ok() {
            backoff.reset();
        }
        if commands.send(Command::Listed { shards, began, waiting }).await.is_err() {
            return;
        }
    }
}
