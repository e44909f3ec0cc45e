//! Connections: a pool for each runtime, and one operation on a connection.

use std::fmt;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use tokio::runtime::{Handle, Id};

use super::Pooler;
use super::error::is_read_only;

/// The most connections of a pool that is opened beside the caller's: a lease task needs one for writes, one for reads
/// and one for a take that waits.
const MAX_BESIDE: u32 = 4;

/// The most runtimes whose pools are remembered.
const MAX_RUNTIMES: usize = 16;

/// Pools by the runtime that uses them.
///
/// A connection is served by the runtime that opened it: one that lies in a pool that two runtimes share stands still
/// while the other one is blocked, and is dead when that has ended. So a lease task on a thread of its own gets a pool of
/// its own, with the settings of the caller's.
#[derive(Clone)]
pub(super) struct Pools {
    given: PgPool,
    /// Where hints are listened for, unless that is where the pool's connections lead to.
    listen: Option<PgConnectOptions>,
    by_runtime: Arc<Mutex<Vec<(Id, PgPool)>>>,
}

impl Pools {
    /// The pool belongs to the runtime that this is called on, or else to the first that uses it.
    pub(super) fn new(given: PgPool, listen: Option<PgConnectOptions>) -> Self {
        let pools = Self { given, listen, by_runtime: Arc::default() };
        if let Ok(runtime) = Handle::try_current() {
            pools.of(runtime.id());
        }
        pools
    }

    fn by_runtime(&self) -> MutexGuard<'_, Vec<(Id, PgPool)>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, runtime: Id) -> PgPool {
        let mut pools = self.by_runtime();
        if let Some((_, pool)) = pools.iter().find(|(id, _)| *id == runtime) {
            return pool.clone();
        }
        let pool = if pools.is_empty() {
            self.given.clone()
        } else {
            let options = self.given.options().clone();
            let most = options.get_max_connections().min(MAX_BESIDE);
            let options = options.min_connections(0).max_connections(most);
            options.connect_lazy_with(self.connect_options())
        };
        if pools.len() >= MAX_RUNTIMES {
            pools.remove(1);
        }
        pools.push((runtime, pool.clone()));
        pool
    }

    fn connect_options(&self) -> PgConnectOptions {
        (*self.given.connect_options()).clone()
    }

    /// For a connection that listens, and belongs to no pool of these.
    pub(super) fn listen_options(&self) -> PgConnectOptions {
        self.listen.clone().unwrap_or_else(|| self.connect_options())
    }

    pub(super) async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        let pool = self.of(Handle::current().id());
        Ok(Connection { inner: Some(pool.acquire().await?) })
    }
}

impl fmt::Debug for Pools {
    // Connection options hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").field("size", &self.given.size()).finish_non_exhaustive()
    }
}

/// A connection that goes back into its pool only when what it was used for came to its end: after a call that was
/// dropped half-way it would make the next one wait for the statement that still runs.
pub(super) struct Connection {
    inner: Option<PoolConnection<Postgres>>,
}

impl Connection {
    pub(super) fn get(&mut self) -> &mut PgConnection {
        self.inner.as_mut().expect("it is given back at the end only").deref_mut()
    }

    /// Gives it back, unless its server takes no writes: then the next connection is made anew, and may lead to the
    /// server that took over.
    pub(super) fn end<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        let broken = result.as_ref().is_err_and(|error| {
            is_read_only(error) || error.as_database_error().is_none_or(|error| error.code().is_none())
        });
        if !broken {
            drop(self.inner.take());
        }
        result
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.inner {
            connection.close_on_drop();
        }
    }
}

/// How long a transaction waits for locks and lets a statement run; set for itself alone, which leaves nothing behind in
/// a server connection that a pooler gives to others.
pub(super) fn begin(lock_timeout: Duration, statement_timeout: Duration) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "BEGIN; SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}",
        lock_timeout.as_millis().max(1),
        statement_timeout.as_millis().max(1)
    ))
}

/// Runs one statement: by itself, or (always through a pooler) as a transaction that begins with `begin`.
pub(super) async fn rows(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, sqlx::postgres::PgArguments>,
    pooler: Pooler,
    begin: Option<AssertSqlSafe<String>>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let query = query.persistent(pooler == Pooler::Direct);
    let Some(begin) = begin else { return query.fetch_all(connection).await };
    let mut transaction = sqlx::Connection::begin_with(connection, begin).await?;
    let rows = query.fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows)
}
