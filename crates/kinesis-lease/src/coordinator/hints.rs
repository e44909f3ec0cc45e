//! The store's hints, for as long as the lease task runs.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::lease::{HintRequest, LeaseHints};
use tokio::time::sleep;

use super::calls::Calls;

/// Hints, one after the other; none and the end where the store has none.
pub(super) type Hints = BoxStream<'static, ()>;

/// The delays before hints are asked for again that the store could not give.
const RETRY: BackoffConfig = BackoffConfig::new(Duration::from_secs(1), Duration::from_secs(60));

/// The hints of a store.
pub(super) fn of(calls: &Calls, interval: Duration, seed: u64) -> Hints {
    let request = HintRequest::new(calls.application.clone(), calls.stream.clone(), interval);
    let Some(hints) = calls.store.hints(&request) else { return stream::empty().boxed() };
    let next = |(mut hints, mut backoff): (Box<dyn LeaseHints>, Backoff)| async move {
        loop {
            match hints.next().await {
                Ok(()) => {
                    backoff.reset();
                    return Some(((), (hints, backoff)));
                }
                // Nothing is lost but the hints.
                Err(error) => {
                    tracing::debug!(error = %error, "no hints from the lease store for now");
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    };
    stream::unfold((hints, Backoff::new(RETRY, seed)), next).boxed()
}
