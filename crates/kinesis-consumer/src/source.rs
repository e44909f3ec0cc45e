//! Which source a consumer reads with.

use std::sync::Arc;

use kinesis_core::aws::ClientSource;
use kinesis_core::metrics::MetricsSink;
use kinesis_core::source::ShardSource;
#[cfg(feature = "efo")]
use kinesis_efo::EfoSource;
#[cfg(feature = "poll")]
use kinesis_poll::PollSource;

#[cfg(feature = "efo")]
use crate::ReadMode;
use crate::{ConfigError, ConsumerConfig};

/// A source, and what has to be done before it is used.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) source: Arc<dyn ShardSource>,
    /// Its consumer is registered first.
    #[cfg(feature = "efo")]
    pub(crate) register: Option<EfoSource>,
}

/// What sources are made of.
#[allow(dead_code, reason = "without a way to read nothing is made")]
struct Made<'a> {
    clients: &'a ClientSource,
    config: &'a ConsumerConfig,
    metrics: &'a Arc<dyn MetricsSink>,
    seed: u64,
}

impl Reading {
    /// Reads with this source as it is.
    pub(crate) fn with(source: Arc<dyn ShardSource>) -> Self {
        Self {
            source,
            #[cfg(feature = "efo")]
            register: None,
        }
    }

    /// Reads as the settings say.
    pub(crate) fn new(
        clients: &ClientSource,
        config: &ConsumerConfig,
        metrics: &Arc<dyn MetricsSink>,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let made = Made { clients, config, metrics, seed };
        #[cfg(feature = "efo")]
        match config.read_mode {
            ReadMode::Poll => {}
            ReadMode::EnhancedFanOut => {
                let efo = made.efo()?;
                return Ok(Self { source: Arc::new(efo.clone()), register: Some(efo) });
            }
            ReadMode::EnhancedFanOutOrPoll => return made.fallback().map(Self::with),
        }
        made.poll().map(Self::with)
    }
}

impl Made<'_> {
    #[cfg(feature = "efo")]
    fn efo(&self) -> Result<EfoSource, ConfigError> {
        let source = EfoSource::new(self.clients, self.config.efo.clone())?
            .metrics(Arc::clone(self.metrics))
            .seed(self.seed);
        Ok(if self.config.shard_metrics { source } else { source.without_shard_label() })
    }

    #[cfg(feature = "poll")]
    fn polling(&self) -> Result<PollSource, ConfigError> {
        let source = PollSource::new(self.clients, self.config.poll.clone())?
            .metrics(Arc::clone(self.metrics))
            .seed(self.seed);
        #[cfg(feature = "fast-decode")]
        let source = if self.config.fast_decode { source.fast_decode() } else { source };
        Ok(if self.config.shard_metrics { source } else { source.without_shard_label() })
    }

    fn poll(&self) -> Result<Arc<dyn ShardSource>, ConfigError> {
        #[allow(unused_mut, reason = "without the feature nothing is put in")]
        let mut source: Option<Arc<dyn ShardSource>> = None;
        #[cfg(feature = "poll")]
        source.replace(Arc::new(self.polling()?));
        source.ok_or_else(|| missing("enable the feature `poll` or give a source of your own"))
    }

    #[cfg(feature = "efo")]
    fn fallback(&self) -> Result<Arc<dyn ShardSource>, ConfigError> {
        #[allow(unused_mut, reason = "without the feature nothing is put in")]
        let mut source: Option<Arc<dyn ShardSource>> = None;
        #[cfg(feature = "poll")]
        source.replace(Arc::new(
            crate::FallbackSource::new(
                self.clients,
                self.efo()?,
                self.polling()?,
                self.config.fallback.clone(),
            )?
            .seed(self.seed),
        ));
        source.ok_or_else(|| missing("the read mode falls back to polling; enable the feature `poll`"))
    }
}

fn missing(what: &str) -> ConfigError {
    ConfigError::new("source", format!("is missing; {what}"))
}
