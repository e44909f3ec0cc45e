//! Leases in an SQLite file.

mod error;
mod schema;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::lease::{
    Change, Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError,
};
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection as _, Sqlite, SqliteConnection};

use crate::columns::{self, FIELDS, KEY, Value, again};
use crate::memory::{cursor_key, cursor_of};
use error::store_error;
use schema::Table;

/// What a checkpoint survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A crash of every process, but not of the host: after a power loss some shards go on from an older checkpoint.
    /// Three times the writes of the other.
    #[default]
    ProcessCrash,
    /// A power loss.
    PowerLoss,
}

/// The delays between tries to open a file that others open at the same time.
const OPEN_RETRY: BackoffConfig = BackoffConfig::new(Duration::from_millis(10), Duration::from_millis(200));

/// The default of [`SqliteStoreBuilder::busy_timeout`].
const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How an SQLite store is opened.
#[derive(Debug, Clone)]
pub struct SqliteStoreBuilder {
    path: PathBuf,
    table: String,
    busy_timeout: Duration,
    durability: Durability,
}

impl SqliteStoreBuilder {
    /// The table's name. Default: [`SqliteStore::DEFAULT_TABLE`]. One table serves many applications and streams.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// How long a statement waits for another process's transaction. Default 10 s.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// What a checkpoint survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Opens the file, and makes it if it does not exist; its folder must exist.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] naming the file and what is wrong with it.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        let table = Table::new(&self.table)?;
        let file = self.path.display().to_string();
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let problem = format!("the folder {} of the lease file does not exist", folder.display());
            return Err(StoreError::misconfigured(problem, None));
        }
        if self.path.is_dir() {
            return Err(StoreError::misconfigured(format!("{file} is a folder, not a lease file"), None));
        }
        let synchronous = match self.durability {
            Durability::ProcessCrash => SqliteSynchronous::Normal,
            Durability::PowerLoss => SqliteSynchronous::Full,
        };
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .busy_timeout(self.busy_timeout);
        let pool_options = SqlitePoolOptions::new()
            // SQLite has one writer at a time anyway; one connection keeps a process from waiting for itself.
            .max_connections(1)
            .acquire_timeout(self.busy_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false);
        // Turning a fresh file to WAL needs it alone, and for that SQLite does not wait: who opens it at the same time
        // tries again.
        let deadline = Instant::now() + self.busy_timeout;
        let mut backoff = Backoff::new(OPEN_RETRY, fastrand::u64(..));
        let pool = loop {
            let error = match pool_options.clone().connect_with(options.clone()).await {
                Ok(pool) => break pool,
                Err(error) => store_error(&file, error),
            };
            if !error.is_retryable() || Instant::now() >= deadline {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_delay()).await;
        };
        Ok(SqliteStore { pool, table, file })
    }
}

/// Leases in an SQLite file: several processes of one host share them, without a server.
///
/// The file must lie on a local disk (SQLite's locks do not work on network file systems). Each call of `apply` is one
/// transaction, however many writes it has. Columns that this library does not know are kept.
///
/// The connection belongs to a thread of its own, so a store may be given to a
/// [`Coordinator`](crate::Coordinator) as it is. Programs that also use the same store elsewhere should open it twice,
/// or give a [factory](crate::LeaseStoreSource::factory).
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pool: SqlitePool,
    table: Table,
    /// For errors.
    file: String,
}

impl SqliteStore {
    /// The table's name unless another one is given.
    pub const DEFAULT_TABLE: &'static str = "kinesis_leases";

    /// Opens a file with the default settings.
    ///
    /// # Errors
    /// As for [`SqliteStoreBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open().await
    }

    /// Settings before opening.
    #[must_use]
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder {
            path: path.as_ref().to_owned(),
            table: Self::DEFAULT_TABLE.to_owned(),
            busy_timeout: DEFAULT_BUSY_TIMEOUT,
            durability: Durability::default(),
        }
    }

    /// Leases in a table of a database that the program has open anyway. Its settings are the caller's: WAL mode and a
    /// busy timeout of some seconds are needed for several processes.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the name is not an identifier.
    pub fn with_pool(pool: SqlitePool, table: &str) -> Result<Self, StoreError> {
        Ok(Self { pool, table: Table::new(table)?, file: "the SQLite database".to_owned() })
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        store_error(&self.file, error)
    }

    /// Reads, checks and writes in one transaction that holds the write lock from its beginning: a transaction that
    /// read first would fail whenever another process wrote meanwhile.
    async fn apply_all(
        &self,
        writes: &[LeaseWrite],
    ) -> Result<Vec<Result<Outcome, StoreError>>, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let results = self.apply_on(&mut connection, writes).await;
        if results.is_err() {
            // On a full disk SQLite ends the transaction by itself, and the connection would believe in it for ever.
            connection.close_on_drop();
        }
        results
    }

    async fn setup_on(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let begin = connection.begin_with("BEGIN IMMEDIATE").await;
        let mut transaction = begin.map_err(|error| self.failed(error))?;
        schema::setup(&mut transaction, &self.table, &self.file).await?;
        transaction.commit().await.map_err(|error| self.failed(error))
    }

    async fn apply_on(
        &self,
        connection: &mut SqliteConnection,
        writes: &[LeaseWrite],
    ) -> Result<Vec<Result<Outcome, StoreError>>, sqlx::Error> {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut results = Vec::with_capacity(writes.len());
        for write in writes {
            results.push(self.apply_one(&mut transaction, write).await?);
        }
        transaction.commit().await?;
        Ok(results)
    }

    /// The outer error ends the whole transaction, the inner one is that of this row alone.
    async fn apply_one(
        &self,
        connection: &mut SqliteConnection,
        write: &LeaseWrite,
    ) -> Result<Result<Outcome, StoreError>, sqlx::Error> {
        let current = match self.select(connection, &write.key).await? {
            Ok(current) => current,
            Err(corrupt) => return Ok(Err(corrupt)),
        };
        if !write.guard.check(current.as_ref()) {
            return Ok(Ok(Outcome::Refused { current }));
        }
        let unknown = |what| Ok(Err(StoreError::misconfigured(what, None)));
        let next = write.change.apply_to(current.clone());
        let Some(row) = next.or(current) else {
            return Ok(Ok(Outcome::Refused { current: None }));
        };
        match &write.change {
            Change::Create(_) => self.insert(connection, &row).await?,
            Change::Update(fields) => {
                let columns: Option<Vec<&[&str]>> = fields.iter().map(columns::columns).collect();
                let Some(columns) = columns else {
                    return unknown("the lease store does not know one of the fields");
                };
                let mut columns = columns.concat();
                columns.sort_unstable();
                columns.dedup();
                self.update(connection, &row, &columns).await?;
            }
            Change::Delete => self.delete(connection, &write.key).await?,
            _ => return unknown("the lease store does not know this kind of change"),
        }
        Ok(Ok(Outcome::Applied(row)))
    }

    async fn select(
        &self,
        connection: &mut SqliteConnection,
        key: &LeaseKey,
    ) -> Result<Result<Option<Lease>, StoreError>, sqlx::Error> {
        let statement = format!("SELECT {} FROM {} WHERE {OF_KEY}", all_columns(), self.table.quoted());
        let query = bind_key(sqlx::query(AssertSqlSafe(statement)), key);
        let row = query.fetch_optional(connection).await?;
        Ok(row.as_ref().map(|row| columns::read(row)).transpose())
    }

    async fn insert(&self, connection: &mut SqliteConnection, lease: &Lease) -> Result<(), sqlx::Error> {
        let places = vec!["?"; KEY.len() + FIELDS.len()].join(", ");
        let statement = format!("INSERT INTO {} ({}) VALUES ({places})", self.table.quoted(), all_columns());
        let mut query = bind_key(sqlx::query(AssertSqlSafe(statement)), &lease.key);
        for column in FIELDS {
            query = bind(query, columns::value(lease, column));
        }
        query.execute(connection).await.map(drop)
    }

    async fn update(
        &self,
        connection: &mut SqliteConnection,
        lease: &Lease,
        columns: &[&str],
    ) -> Result<(), sqlx::Error> {
        if columns.is_empty() {
            return Ok(());
        }
        let sets: Vec<String> = columns.iter().map(|column| format!("{column} = ?")).collect();
        let statement = format!("UPDATE {} SET {} WHERE {OF_KEY}", self.table.quoted(), sets.join(", "));
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for column in columns {
            query = bind(query, columns::value(lease, column));
        }
        bind_key(query, &lease.key).execute(connection).await.map(drop)
    }

    async fn delete(&self, connection: &mut SqliteConnection, key: &LeaseKey) -> Result<(), sqlx::Error> {
        let statement = format!("DELETE FROM {} WHERE {OF_KEY}", self.table.quoted());
        bind_key(sqlx::query(AssertSqlSafe(statement)), key).execute(connection).await.map(drop)
    }
}

/// All columns that this store knows.
fn all_columns() -> String {
    [KEY, FIELDS].concat().join(", ")
}

const OF_KEY: &str = "application = ? AND stream = ? AND shard = ?";

fn bind(query: Query<'_, Sqlite, SqliteArguments>, value: Value) -> Query<'_, Sqlite, SqliteArguments> {
    match value {
        Value::Text(value) => query.bind(value),
        Value::Number(value) => query.bind(value),
        Value::Real(value) => query.bind(value),
        Value::Bytes(value) => query.bind(value),
    }
}

fn bind_key<'q>(
    query: Query<'q, Sqlite, SqliteArguments>,
    key: &LeaseKey,
) -> Query<'q, Sqlite, SqliteArguments> {
    query
        .bind(key.application().as_str().to_owned())
        .bind(key.stream().as_str().to_owned())
        .bind(key.shard().as_str().to_owned())
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn setup(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed(error))?;
        let result = self.setup_on(&mut connection).await;
        if result.is_err() {
            connection.close_on_drop();
        }
        result
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed(error))?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let selected = self.select(&mut connection, key).await;
            found.push(selected.map_err(|error| self.failed(error))??);
        }
        Ok(found)
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        if request.segment > 0 {
            return Ok(ScanPage::default());
        }
        let after = request.cursor.as_ref().map(|cursor| cursor_key(request, cursor)).transpose()?;
        let mut statement =
            format!("SELECT {} FROM {} WHERE application = ?", all_columns(), self.table.quoted());
        if request.stream.is_some() {
            statement.push_str(" AND stream = ?");
        }
        if after.is_some() {
            statement.push_str(" AND (stream, shard) > (?, ?)");
        }
        statement.push_str(" ORDER BY stream, shard LIMIT ?");
        let mut query = sqlx::query(AssertSqlSafe(statement)).bind(request.application.as_str().to_owned());
        if let Some(stream) = &request.stream {
            query = query.bind(stream.as_str().to_owned());
        }
        if let Some(after) = &after {
            query = query.bind(after.stream().as_str().to_owned()).bind(after.shard().as_str().to_owned());
        }
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut rows = query.bind(limit).fetch_all(&self.pool).await.map_err(|error| self.failed(error))?;
        let more = rows.len() > request.limit;
        rows.truncate(request.limit);
        let last = rows.last().filter(|_| more).and_then(|last| columns::read_key(last).ok());
        Ok(columns::read_page(&rows, last.map(|last| cursor_of(&last))))
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        if writes.is_empty() {
            return Vec::new();
        }
        match self.apply_all(writes).await {
            Ok(results) => results,
            Err(error) => {
                // Nothing was applied, or (when the commit failed) nobody knows.
                let first = self.failed(error);
                let mut results: Vec<_> = writes[1..].iter().map(|_| Err(again(&first))).collect();
                results.insert(0, Err(first));
                results
            }
        }
    }
}
