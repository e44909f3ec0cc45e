//! How a PostgreSQL store is made.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use kinesis_core::lease::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::pools::Pools;
use super::schema::Tables;
use super::{PostgresStore, Settings};

/// What stands between the store and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or a pooler that keeps a server connection for each client (pgbouncer's session mode).
    #[default]
    Direct,
    /// A pooler that gives out server connections for a transaction each (pgbouncer's transaction mode). Every
    /// operation is one explicit transaction then, and nothing is left in a server connection: no prepared statements,
    /// no settings. A third more round trips. Workers listen for hints elsewhere:
    /// [`hint_url`](PostgresStoreBuilder::hint_url).
    Transaction,
}

/// Settings of a [`PostgresStore`], before its connections.
#[derive(Debug, Clone)]
pub struct PostgresStoreBuilder {
    schema: String,
    table: String,
    pooler: Pooler,
    lock_timeout: Duration,
    max_connections: u32,
    hints: bool,
    hint_url: Option<Secret>,
}

/// It may have a password in it.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The server counts in milliseconds, and 0 would be no limit.
const MIN_LOCK_TIMEOUT: Duration = Duration::from_millis(1);

/// Longer times are mistakes.
const MAX_LOCK_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A statement that runs longer than this is ended by the server: its caller has given up long before.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a call waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for PostgresStoreBuilder {
    fn default() -> Self {
        Self {
            schema: PostgresStore::DEFAULT_SCHEMA.to_owned(),
            table: PostgresStore::DEFAULT_TABLE.to_owned(),
            pooler: Pooler::default(),
            lock_timeout: Duration::from_secs(1),
            max_connections: 8,
            hints: true,
            hint_url: None,
        }
    }
}

impl PostgresStoreBuilder {
    /// The schema of the tables, which is made where it does not exist. Default: [`PostgresStore::DEFAULT_SCHEMA`].
    /// The search path of a connection means nothing.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// The name of the table of leases; two more have this name with an ending. Default:
    /// [`PostgresStore::DEFAULT_TABLE`]. One table serves many applications and streams.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// What stands between the store and the server. Default: nothing.
    #[must_use]
    pub fn pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// How long the taking of a lease waits for a transaction of its former owner that has moved the checkpoint and is
    /// still open. Between 1 ms and an hour; below the coordinator's `store_timeout`. Default 1 s. After that the take
    /// fails and is tried again; a transaction that stays open for ever keeps its shard from everybody.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// The most connections of a pool that [`connect`](Self::connect) makes; at least 1. Default 8.
    #[must_use]
    pub fn max_connections(mut self, most: u32) -> Self {
        self.max_connections = most;
        self
    }

    /// Whether workers tell each other by `NOTIFY` when leases become free, so that these are taken at once and not in the
    /// next look. Each worker listens on a connection of its own, beside those of the pool; losing it costs nothing but
    /// the hints. With [`Pooler::Transaction`] only where there is a [`hint_url`](Self::hint_url). Default: yes.
    #[must_use]
    pub fn hints(mut self, on: bool) -> Self {
        self.hints = on;
        self
    }

    /// Where workers listen for hints, past a pooler: the URL of the server itself, as in [`connect`](Self::connect). What
    /// they tell each other goes the way of all other operations. Without it a worker behind [`Pooler::Transaction`], which
    /// cannot listen, finds what became free in its next look. Default: where the other connections lead to.
    #[must_use]
    pub fn hint_url(mut self, url: impl Into<String>) -> Self {
        self.hint_url = Some(Secret(url.into()));
        self
    }

    /// A store at a URL (`postgres://user:password@host/database`). Connects when it is used first.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when a setting or the URL cannot be used.
    pub fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let options = parse(url, "the PostgreSQL URL cannot be understood")?;
        self.options(options)
    }

    /// A store with connections of these options. Connects when it is used first.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when a setting cannot be used.
    pub fn options(self, options: PgConnectOptions) -> Result<PostgresStore, StoreError> {
        if self.max_connections == 0 {
            return Err(StoreError::misconfigured("max_connections must be at least 1", None));
        }
        // Poolers refuse this parameter, and nothing here is read as text.
        let mut options = options.extra_float_digits(None);
        if self.pooler == Pooler::Direct {
            let timeout = STATEMENT_TIMEOUT.as_millis().to_string();
            options = options.options([("statement_timeout", timeout)]);
        }
        let pool = PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options);
        self.pool(pool)
    }

    /// A store on a pool that the program has anyway. It belongs to the runtime that this is called on; for another one
    /// (the lease task's own thread) the store opens a small pool with the same options.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when a setting cannot be used.
    pub fn pool(self, pool: PgPool) -> Result<PostgresStore, StoreError> {
        if self.lock_timeout < MIN_LOCK_TIMEOUT || self.lock_timeout > MAX_LOCK_TIMEOUT {
            return Err(StoreError::misconfigured("lock_timeout must be between 1 ms and an hour", None));
        }
        let listen =
            self.hint_url.map(|Secret(url)| parse(&url, "the URL for hints (hint_url) cannot be understood"));
        let listen = listen.transpose()?;
        // A pooler that gives out connections for a transaction each cannot listen.
        let hints = self.hints && (self.pooler == Pooler::Direct || listen.is_some());
        let settings = Settings { pooler: self.pooler, lock_timeout: self.lock_timeout, hints };
        let tables = Tables::new(&self.schema, &self.table)?;
        Ok(PostgresStore { pools: Pools::new(pool, listen), tables, settings })
    }
}

fn parse(url: &str, problem: &'static str) -> Result<PgConnectOptions, StoreError> {
    // The driver takes any scheme.
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(StoreError::misconfigured(problem, None));
    }
    PgConnectOptions::from_str(url).map_err(|error| StoreError::misconfigured(problem, Some(Box::new(error))))
}
