//! The tables, and whether those that are there are ours.

use kinesis_core::lease::StoreError;
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection, Transaction};

use super::error::store_error;
use crate::columns::{FIELDS, KEY};

/// The version of the table's columns. It is kept beside the table, because one file may serve other purposes too.
const VERSION: i64 = 1;

/// Names that are put into statements: validated once, and quoted everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    name: String,
}

impl Table {
    /// The longest accepted name.
    const MAX_LEN: usize = 63;

    pub(super) fn new(name: &str) -> Result<Self, StoreError> {
        let mut characters = name.chars();
        let starts_well = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let goes_on_well = characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_free = !name.to_ascii_lowercase().starts_with("sqlite_");
        if starts_well && goes_on_well && is_free && name.len() <= Self::MAX_LEN {
            return Ok(Self { name: name.to_owned() });
        }
        let problem = format!(
            "invalid table name `{name}`: it must have up to {} ASCII letters, digits and '_', must not begin with a \
             digit or with 'sqlite_'",
            Self::MAX_LEN
        );
        Err(StoreError::misconfigured(problem, None))
    }

    /// The table, quoted.
    pub(super) fn quoted(&self) -> String {
        format!("\"{}\"", self.name)
    }

    fn versions(&self) -> String {
        format!("\"{}_schema\"", self.name)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Makes the tables, or checks those that are there. Runs in a transaction that others wait for.
pub(super) async fn setup(
    transaction: &mut Transaction<'_, Sqlite>,
    table: &Table,
    file: &str,
) -> Result<(), StoreError> {
    let failed = |error| store_error(file, error);
    let (leases, versions) = (table.quoted(), table.versions());
    let exists = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND lower(name) = lower(?)";
    let found = sqlx::query(exists).bind(table.name()).fetch_one(&mut **transaction).await.map_err(failed)?;
    let has_leases = found.get::<i64, _>(0) > 0;
    let statement = format!("CREATE TABLE IF NOT EXISTS {versions} (version INTEGER NOT NULL)");
    run(transaction, statement).await.map_err(failed)?;
    let statement = AssertSqlSafe(format!("SELECT version FROM {versions} LIMIT 1"));
    let version = sqlx::query(statement).fetch_optional(&mut **transaction).await.map_err(failed)?;
    let version = version.map(|row| row.try_get::<i64, _>(0)).transpose().map_err(failed)?;
    match (has_leases, version) {
        (true, Some(VERSION)) => {
            check_columns(transaction, table, file).await?;
            // Changes nothing, but fails now rather than later when the file cannot be written.
            let statement = format!("UPDATE {versions} SET version = {VERSION}");
            run(transaction, statement).await.map_err(failed)
        }
        (true, None) => Err(wrong(table, file, "is there, but was not made by this library")),
        (false, Some(_)) => Err(wrong(table, file, "is gone, but its version is still there")),
        (true, Some(other)) => {
            let problem = format!("has version {other} of the columns, this library knows version {VERSION}");
            Err(wrong(table, file, &problem))
        }
        (false, None) => {
            run(transaction, definition(&leases)).await.map_err(failed)?;
            let statement = format!("INSERT INTO {versions} (version) VALUES ({VERSION})");
            run(transaction, statement).await.map_err(failed)
        }
    }
}

/// One place where text becomes a statement: everything in it is a constant or a validated name.
async fn run(connection: &mut SqliteConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

fn wrong(table: &Table, file: &str, problem: &str) -> StoreError {
    StoreError::misconfigured(format!("table {} of {file} {problem}", table.name()), None)
}

async fn check_columns(
    connection: &mut SqliteConnection,
    table: &Table,
    file: &str,
) -> Result<(), StoreError> {
    let statement = format!("SELECT name, pk FROM pragma_table_info('{}') ORDER BY pk", table.name());
    let rows = sqlx::query(AssertSqlSafe(statement))
        .fetch_all(connection)
        .await
        .map_err(|error| store_error(file, error))?;
    let found: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    let is_there = |column: &&&str| found.iter().any(|name| name == **column);
    if let Some(missing) = KEY.iter().chain(FIELDS).find(|column| !is_there(column)) {
        return Err(wrong(table, file, &format!("has no column {missing}")));
    }
    let in_key = rows.iter().filter(|row| row.try_get::<i64, _>(1).is_ok_and(|place| place > 0));
    let key: Vec<String> = in_key.filter_map(|row| row.try_get(0).ok()).collect();
    if key == KEY {
        return Ok(());
    }
    let problem = format!("has ({}) as its key and not ({})", key.join(", "), KEY.join(", "));
    Err(wrong(table, file, &problem))
}

fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (
            application TEXT NOT NULL,
            stream TEXT NOT NULL,
            shard TEXT NOT NULL,
            owner TEXT,
            counter INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            token TEXT,
            checkpoint TEXT NOT NULL,
            sub_sequence INTEGER NOT NULL,
            pending TEXT,
            pending_sub_sequence INTEGER,
            pending_state BLOB,
            anchor_ms INTEGER,
            parents TEXT NOT NULL,
            children TEXT NOT NULL,
            hash_start TEXT,
            hash_end TEXT,
            owner_switches INTEGER NOT NULL,
            checkpoint_owner TEXT,
            throughput_kbps REAL,
            cool_down_ms INTEGER,
            cool_down_failures INTEGER,
            private TEXT,
            PRIMARY KEY (application, stream, shard)
        ) WITHOUT ROWID"
    )
}
