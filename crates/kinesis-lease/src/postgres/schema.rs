//! The tables: their names, how they are made, and whether those that are there are ours.

use std::time::Duration;

use kinesis_core::lease::StoreError;
use kinesis_core::stable_hash;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::error::store_error;
use super::statement::{CHECKPOINT_COLUMNS, LEASE_COLUMNS, sql_type};
use crate::columns::KEY;

/// What leads from each version of the tables to the next one; the first makes them. The version is kept beside the
/// tables.
const MIGRATIONS: &[fn(&Tables) -> Vec<String>] = &[first];

/// How long making the tables may take, and waiting for another worker that makes them.
pub(super) const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Which lock callers of `setup` that race take; any number that others are unlikely to use.
const SETUP_LOCK: i64 = 0x6b69_6e65_7369_7301;

/// Names that are put into statements: validated once, and quoted everywhere.
///
/// What owners renew and what users' transactions write lies apart: a renewal locks a row of the first table only, a
/// transaction that moves a checkpoint one of the second only, so neither waits for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tables {
    schema: String,
    table: String,
    /// The heartbeat state, quoted and with its schema.
    pub(super) leases: String,
    /// The checkpoint state.
    pub(super) checkpoints: String,
}

impl Tables {
    /// The longest name of PostgreSQL, in bytes.
    const MAX_NAME: usize = 63;
    /// The longest of our endings is `_checkpoints`.
    const MAX_TABLE: usize = Self::MAX_NAME - "_checkpoints".len();
    const MAX_SCHEMA: usize = Self::MAX_NAME;

    pub(super) fn new(schema: &str, table: &str) -> Result<Self, StoreError> {
        let schema = identifier("schema", schema, Self::MAX_SCHEMA)?;
        let table = identifier("table", table, Self::MAX_TABLE)?;
        Ok(Self {
            leases: format!("\"{schema}\".\"{table}\""),
            checkpoints: format!("\"{schema}\".\"{table}_checkpoints\""),
            schema: schema.to_owned(),
            table: table.to_owned(),
        })
    }

    fn versions(&self) -> String {
        format!("\"{}\".\"{}_schema\"", self.schema, self.table)
    }

    /// The channel of the hints. Names of PostgreSQL have 63 bytes: of longer ones the end is replaced by a hash.
    pub(super) fn channel(&self) -> String {
        let name = format!("{}.{}", self.schema, self.table);
        if name.len() <= Self::MAX_NAME {
            return name;
        }
        // The same on every worker, whatever it was compiled with.
        format!("{}.{:016x}", &name[..Self::MAX_NAME - 17], stable_hash(&name))
    }

    /// For errors.
    pub(super) fn what(&self) -> String {
        format!("the lease table {}.{}", self.schema, self.table)
    }

    fn wrong(&self, problem: &str) -> StoreError {
        StoreError::misconfigured(format!("{} {problem}", self.what()), None)
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        store_error(&self.what(), error)
    }
}

fn identifier<'a>(what: &str, name: &'a str, longest: usize) -> Result<&'a str, StoreError> {
    let mut characters = name.chars();
    let starts_well = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_free = !name.to_ascii_lowercase().starts_with("pg_");
    if starts_well && goes_on_well && is_free && name.len() <= longest {
        return Ok(name);
    }
    let problem = format!(
        "invalid {what} name `{name}`: it must have up to {longest} ASCII letters, digits and '_', must not begin with \
         a digit or with 'pg_'"
    );
    Err(StoreError::misconfigured(problem, None))
}

/// Whether the tables are there in the version that this library knows; needs no right to make anything.
pub(super) async fn is_ready(connection: &mut PgConnection, tables: &Tables) -> Result<bool, StoreError> {
    let found = match version(connection, tables).await {
        // Not what the server says: another worker may have made the tables between two of our questions. Whoever makes
        // them has the lock until all of them are there.
        Err(StoreError::Misconfigured { source: None, .. }) => {
            lock(connection, tables).await?;
            version(connection, tables).await?
        }
        found => found?,
    };
    Ok(found == Some(MIGRATIONS.len()))
}

/// Waits for whoever makes or changes tables; nobody else does until the transaction ends.
async fn lock(connection: &mut PgConnection, tables: &Tables) -> Result<(), StoreError> {
    run(connection, tables, format!("SELECT pg_advisory_xact_lock({SETUP_LOCK})")).await
}

/// Makes the tables or brings them up to date. Runs in a transaction that others wait for.
pub(super) async fn migrate(connection: &mut PgConnection, tables: &Tables) -> Result<(), StoreError> {
    lock(connection, tables).await?;
    let from = match version(connection, tables).await? {
        Some(version) => version,
        None => {
            let schema = &tables.schema;
            let exists = format!("SELECT to_regnamespace('\"{schema}\"') IS NOT NULL");
            let exists = sqlx::query(AssertSqlSafe(exists)).persistent(false).fetch_one(&mut *connection);
            if !exists.await.map_err(|error| tables.failed(error))?.get::<bool, _>(0) {
                run(connection, tables, format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"")).await?;
            }
            let versions = tables.versions();
            run(connection, tables, format!("CREATE TABLE {versions} (version bigint NOT NULL)")).await?;
            run(connection, tables, format!("INSERT INTO {versions} (version) VALUES (0)")).await?;
            0
        }
    };
    for step in &MIGRATIONS[from..] {
        for statement in step(tables) {
            run(connection, tables, statement).await?;
        }
    }
    let versions = tables.versions();
    run(connection, tables, format!("UPDATE {versions} SET version = {}", MIGRATIONS.len())).await
}

/// The version of the tables that are there; `None` when there are none.
async fn version(connection: &mut PgConnection, tables: &Tables) -> Result<Option<usize>, StoreError> {
    let leases = columns(connection, tables, &tables.leases).await?;
    let versions = columns(connection, tables, &tables.versions()).await?;
    match (leases.is_empty(), versions.is_empty()) {
        (true, true) => return Ok(None),
        (false, true) => return Err(tables.wrong("is there, but was not made by this library")),
        (true, false) => return Err(tables.wrong("is gone, but its version is still there")),
        (false, false) => {}
    }
    let statement = format!("SELECT version FROM {} LIMIT 1", tables.versions());
    let row = sqlx::query(AssertSqlSafe(statement)).persistent(false).fetch_optional(&mut *connection).await;
    let row = row.map_err(|error| tables.failed(error))?;
    let found: i64 = match row.map(|row| row.try_get(0)) {
        Some(Ok(version)) => version,
        Some(Err(_)) | None => return Err(tables.wrong("has no version of its columns")),
    };
    let known = MIGRATIONS.len();
    let version = usize::try_from(found).ok().filter(|version| (1..=known).contains(version));
    let Some(version) = version else {
        let problem =
            format!("has version {found} of the columns, this library knows versions up to {known}");
        return Err(tables.wrong(&problem));
    };
    if version == known {
        let checkpoints = columns(connection, tables, &tables.checkpoints).await?;
        check(tables, &tables.leases, LEASE_COLUMNS, &leases)?;
        check(tables, &tables.checkpoints, CHECKPOINT_COLUMNS, &checkpoints)?;
        check_key(connection, tables, &tables.leases).await?;
        check_key(connection, tables, &tables.checkpoints).await?;
    }
    Ok(Some(version))
}

/// The columns of a table with their types; none when there is no such table.
async fn columns(
    connection: &mut PgConnection,
    tables: &Tables,
    name: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    let statement = "SELECT attname::text, format_type(atttypid, NULL) FROM pg_catalog.pg_attribute
                     WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
    let rows = sqlx::query(statement).persistent(false).bind(name).fetch_all(connection).await;
    let rows = rows.map_err(|error| tables.failed(error))?;
    Ok(rows.iter().filter_map(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?))).collect())
}

fn check(
    tables: &Tables,
    table: &str,
    expected: &[&'static str],
    found: &[(String, String)],
) -> Result<(), StoreError> {
    for column in KEY.iter().chain(expected) {
        let Some((_, is)) = found.iter().find(|(name, _)| name == column) else {
            return Err(tables.wrong(&format!("is not usable: {table} has no column {column}")));
        };
        let wanted = sql_type(column);
        if is != wanted {
            let problem = format!("is not usable: {table} has {column} as {is} and not as {wanted}");
            return Err(tables.wrong(&problem));
        }
    }
    Ok(())
}

/// Without its key a table would have two rows of one lease.
async fn check_key(connection: &mut PgConnection, tables: &Tables, table: &str) -> Result<(), StoreError> {
    let statement = "SELECT attname::text FROM pg_catalog.pg_index
                     JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
                     WHERE indrelid = to_regclass($1) AND indisprimary
                     ORDER BY array_position(indkey::smallint[], attnum)";
    let rows = sqlx::query(statement).persistent(false).bind(table).fetch_all(connection).await;
    let rows = rows.map_err(|error| tables.failed(error))?;
    let found: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    if found == KEY {
        return Ok(());
    }
    let problem =
        format!("is not usable: {table} has ({}) as its key and not ({})", found.join(", "), KEY.join(", "));
    Err(tables.wrong(&problem))
}

/// One place where text becomes a statement: everything in it is a constant or a validated name.
async fn run(connection: &mut PgConnection, tables: &Tables, statement: String) -> Result<(), StoreError> {
    let query = sqlx::raw_sql(AssertSqlSafe(statement));
    query.execute(connection).await.map(drop).map_err(|error| tables.failed(error))
}

/// Text in the order of its bytes: an index on it survives every change of the host's collations.
fn first(tables: &Tables) -> Vec<String> {
    let key = "application text COLLATE \"C\" NOT NULL,
               stream text COLLATE \"C\" NOT NULL,
               shard text COLLATE \"C\" NOT NULL,
               PRIMARY KEY (application, stream, shard)";
    let Tables { leases, checkpoints, .. } = tables;
    vec![
        format!(
            "CREATE TABLE {leases} (
                {key},
                owner text,
                counter bigint NOT NULL,
                epoch bigint NOT NULL,
                token text,
                anchor_ms bigint,
                parents text NOT NULL,
                children text NOT NULL,
                hash_start text,
                hash_end text,
                owner_switches bigint NOT NULL,
                checkpoint_owner text,
                throughput_kbps double precision,
                cool_down_ms bigint,
                cool_down_failures bigint,
                private jsonb
            ) WITH (fillfactor = 50)"
        ),
        format!(
            "CREATE TABLE {checkpoints} (
                {key},
                epoch bigint NOT NULL,
                checkpoint text NOT NULL,
                sub_sequence bigint NOT NULL,
                pending text,
                pending_sub_sequence bigint,
                pending_state bytea,
                FOREIGN KEY (application, stream, shard) REFERENCES {leases} ON DELETE CASCADE
            ) WITH (fillfactor = 50)"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_has_the_names_and_never_too_many_bytes() {
        let channel = |schema: &str, table: &str| Tables::new(schema, table).unwrap().channel();
        assert_eq!(channel("public", "kinesis_leases"), "public.kinesis_leases");
        let (long, longer) = ("s".repeat(40), "t".repeat(51));
        let first = channel(&long, &longer);
        assert_eq!(first.len(), 63);
        assert_ne!(first, channel(&long, &format!("{}u", &longer[1..])), "told apart by what is cut off");
        assert_eq!(first, channel(&long, &longer));
    }
}
