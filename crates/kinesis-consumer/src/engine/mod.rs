//! The engine: one task per owned shard, driven by what the lease coordinator says.

mod control;
mod deliver;
mod ending;
mod load;
mod metrics;
mod offering;
mod policy;
mod progress;
mod shard;
mod supervisor;
mod tracker;
mod transactional;
mod user;
mod wire;

use std::sync::Arc;

use kinesis_core::lease::LeaseStore;
use kinesis_core::metrics::MetricsSink;
use kinesis_core::source::ShardSource;
use kinesis_core::{BoxError, DeadLetter};
use tower::util::BoxCloneSyncService;

use crate::ConsumerConfig;
use crate::door::Door;
pub(crate) use supervisor::{StopRequest, Supervisor, asked, later};
#[cfg(feature = "kpl")]
pub(crate) use wire::Splitter;
pub(crate) use wire::WireStage;

pub(crate) type DeadLetterService = BoxCloneSyncService<DeadLetter, (), BoxError>;

/// What every shard task of a consumer shares.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: ConsumerConfig,
    pub(crate) door: Door,
    pub(crate) source: Arc<dyn ShardSource>,
    pub(crate) wire: WireStage,
    pub(crate) metrics: Arc<dyn MetricsSink>,
    pub(crate) dead_letter: Option<DeadLetterService>,
    /// Where positions are read from that handlers' transactions move; `None` when the library moves them.
    pub(crate) positions: Option<Arc<dyn LeaseStore>>,
    /// Seeds the jitter of each tenure.
    pub(crate) seed: u64,
}

impl Context {
    pub(crate) fn dead_letter(&self) -> Option<DeadLetterService> {
        self.dead_letter.clone()
    }
}
