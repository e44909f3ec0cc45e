//! Waiting for what a test wants to see.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::handle::TestKinesis;

/// How often a condition is looked at while no call comes in.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What was waited for did not come in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {} s for {what}", .within.as_secs_f64())]
#[non_exhaustive]
pub struct WaitError {
    /// What was waited for.
    pub what: String,
    /// For how long.
    pub within: Duration,
}

impl TestKinesis {
    /// Waits until `condition` holds, looking at every call and every few milliseconds. Cancel-safe.
    ///
    /// `within` is time of tokio's clock, so under a paused clock the wait costs nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kinesis_testkit::{Operation, TestKinesis};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::time::pause();
    /// let kinesis = TestKinesis::new();
    /// kinesis.create_stream("flights", 1)?;
    /// let client = kinesis.client();
    /// let lister = tokio::spawn(async move { client.list_shards().stream_name("flights").send().await });
    /// let listed = |kinesis: &TestKinesis| kinesis.calls(Operation::ListShards) == 1;
    /// kinesis.wait_until("a list of shards", Duration::from_secs(5), listed).await?;
    /// # lister.await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], with `what` in its message, if it does not hold in time.
    pub async fn wait_until(
        &self,
        what: impl fmt::Display + Send,
        within: Duration,
        mut condition: impl FnMut(&Self) -> bool + Send,
    ) -> Result<(), WaitError> {
        let deadline = Instant::now().checked_add(within);
        let mut called = self.service().calls_seen();
        loop {
            if condition(self) {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(WaitError { what: what.to_string(), within });
            }
            tokio::select! {
                // The sender lives in the service, so this ends only by a call.
                _ = called.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Waits until the stream holds at least `count` records.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait_for_records(
        &self,
        stream: &str,
        count: usize,
        within: Duration,
    ) -> Result<(), WaitError> {
        let what = format!("{count} records of stream {stream}");
        let holds = |kinesis: &Self| kinesis.record_count(stream).is_ok_and(|held| held >= count);
        self.wait_until(what, within, holds).await
    }

    /// Waits until exactly `count` subscriptions to the stream's shards live.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait_for_subscriptions(
        &self,
        stream: &str,
        count: usize,
        within: Duration,
    ) -> Result<(), WaitError> {
        let what = format!("{count} subscriptions to stream {stream}");
        let lives = |kinesis: &Self| kinesis.subscriptions(stream).is_ok_and(|living| living.len() == count);
        self.wait_until(what, within, lives).await
    }

    /// Waits until the stream exists and is `ACTIVE`: after a creation, a reshard or another change by request.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait_for_active_stream(&self, stream: &str, within: Duration) -> Result<(), WaitError> {
        let what = format!("stream {stream} to be ACTIVE");
        let active = |kinesis: &Self| kinesis.is_active(stream) == Some(true);
        self.wait_until(what, within, active).await
    }

    /// Waits until the stream is gone.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait_for_no_stream(&self, stream: &str, within: Duration) -> Result<(), WaitError> {
        let what = format!("stream {stream} to be gone");
        self.wait_until(what, within, |kinesis| kinesis.is_active(stream).is_none()).await
    }

    /// Waits until the consumer exists and is `ACTIVE`.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait_for_active_consumer(
        &self,
        stream: &str,
        consumer: &str,
        within: Duration,
    ) -> Result<(), WaitError> {
        let what = format!("consumer {consumer} of stream {stream} to be ACTIVE");
        let active = |kinesis: &Self| kinesis.consumer_is_active(stream, consumer);
        self.wait_until(what, within, active).await
    }
}
