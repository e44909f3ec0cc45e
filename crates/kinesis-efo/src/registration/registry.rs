//! The consumers of a source: each looked for once, whatever the number of readers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinesis_core::StreamRef;
use kinesis_core::aws::{ClientSource, Purpose};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use super::calls::Calls;
use super::wait::Activation;
use super::{ConsumerArn, RegistrationError};
use crate::EfoConfig;
use crate::limits::REGISTRATIONS_PER_SECOND;

/// The least time between two RegisterStreamConsumer calls.
const REGISTER_INTERVAL: Duration = Duration::from_millis(1_000 / REGISTRATIONS_PER_SECOND as u64);

/// Keeps the registrations of a source within the rate of the service.
#[derive(Debug, Default)]
pub(super) struct RegisterGate(AsyncMutex<Option<Instant>>);

impl RegisterGate {
    /// Waits for its turn. Cancel-safe.
    pub(super) async fn pass(&self) {
        let mut next = self.0.lock().await;
        if let Some(due) = *next {
            tokio::time::sleep_until(due).await;
        }
        *next = Some(Instant::now() + REGISTER_INTERVAL);
    }
}

/// Knows the consumer of each stream.
#[derive(Debug)]
pub(crate) struct Registry {
    clients: ClientSource,
    config: EfoConfig,
    /// The consumer, if it was given by its ARN.
    given: Option<ConsumerArn>,
    streams: Mutex<HashMap<StreamRef, Arc<Entry>>>,
    gate: RegisterGate,
    /// How many streams are looked at at a time.
    parallel: Semaphore,
}

type Outcome = Result<ConsumerArn, RegistrationError>;

/// One stream: whoever holds the lock looks for the consumer, the others wait for what comes of it.
#[derive(Debug, Default)]
struct Entry(AsyncMutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What came of the last run.
    outcome: Option<Outcome>,
    /// When it ended.
    ended: Option<Instant>,
}

impl Registry {
    pub(crate) fn new(clients: ClientSource, config: EfoConfig) -> Self {
        Self {
            given: ConsumerArn::parse(&config.consumer),
            parallel: Semaphore::new(config.parallel_registrations as usize),
            clients,
            config,
            streams: Mutex::default(),
            gate: RegisterGate::default(),
        }
    }

    /// The active consumer of a stream. `stale` is one that the service did not know any more.
    ///
    /// Callers that wait together get the same answer. Cancel-safe: a run that is dropped is begun anew by the next.
    pub(crate) async fn consumer(&self, stream: &StreamRef, stale: Option<&ConsumerArn>) -> Outcome {
        if let Some(arn) = &self.given {
            return if arn.is_of(stream) {
                Ok(arn.clone())
            } else {
                Err(RegistrationError::OtherStream { stream: stream.clone(), consumer: arn.to_string() })
            };
        }
        let asked = Instant::now();
        let entry = self.entry(stream);
        let mut known = entry.0.lock().await;
        let fresh = known.ended.is_some_and(|ended| ended > asked);
        match &known.outcome {
            Some(Ok(arn)) if fresh || stale != Some(arn) => return Ok(arn.clone()),
            Some(Err(error)) if fresh => return Err(error.clone()),
            _ => {}
        }
        let outcome = self.find(stream).await;
        known.outcome = Some(outcome.clone());
        known.ended = Some(Instant::now());
        outcome
    }

    async fn find(&self, stream: &StreamRef) -> Outcome {
        let _turn = self.parallel.acquire().await.expect("the semaphore is never closed");
        let calls = Calls { client: self.clients.client(Purpose::Control), config: &self.config, stream };
        Activation::new(calls, &self.gate, fastrand::u64(..)).run().await
    }

    fn entry(&self, stream: &StreamRef) -> Arc<Entry> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(streams.entry(stream.clone()).or_default())
    }
}
