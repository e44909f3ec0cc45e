//! Situations of connections and of the control plane: F-24, F-27 and F-35.

use std::time::Duration;

use crate::faults::Fault;
use crate::handle::TestKinesis;
use crate::model::Operation;
use crate::server::ServeOptions;
use crate::{Builder, ServiceError};

/// F-24: connections are retired after every 50 requests, and every 20th request is refused unread. Serve with
/// [`idle_connections`] for the rest of it.
pub fn retired_connections(kinesis: &TestKinesis) {
    kinesis.faults().on_any().every(50).always().inject(Fault::RetireConnection);
    kinesis.faults().on_any().every(20).always().inject(Fault::RefuseStream);
}

/// F-24: how to serve so that connections are reset after five idle seconds.
pub fn idle_connections() -> ServeOptions {
    ServeOptions::new().idle_timeout(Duration::from_secs(5))
}

/// F-27: a service whose consumers take ten seconds to become active. Its control plane has the documented rates.
pub fn slow_registration() -> Builder {
    TestKinesis::builder().register_consumer_delay(Duration::from_secs(10))
}

/// F-27: a stream with `open` open shards and at least `closed` closed ones behind them.
///
/// # Errors
/// As [`TestKinesis::create_stream`] and [`TestKinesis::split`].
pub fn long_history(
    kinesis: &TestKinesis,
    stream: &str,
    open: usize,
    closed: usize,
) -> Result<(), ServiceError> {
    kinesis.create_stream(stream, open)?;
    let mut shards: Vec<String> = kinesis.shards(stream)?.into_iter().map(|shard| shard.shard_id).collect();
    // A split and the merge of its children leave three closed shards and one open one.
    for turn in 0..closed.div_ceil(3) {
        let shard = &mut shards[turn % open];
        let halves = kinesis.split(stream, shard)?;
        *shard = kinesis.merge(stream, &halves[0], &halves[1])?;
    }
    Ok(())
}

/// F-35: a service whose lists of shards are ten seconds behind.
pub fn stale_shard_lists() -> Builder {
    TestKinesis::builder().shard_list_lag(Duration::from_secs(10))
}

/// F-35: for `time`, lists of shards are throttled.
pub fn throttled_shard_lists(kinesis: &TestKinesis, stream: &str, time: Duration) {
    kinesis.faults().on(Operation::ListShards).stream(stream).always().during(time).inject(Fault::Throttle);
}

/// F-35, variant: the stream is removed and made anew with as many open shards.
///
/// # Errors
/// `ResourceNotFoundException`.
pub fn remade_stream(kinesis: &TestKinesis, stream: &str) -> Result<(), ServiceError> {
    let open = kinesis.shards(stream)?.iter().filter(|shard| shard.is_open()).count();
    kinesis.delete_stream(stream)?;
    kinesis.create_stream(stream, open)
}
