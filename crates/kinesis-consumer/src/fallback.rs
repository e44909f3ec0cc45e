//! Enhanced fan-out with a fall-back to polling.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use kinesis_core::aws::{ClientSource, KinesisDirectory};
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::directory::{DirectoryError, ShardDirectory as _};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource, SourceError, SourceEvent, Tip};
use kinesis_core::{SequenceNumber, StartPosition, Timestamp, error_chain, stable_hash};
use kinesis_efo::{EfoSource, RegistrationError};
use kinesis_poll::PollSource;
use tokio::time::Instant;

use crate::ConfigError;
use crate::config::MAX_DURATION;

/// Tries come later by up to this part of their interval: workers that started together must not all look for the
/// consumer, and register it, at the same moment.
const RETRY_JITTER: f64 = 0.25;

/// The settings of a [`FallbackSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct FallbackConfig {
    /// How long a shard waits for the registered consumer before it is polled meanwhile; default 5 s. A new consumer
    /// takes some seconds to become active.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub patience: Duration,
    /// How often a shard that is polled tries enhanced fan-out again; default 5 min, longer than 0. Each time up to a
    /// quarter is added at random.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub retry_interval: Duration,
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5), retry_interval: Duration::from_secs(5 * 60) }
    }
}

impl FallbackConfig {
    /// Sets [`patience`](Self#structfield.patience).
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets [`retry_interval`](Self#structfield.retry_interval).
    #[must_use]
    pub const fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`ConfigError`] that names the first field out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.retry_interval.is_zero() {
            return Err(ConfigError::new("retry_interval", "must be longer than zero"));
        }
        for (field, value) in [("patience", self.patience), ("retry_interval", self.retry_interval)] {
            if value > MAX_DURATION {
                return Err(ConfigError::new(field, "must not be longer than a year"));
            }
        }
        Ok(())
    }
}

/// Reads with enhanced fan-out, and by polling for as long as that is not to be had: the stream takes no further
/// consumer, the consumer is not active yet, or a permission is missing.
///
/// A reader says [`Degraded`](SourceEvent::Degraded) when it begins to poll and
/// [`Recovered`](SourceEvent::Recovered) with the first event of a subscription after that. Going from one to the other
/// loses and repeats no record.
#[derive(Debug, Clone)]
pub struct FallbackSource {
    efo: EfoSource,
    poll: PollSource,
    directory: KinesisDirectory,
    config: FallbackConfig,
    seed: Option<u64>,
}

impl FallbackSource {
    /// Reads with the first source, falling back to the second. `clients` tells the service's time, for a start at the
    /// tip; a refusal tells it, too.
    ///
    /// # Errors
    /// [`ConfigError`] when [`FallbackConfig::validate`] refuses the settings.
    pub fn new(
        clients: impl Into<ClientSource>,
        efo: EfoSource,
        poll: PollSource,
        config: FallbackConfig,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { efo, poll, directory: KinesisDirectory::new(clients), config, seed: None })
    }

    /// Makes the jitter of delays repeatable, for tests; shards differ all the same. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl ShardSource for FallbackSource {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        let mut random = self.seed.map_or_else(fastrand::Rng::new, |seed| {
            fastrand::Rng::with_seed(seed ^ stable_hash(request.shard.shard().as_str()))
        });
        let poll = self.poll.config();
        Box::new(FallbackReader {
            tip: Tip::new(poll.latest_margin),
            pinning: Backoff::new(BackoffConfig::new(poll.backoff_initial, poll.backoff_max), random.u64(..)),
            random,
            source: self.clone(),
            request,
            last: None,
            state: State::New,
            degraded: false,
            outbox: VecDeque::new(),
        })
    }
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Search = Pending<Result<(), RegistrationError>>;

/// Reads one shard.
struct FallbackReader {
    source: FallbackSource,
    request: OpenShard,
    /// Where a start at the tip starts.
    tip: Tip,
    /// The delays between askings for the service's time.
    pinning: Backoff,
    random: fastrand::Rng,
    /// The last record that was handed out.
    last: Option<SequenceNumber>,
    state: State,
    /// Trouble was announced, and nothing came since that shows that it is over.
    degraded: bool,
    outbox: VecDeque<SourceEvent>,
}

/// Whatever is under way lives here, so that a dropped `next` loses nothing.
enum State {
    New,
    /// A start at the tip becomes one at a time, which both ways of reading share.
    Pinning(Pending<Result<Timestamp, DirectoryError>>),
    /// Waits for the consumer, and nothing is read until then.
    Waiting {
        search: Search,
        until: Instant,
    },
    Subscribed(Box<dyn ShardReader>),
    Polling {
        reader: Box<dyn ShardReader>,
        search: Option<Search>,
        retry_at: Instant,
    },
    /// One reader closes before the other one opens.
    ToEfo(Pending<()>),
    ToPoll(Pending<()>),
    Over,
}

/// What came of waiting in a state.
enum Outcome {
    Event(Result<SourceEvent, SourceError>),
    Pinned(Result<Timestamp, DirectoryError>),
    Found(Result<(), RegistrationError>),
    /// A time is over.
    Due,
    Closed,
}

impl FallbackReader {
    /// Asks for the service's time after `delay`.
    fn pin(&mut self, delay: Duration) {
        let (directory, stream) = (self.source.directory.clone(), self.request.shard.stream().clone());
        self.state = State::Pinning(Box::pin(async move {
            tokio::time::sleep(delay).await;
            directory.server_time(&stream).await
        }));
    }

    fn search(&self) -> Search {
        let (efo, stream) = (self.source.efo.clone(), self.request.shard.stream().clone());
        Box::pin(async move { efo.register(std::slice::from_ref(&stream)).await.map(drop) })
    }

    /// Where to go on.
    fn request(&self) -> OpenShard {
        let mut request = self.request.clone();
        if let Some(sequence) = &self.last {
            request.start = StartPosition::AfterSequenceNumber { sequence: sequence.clone() };
        }
        request
    }

    fn retry_at(&mut self) -> Instant {
        let jitter = 1.0 + self.random.f64() * RETRY_JITTER;
        Instant::now() + self.source.config.retry_interval.mul_f64(jitter)
    }

    fn wait_for_consumer(&mut self) {
        let until = Instant::now() + self.source.config.patience;
        self.state = State::Waiting { search: self.search(), until };
    }

    fn poll(&mut self, search: Option<Search>) {
        let reader = self.source.poll.open(self.request());
        self.state = State::Polling { reader, search, retry_at: self.retry_at() };
    }

    fn subscribe(&mut self) {
        self.state = State::Subscribed(self.source.efo.open(self.request()));
    }

    fn announce(&mut self, what: &str, why: &str) {
        if !std::mem::replace(&mut self.degraded, true) {
            self.outbox.push_back(SourceEvent::Degraded { reason: format!("{what}: {why}") });
        }
    }

    fn announce_polling(&mut self, why: &str) {
        self.announce("enhanced fan-out is not available, polling meanwhile", why);
    }

    /// Takes what came of a state; what is to be handed out.
    fn take(&mut self, outcome: Outcome) -> Option<Result<SourceEvent, SourceError>> {
        match (std::mem::replace(&mut self.state, State::Over), outcome) {
            (State::Pinning(_), Outcome::Pinned(Ok(time))) => {
                let now = Instant::now().into_std();
                self.tip.learn_time(now, Some(time));
                self.request.start = self.tip.start(now);
                if std::mem::take(&mut self.degraded) {
                    self.outbox.push_back(SourceEvent::Recovered);
                }
                self.wait_for_consumer();
            }
            (State::Pinning(_), Outcome::Pinned(Err(error @ DirectoryError::StreamNotFound { .. }))) => {
                let shard = self.request.shard.clone();
                return Some(Err(SourceError::not_found(shard, "DescribeStreamSummary", error)));
            }
            // Only the time of the first asking is the tip that was asked for, so this reader has to stay.
            (State::Pinning(_), Outcome::Pinned(Err(error))) => {
                self.announce(
                    "the time of a start at the tip is not known, asking again",
                    &error_chain(&error),
                );
                let delay = self.pinning.next_delay();
                self.pin(delay);
            }
            (State::Waiting { .. }, Outcome::Found(Ok(()))) | (State::ToEfo(_), Outcome::Closed) => {
                self.subscribe();
            }
            (State::Waiting { .. }, Outcome::Found(Err(error))) => {
                if !error.is_retryable() {
                    return Some(Err(error.into_source_error(self.request.shard.clone())));
                }
                self.announce_polling(&error_chain(&error));
                self.poll(None);
            }
            (State::Waiting { search, .. }, Outcome::Due) => {
                self.announce_polling("the consumer is not active yet");
                self.poll(Some(search));
            }
            (State::Subscribed(reader), Outcome::Event(Err(error))) if error.is_retryable() => {
                self.announce_polling(&error_chain(&error));
                self.state = State::ToPoll(reader.close());
            }
            (State::Polling { reader, .. }, Outcome::Found(Ok(()))) => {
                self.state = State::ToEfo(reader.close());
            }
            (State::Polling { reader, .. }, Outcome::Found(Err(error))) => {
                tracing::debug!(shard = %self.request.shard, error = error_chain(&error), "enhanced fan-out is still not available");
                self.state = State::Polling { reader, search: None, retry_at: self.retry_at() };
            }
            (State::Polling { reader, retry_at, .. }, Outcome::Due) => {
                self.state = State::Polling { reader, search: Some(self.search()), retry_at };
            }
            (State::ToPoll(_), Outcome::Closed) => self.poll(None),
            (state, Outcome::Event(event)) => {
                let subscribed = matches!(state, State::Subscribed(_));
                if event.is_ok() {
                    self.state = state;
                }
                return Some(self.hand_out(event, subscribed));
            }
            (state, _) => self.state = state,
        }
        None
    }

    fn hand_out(
        &mut self,
        event: Result<SourceEvent, SourceError>,
        subscribed: bool,
    ) -> Result<SourceEvent, SourceError> {
        if let Ok(SourceEvent::Records(batch)) = &event
            && let Some(record) = batch.records.last()
        {
            self.last = Some(record.sequence.clone());
        }
        let brings = matches!(
            event,
            Ok(SourceEvent::Records(_) | SourceEvent::Progress { .. } | SourceEvent::Ended { .. })
        );
        if subscribed && brings && std::mem::take(&mut self.degraded) {
            self.outbox.extend(event.ok());
            return Ok(SourceEvent::Recovered);
        }
        event
    }
}

#[async_trait]
impl ShardReader for FallbackReader {
    /// Waits for the next event. Needs a tokio runtime with time enabled.
    ///
    /// Cancel-safe.
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        loop {
            if let Some(event) = self.outbox.pop_front() {
                return Ok(event);
            }
            let outcome = match &mut self.state {
                State::New if self.request.start == StartPosition::Latest => {
                    self.tip.start(Instant::now().into_std());
                    self.pin(Duration::ZERO);
                    continue;
                }
                State::New => {
                    self.wait_for_consumer();
                    continue;
                }
                State::Pinning(time) => Outcome::Pinned(time.await),
                State::Waiting { search, until } => tokio::select! {
                    biased;
                    found = search => Outcome::Found(found),
                    () = tokio::time::sleep_until(*until) => Outcome::Due,
                },
                State::Subscribed(reader) => Outcome::Event(reader.next().await),
                State::Polling { reader, search, retry_at } => {
                    let looking = search.is_some();
                    let found = async {
                        match search {
                            Some(search) => search.await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        found = found => Outcome::Found(found),
                        event = reader.next() => Outcome::Event(event),
                        () = tokio::time::sleep_until(*retry_at), if !looking => Outcome::Due,
                    }
                }
                State::ToEfo(closing) | State::ToPoll(closing) => {
                    closing.await;
                    Outcome::Closed
                }
                State::Over => {
                    let shard = self.request.shard.clone();
                    return Err(SourceError::refused(
                        shard,
                        "SubscribeToShard",
                        "the reader has already ended",
                    ));
                }
            };
            if let Some(event) = self.take(outcome) {
                return event;
            }
        }
    }

    async fn close(self: Box<Self>) {
        match self.state {
            State::Subscribed(reader) | State::Polling { reader, .. } => reader.close().await,
            State::ToEfo(closing) | State::ToPoll(closing) => closing.await,
            State::New | State::Pinning(_) | State::Waiting { .. } | State::Over => {}
        }
    }
}
