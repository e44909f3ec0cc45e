//! Brings one stream's consumer to being active.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::backoff::Backoff;
use tokio::time::Instant;

use super::calls::{Calls, DESCRIBE, DESCRIBE_STREAM, REGISTER, Status};
use super::registry::RegisterGate;
use super::{ConsumerArn, RegistrationError};

/// How often a consumer that becomes active is looked at. An account may do so 20 times a second
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeStreamConsumer.html>); how long it goes on
/// is bounded by [`EfoConfig::activation_timeout`](crate::EfoConfig::activation_timeout).
const DESCRIBE_INTERVAL: Duration = Duration::from_secs(1);

/// One run: finds the consumer, registers it if it is missing, waits until it is active.
pub(super) struct Activation<'a> {
    calls: Calls<'a>,
    gate: &'a RegisterGate,
    begun: Instant,
    backoff: Backoff,
    /// The last failure since the last good answer, and whether it was the registration that failed.
    last: Option<(Arc<ServiceFailure>, bool)>,
}

/// What to do after a step.
enum Next {
    Done(ConsumerArn),
    /// Look again after this time.
    After(Duration),
}

impl<'a> Activation<'a> {
    pub(super) fn new(calls: Calls<'a>, gate: &'a RegisterGate, seed: u64) -> Self {
        let backoff = Backoff::new(calls.config.control_backoff(), seed);
        Self { calls, gate, begun: Instant::now(), backoff, last: None }
    }

    /// Runs within the activation timeout.
    pub(super) async fn run(mut self) -> Result<ConsumerArn, RegistrationError> {
        let timeout = self.calls.config.activation_timeout;
        let run = async {
            let stream_arn = loop {
                match self.calls.stream_arn().await {
                    Ok(arn) => break arn,
                    Err(failure) => {
                        let delay = self.failed(DESCRIBE_STREAM, failure)?;
                        tokio::time::sleep(delay).await;
                    }
                }
            };
            loop {
                match self.step(&stream_arn).await? {
                    Next::Done(arn) => return Ok(arn),
                    Next::After(delay) => tokio::time::sleep(delay).await,
                }
            }
        };
        // Bound here, so that the run lets go of `self` before the time-out looks at it.
        let ended = tokio::time::timeout(timeout, run).await;
        ended.unwrap_or_else(|_| Err(self.too_late()))
    }

    async fn step(&mut self, stream_arn: &str) -> Result<Next, RegistrationError> {
        let failure = match self.calls.describe(stream_arn).await {
            Ok(status) => return self.known(status),
            Err(failure) => failure,
        };
        if failure.kind() != FailureKind::NotFound {
            return self.failed(DESCRIBE, failure).map(Next::After);
        }
        self.gate.pass().await;
        let failure = match self.calls.register(stream_arn).await {
            Ok(()) => {
                tracing::debug!(stream = %self.calls.stream, consumer = self.calls.config.consumer, "a consumer is registered");
                self.last = None;
                return Ok(Next::After(DESCRIBE_INTERVAL));
            }
            Err(failure) => failure,
        };
        // Somebody else was faster. The first look may be too early for the service to know it already.
        if failure.kind() == FailureKind::InUse {
            self.last = Some((Arc::new(failure), false));
            return Ok(Next::After(self.backoff.next_delay()));
        }
        self.failed(REGISTER, failure).map(Next::After)
    }

    fn known(&mut self, status: Status) -> Result<Next, RegistrationError> {
        match status {
            Status::Active(arn) => Ok(Next::Done(arn)),
            Status::Creating => {
                self.last = None;
                Ok(Next::After(DESCRIBE_INTERVAL))
            }
            Status::Deleting => Err(RegistrationError::BeingDeleted {
                stream: self.calls.stream.clone(),
                consumer: self.calls.config.consumer.clone(),
            }),
        }
    }

    /// A call failed: how long to wait, or the end.
    fn failed(
        &mut self,
        action: &'static str,
        source: ServiceFailure,
    ) -> Result<Duration, RegistrationError> {
        let stream = self.calls.stream.clone();
        let source = Arc::new(source);
        match source.kind() {
            FailureKind::NotFound => {
                return Err(RegistrationError::StreamNotFound { stream, action, source });
            }
            FailureKind::AccessDenied => {
                return Err(RegistrationError::AccessDenied { stream, action, source });
            }
            FailureKind::Invalid => return Err(RegistrationError::Refused { stream, action, source }),
            _ => {}
        }
        tracing::debug!(%stream, action, error = %source, "a call failed and is tried again");
        self.last = Some((source, action == REGISTER));
        Ok(self.backoff.next_delay())
    }

    fn too_late(self) -> RegistrationError {
        let stream = self.calls.stream.clone();
        let consumer = self.calls.config.consumer.clone();
        let waited = self.begun.elapsed();
        match self.last {
            Some((source, true)) if source.kind() == FailureKind::Throttled => {
                RegistrationError::NoFreeSlot { stream, consumer, waited, source }
            }
            last => RegistrationError::NotActive {
                stream,
                consumer,
                waited,
                source: last.map(|(failure, _)| failure),
            },
        }
    }
}
