//! Hints by NOTIFY, over a connection of its own. Only hints: what is not heard is found by the next look.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use kinesis_core::lease::{HintRequest, LeaseHints, LeaseWrite, Outcome, StoreError};
use kinesis_core::{ApplicationName, StreamRef};
use sqlx::Executor as _;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::PostgresStore;

/// How long writes that are done wait for their hint to be sent. It is worth less than their results.
const NOTIFY_LIMIT: Duration = Duration::from_millis(500);
/// How long connecting, and an answer of a connection that has been silent, may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A connection that has been silent for so long is asked whether it lives.
const SILENCE: Duration = Duration::from_secs(60);

impl PostgresStore {
    /// Tells the listeners of each stream of which a lease has become free: once, however many they are.
    pub(super) async fn give_hints(&self, writes: &[LeaseWrite], results: &[Result<Outcome, StoreError>]) {
        if !self.settings.hints {
            return;
        }
        let done = writes.iter().zip(results);
        let freed = done.filter(|(write, result)| write.frees() && matches!(result, Ok(Outcome::Applied(_))));
        let payloads: BTreeSet<String> =
            freed.map(|(write, _)| payload(write.key.application(), write.key.stream())).collect();
        for payload in payloads {
            let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(self.tables.channel()).bind(payload);
            match timeout(NOTIFY_LIMIT, self.rows(notify, self.begin())).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(error = %error, "a hint for other workers cannot be sent"),
                Err(_) => tracing::debug!("a hint for other workers takes too long"),
            }
        }
    }
}

/// Names have no control characters, so a line break divides them.
fn payload(application: &ApplicationName, stream: &StreamRef) -> String {
    format!("{application}\n{stream}")
}

/// Listens on a connection of its own, which is opened when it is used first, and anew after a loss.
pub(super) struct Hints {
    store: PostgresStore,
    payload: String,
    listener: Option<PgListener>,
    /// Whether it listened before: what was said since is not known.
    was_cut: bool,
}

impl Hints {
    pub(super) fn new(store: PostgresStore, request: &HintRequest) -> Self {
        let payload = payload(&request.application, &request.stream);
        Self { store, payload, listener: None, was_cut: false }
    }

    async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(CONNECT_LIMIT)
            .connect_lazy_with(self.store.pools.listen_options());
        let mut listener = PgListener::connect_with(&pool).await?;
        // A loss is told by the next call, and answered with growing delays.
        listener.eager_reconnect(false);
        listener.listen(&self.store.tables.channel()).await?;
        Ok(listener)
    }

    fn lost(&mut self, error: impl Into<kinesis_core::BoxError>) -> StoreError {
        self.listener = None;
        self.was_cut = true;
        StoreError::unavailable(error)
    }
}

#[async_trait]
impl LeaseHints for Hints {
    async fn next(&mut self) -> Result<(), StoreError> {
        if self.listener.is_none() {
            match timeout(CONNECT_LIMIT, self.connect()).await {
                Ok(Ok(listener)) => self.listener = Some(listener),
                Ok(Err(error)) => return Err(self.store.failed(error)),
                Err(late) => return Err(StoreError::unavailable(late)),
            }
            if std::mem::take(&mut self.was_cut) {
                return Ok(());
            }
        }
        loop {
            let Some(listener) = &mut self.listener else { return Ok(()) };
            match timeout(SILENCE, listener.try_recv()).await {
                Ok(Ok(Some(said))) if said.payload() == self.payload => return Ok(()),
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return Err(self.lost("the connection that listens is lost")),
                Ok(Err(error)) => return Err(self.lost(error)),
                Err(_) => match timeout(CONNECT_LIMIT, listener.execute("SELECT 1")).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(self.lost(error)),
                    Err(late) => return Err(self.lost(late)),
                },
            }
        }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listening = self.listener.is_some();
        f.debug_struct("Hints")
            .field("store", &self.store)
            .field("listening", &listening)
            .finish_non_exhaustive()
    }
}
