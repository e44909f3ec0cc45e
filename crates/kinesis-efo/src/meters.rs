//! The instruments of one reader.

use std::fmt;
use std::sync::Arc;

use kinesis_core::ShardRef;
use kinesis_core::metrics::{Instrument, Labels, MetricsSink, names};

pub(crate) struct Meters {
    reconnects: Arc<dyn Instrument>,
    stream_errors: Arc<dyn Instrument>,
}

impl Meters {
    pub(crate) fn new(sink: &dyn MetricsSink, shard: &ShardRef, shard_label: bool) -> Self {
        let mut labels = Labels::stream(shard.stream().clone());
        if shard_label {
            labels = labels.shard(shard.shard().clone());
        }
        Self {
            reconnects: sink.instrument(&names::EFO_RECONNECTS, labels.clone()),
            stream_errors: sink.instrument(&names::EFO_STREAM_ERRORS, labels),
        }
    }

    /// A SubscribeToShard goes out because the one before failed.
    pub(crate) fn reconnected(&self) {
        self.reconnects.add(1);
    }

    /// An open subscription failed.
    pub(crate) fn stream_failed(&self) {
        self.stream_errors.add(1);
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters")
    }
}
