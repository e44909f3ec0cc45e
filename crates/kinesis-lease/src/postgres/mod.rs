//! Leases in PostgreSQL.

mod builder;
mod checkpoint;
mod error;
mod hint;
mod pools;
mod schema;
mod statement;
mod write;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use kinesis_core::lease::{
    HintRequest, Lease, LeaseHints, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanPage, ScanRequest,
    StoreError,
};
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row as _};

use crate::columns::{self, again};
use crate::memory::{cursor_key, cursor_of};
pub use builder::{Pooler, PostgresStoreBuilder};
pub use checkpoint::CheckpointInError;
use error::{is_of_one_row, store_error};
use pools::Pools;
use schema::Tables;
use statement::Locked;
use write::{Kind, Planned};

/// Leases in PostgreSQL: any number of workers and applications share one table.
///
/// The renewals of all leases of a worker are one statement; each other kind of write is one statement, however many
/// leases it is for. Safety rests on guarded writes alone: no session locks, no search path, no clock.
///
/// What owners renew and where the checkpoints are lie in two tables, so that a [transaction that moves a
/// checkpoint](Self::checkpoint_in) delays no renewal. Columns that this library does not know are kept.
///
/// A server that restarts, fails over or takes no writes for a while is [`StoreError::Unavailable`]; leases survive that
/// if it is shorter than the time for which a holder believes in them. A clone uses the same connections.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pools: Pools,
    tables: Tables,
    settings: Settings,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    pooler: Pooler,
    lock_timeout: Duration,
    /// Whether there are any: wanted, and with a way to listen for them.
    hints: bool,
}

/// How many takes wait for transactions of former owners at the same time.
const WAITERS: usize = 2;

/// The shortest wait that is worth a statement.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

type Applied = Result<Outcome, StoreError>;

impl PostgresStore {
    /// The schema unless another one is given.
    pub const DEFAULT_SCHEMA: &'static str = "public";
    /// The table's name unless another one is given.
    pub const DEFAULT_TABLE: &'static str = "kinesis_leases";

    /// A store at a URL with the default settings. Connects when it is used first.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the URL cannot be used.
    pub fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url)
    }

    /// Leases in a table of the default schema, on a pool that the program has anyway.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the name is not an identifier.
    pub fn with_pool(pool: PgPool, table: &str) -> Result<Self, StoreError> {
        Self::builder().table(table).pool(pool)
    }

    /// Settings before connecting.
    #[must_use]
    pub fn builder() -> PostgresStoreBuilder {
        PostgresStoreBuilder::default()
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        store_error(&self.tables.what(), error)
    }

    /// What a statement's transaction begins with, where it needs one.
    fn begin(&self) -> Option<AssertSqlSafe<String>> {
        match self.settings.pooler {
            Pooler::Direct => None,
            Pooler::Transaction => Some(pools::begin(self.settings.lock_timeout, builder::STATEMENT_TIMEOUT)),
        }
    }

    async fn rows(
        &self,
        query: Query<'_, Postgres, PgArguments>,
        begin: Option<AssertSqlSafe<String>>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut connection = self.pools.acquire().await?;
        let rows = pools::rows(connection.get(), query, self.settings.pooler, begin).await;
        connection.end(rows)
    }

    /// Applies writes of one kind. The results come in any order.
    async fn apply_kind(&self, kind: &Kind, writes: Vec<Planned>) -> Vec<(usize, Applied)> {
        let statement = statement::write(&self.tables, kind, Locked::Skip);
        let all: Vec<&Planned> = writes.iter().collect();
        let rows = match self.rows(statement::bind(statement, kind, &all), self.begin()).await {
            Ok(rows) => rows,
            Err(error) if writes.len() > 1 && is_of_one_row(&error) => {
                // Nothing was applied; all but the bad one are good.
                let mut results = Vec::with_capacity(writes.len());
                for write in writes {
                    let place = write.place;
                    results.push((place, self.apply_waiting(kind, &write, self.settings.lock_timeout).await));
                }
                return results;
            }
            // Nothing was applied, or nobody knows.
            Err(error) => return all_failed(&writes, self.failed(error)),
        };
        let mut results = Vec::with_capacity(writes.len());
        let mut answers = answers(&rows);
        let mut refused = Vec::new();
        let mut locked = Vec::new();
        for (index, write) in writes.into_iter().enumerate() {
            match answers.remove(&index) {
                Some(Answer::Applied(row)) => results.push((write.place, (*row).map(Outcome::Applied))),
                Some(Answer::Unseen) if kind.writes_checkpoint() => locked.push(write),
                _ => refused.push(write),
            }
        }
        results.extend(self.refused(refused).await);
        results.extend(self.apply_locked(kind, locked).await);
        results
    }

    /// Applies writes whose rows are locked, or not there: each by itself, because one that has to be waited for says
    /// nothing of the others. Together they wait for `lock_timeout` at most.
    async fn apply_locked(&self, kind: &Kind, mut writes: Vec<Planned>) -> Vec<(usize, Applied)> {
        // No transaction that stays open for long may always be waited for first.
        fastrand::shuffle(&mut writes);
        let deadline = Instant::now() + self.settings.lock_timeout;
        let waiting = writes.into_iter().map(|write| async move {
            let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
            (write.place, self.apply_waiting(kind, &write, left).await)
        });
        futures_util::stream::iter(waiting).buffer_unordered(WAITERS).collect().await
    }

    /// Applies one write, and waits for a transaction that has locked its row.
    async fn apply_waiting(&self, kind: &Kind, write: &Planned, lock_timeout: Duration) -> Applied {
        let statement = statement::write(&self.tables, kind, Locked::Wait);
        let begin = pools::begin(lock_timeout, builder::STATEMENT_TIMEOUT);
        let rows = match self.rows(statement::bind(statement, kind, &[write]), Some(begin)).await {
            Ok(rows) => rows,
            Err(error) if is_of_one_row(&error) => {
                let problem = "a value of the row or of the write is out of range";
                return Err(StoreError::corrupt(write.key.clone(), problem));
            }
            Err(error) => return Err(self.failed(error)),
        };
        match answers(&rows).remove(&0) {
            Some(Answer::Applied(row)) => (*row).map(Outcome::Applied),
            _ => self.select(std::slice::from_ref(&write.key)).await.and_then(|mut found| {
                let current = found.pop().flatten().transpose()?;
                Ok(Outcome::Refused { current })
            }),
        }
    }

    /// The results of writes whose guards did not hold: with the rows as they are now.
    async fn refused(&self, writes: Vec<Planned>) -> Vec<(usize, Applied)> {
        if writes.is_empty() {
            return Vec::new();
        }
        let keys: Vec<LeaseKey> = writes.iter().map(|write| write.key.clone()).collect();
        match self.select(&keys).await {
            Ok(rows) => {
                let outcomes = rows.into_iter().map(|row| Ok(Outcome::Refused { current: row.transpose()? }));
                writes.iter().map(|write| write.place).zip(outcomes).collect()
            }
            Err(error) => all_failed(&writes, error),
        }
    }

    /// Rows by key: `None` where there is none, an error where it cannot be read.
    async fn select(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Result<Lease, StoreError>>>, StoreError> {
        let query = sqlx::query(AssertSqlSafe(statement::select_keys(&self.tables)));
        let rows =
            self.rows(statement::bind_keys(query, &keys.iter().collect::<Vec<_>>()), self.begin()).await;
        let mut found: Vec<_> = keys.iter().map(|_| None).collect();
        for row in rows.map_err(|error| self.failed(error))? {
            let place: i64 = row.try_get("place").map_err(|error| self.failed(error))?;
            // Places of arrays count from 1.
            let slot = usize::try_from(place - 1).ok().and_then(|place| found.get_mut(place));
            if let Some(slot) = slot {
                *slot = Some(columns::read(&row));
            }
        }
        Ok(found)
    }
}

/// What became of one write of a statement.
enum Answer {
    Applied(Box<Result<Lease, StoreError>>),
    Refused,
    /// There is no row, or it is locked.
    Unseen,
}

fn answers(rows: &[PgRow]) -> BTreeMap<usize, Answer> {
    let answer = |row: &PgRow| {
        let place = usize::try_from(row.try_get::<i64, _>("place").ok()?).ok()?;
        let answer = if row.try_get("applied").ok()? {
            Answer::Applied(Box::new(columns::read(row)))
        } else if row.try_get("seen").ok()? {
            Answer::Refused
        } else {
            Answer::Unseen
        };
        Some((place, answer))
    };
    rows.iter().filter_map(answer).collect()
}

fn all_failed(writes: &[Planned], error: StoreError) -> Vec<(usize, Applied)> {
    let mut results: Vec<_> = writes.iter().skip(1).map(|write| (write.place, Err(again(&error)))).collect();
    results.extend(writes.first().map(|write| (write.place, Err(error))));
    results
}

#[async_trait]
impl LeaseStore for PostgresStore {
    async fn setup(&self) -> Result<(), StoreError> {
        let mut connection = self.pools.acquire().await.map_err(|error| self.failed(error))?;
        let begin = pools::begin(schema::SETUP_TIMEOUT, schema::SETUP_TIMEOUT);
        let result = async {
            let begun = sqlx::Connection::begin_with(connection.get(), begin).await;
            let mut transaction = begun.map_err(|error| self.failed(error))?;
            // First without asking for more rights than a worker needs, and on a stand-by too.
            if !schema::is_ready(&mut transaction, &self.tables).await? {
                schema::migrate(&mut transaction, &self.tables).await?;
            }
            transaction.commit().await.map_err(|error| self.failed(error))
        };
        let result = result.await;
        if result.is_ok() {
            drop(connection.end(Ok(())));
        }
        result
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.select(keys).await?.into_iter().map(Option::transpose).collect()
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        if request.segment > 0 {
            return Ok(ScanPage::default());
        }
        let after = request.cursor.as_ref().map(|cursor| cursor_key(request, cursor)).transpose()?;
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX).saturating_add(1);
        let query = sqlx::query(AssertSqlSafe(statement::select_page(&self.tables)))
            .bind(request.application.as_str().to_owned())
            .bind(request.stream.as_ref().map(|stream| stream.as_str().to_owned()))
            .bind(after.as_ref().map(|after| after.stream().as_str().to_owned()))
            .bind(after.as_ref().map(|after| after.shard().as_str().to_owned()))
            .bind(limit);
        let mut rows = self.rows(query, self.begin()).await.map_err(|error| self.failed(error))?;
        let more = rows.len() > request.limit;
        rows.truncate(request.limit);
        let last = rows.iter().rev().find_map(|row| columns::read_key(row).ok()).filter(|_| more);
        Ok(columns::read_page(&rows, last.map(|last| cursor_of(&last))))
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let missing = || Err(StoreError::unavailable("the statement gave no result"));
        let mut results: Vec<Applied> = writes.iter().map(|_| missing()).collect();
        let mut kinds: BTreeMap<Kind, Vec<Planned>> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            match Planned::new(place, write) {
                Ok(planned) => kinds.entry(planned.kind.clone()).or_default().push(planned),
                Err(problem) => results[place] = Err(StoreError::misconfigured(problem, None)),
            }
        }
        for (kind, writes) in kinds {
            for (place, result) in self.apply_kind(&kind, writes).await {
                results[place] = result;
            }
        }
        self.give_hints(writes, &results).await;
        results
    }

    fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
        self.settings.hints.then(|| Box::new(hint::Hints::new(self.clone(), request)) as _)
    }
}
