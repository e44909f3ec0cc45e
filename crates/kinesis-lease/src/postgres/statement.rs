//! The statements: for each kind of write one, which takes any number of writes as arrays.

use kinesis_core::lease::{Guard, LeaseKey};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres};

use super::schema::Tables;
use super::write::{Kind, Op, Planned};
use crate::columns::{KEY, Value};

/// The heartbeat state, without the key.
pub(super) const LEASE_COLUMNS: &[&str] = &[
    "owner",
    "counter",
    "epoch",
    "token",
    "anchor_ms",
    "parents",
    "children",
    "hash_start",
    "hash_end",
    "owner_switches",
    "checkpoint_owner",
    "throughput_kbps",
    "cool_down_ms",
    "cool_down_failures",
    "private",
];

/// The checkpoint state, without the key. It has a copy of the epoch, which fences users' transactions.
pub(super) const CHECKPOINT_COLUMNS: &[&str] =
    &["epoch", "checkpoint", "sub_sequence", "pending", "pending_sub_sequence", "pending_state"];

/// Whether a write of this column is one of the checkpoint state.
pub(super) fn is_of_checkpoint(column: &str) -> bool {
    CHECKPOINT_COLUMNS.contains(&column)
}

pub(super) fn sql_type(column: &str) -> &'static str {
    match column {
        "counter"
        | "epoch"
        | "sub_sequence"
        | "pending_sub_sequence"
        | "anchor_ms"
        | "owner_switches"
        | "cool_down_ms"
        | "cool_down_failures" => "bigint",
        "throughput_kbps" => "double precision",
        "pending_state" => "bytea",
        "private" => "jsonb",
        _ => "text",
    }
}

/// Columns of the guard, beside those of the key.
const GUARD: &[(&str, &str)] = &[
    ("g_kind", "text"),
    ("g_owner", "text"),
    ("g_counter", "bigint"),
    ("g_token", "text"),
    ("g_checkpoint_owner", "text"),
];

/// [`Guard::check`] on the row `l`.
const GUARD_HOLDS: &str = "CASE w.g_kind
        WHEN 'exists' THEN true
        WHEN 'counter' THEN l.counter = w.g_counter
        WHEN 'owner_counter' THEN l.counter = w.g_counter AND l.owner IS NOT DISTINCT FROM w.g_owner
        WHEN 'tenure' THEN l.counter = w.g_counter AND l.token = w.g_token
        WHEN 'owners' THEN l.owner IS NOT DISTINCT FROM w.g_owner
            AND l.checkpoint_owner IS NOT DISTINCT FROM w.g_checkpoint_owner
        WHEN 'counter_no_handoff' THEN l.counter = w.g_counter AND l.checkpoint_owner IS NULL
        ELSE false
    END";

/// Whether to wait for rows of the checkpoint state that a user's transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locked {
    /// Leave them out; they are reported as not seen.
    Skip,
    /// Wait, for as long as the connection's `lock_timeout` allows.
    Wait,
}

/// The columns of the answer: those of a row, from `l` and `c`.
fn answer() -> String {
    let of_lease = LEASE_COLUMNS.iter().map(|column| match *column {
        "private" => "l.private::text AS private".to_owned(),
        column => format!("l.{column}"),
    });
    let of_checkpoint =
        CHECKPOINT_COLUMNS.iter().filter(|column| **column != "epoch").map(|column| format!("c.{column}"));
    of_lease.chain(of_checkpoint).collect::<Vec<_>>().join(", ")
}

/// Reads the rows of the keys `$1` to `$3`, with their places in `place`.
pub(super) fn select_keys(tables: &Tables) -> String {
    let Tables { leases, checkpoints, .. } = tables;
    format!(
        "SELECT w.place, l.application, l.stream, l.shard, {}
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (application, stream, shard, place)
         JOIN {leases} l USING (application, stream, shard)
         LEFT JOIN {checkpoints} c USING (application, stream, shard)",
        answer()
    )
}

/// Reads a page: of the application `$1`, perhaps of the stream `$2`, after the stream `$3` and shard `$4`, at most `$5`.
pub(super) fn select_page(tables: &Tables) -> String {
    let Tables { leases, checkpoints, .. } = tables;
    format!(
        "SELECT l.application, l.stream, l.shard, {}
         FROM {leases} l LEFT JOIN {checkpoints} c USING (application, stream, shard)
         WHERE l.application = $1 AND ($2::text IS NULL OR l.stream = $2)
             AND ($3::text IS NULL OR (l.stream, l.shard) > ($3, $4::text))
         ORDER BY l.stream, l.shard LIMIT $5",
        answer()
    )
}

/// A statement that applies writes of one kind, each by itself. It answers with a row for each write: its `place`,
/// whether its row was `seen`, whether it was `applied`, and then the row.
///
/// Rows are locked in the order of their keys, checkpoint state first, so that no two of these statements wait for each
/// other. A renewal never touches the checkpoint state.
pub(super) fn write(tables: &Tables, kind: &Kind, locked: Locked) -> String {
    let input = input(kind);
    match kind {
        Kind::Create => create(tables, &input, kind),
        Kind::Delete | Kind::Update(_) if kind.writes_checkpoint() => both(tables, &input, kind, locked),
        Kind::Delete | Kind::Update(_) => leases_only(tables, &input, kind),
    }
}

/// `w`: the writes.
fn input(kind: &Kind) -> String {
    let mut names = vec!["place".to_owned()];
    let mut types = vec!["bigint".to_owned()];
    names.extend(KEY.iter().chain(GUARD.iter().map(|(name, _)| name)).map(|name| (*name).to_owned()));
    types.extend(KEY.iter().map(|_| "text").chain(GUARD.iter().map(|(_, of)| *of)).map(str::to_owned));
    for (column, _) in kind.columns() {
        names.push(format!("v_{column}"));
        types.push(sql_type(column).replace("jsonb", "text"));
    }
    let arrays: Vec<String> =
        types.iter().enumerate().map(|(index, of)| format!("${}::{of}[]", index + 1)).collect();
    format!("w AS (SELECT * FROM unnest({}) AS w ({}))", arrays.join(", "), names.join(", "))
}

fn new_value(column: &str) -> String {
    match column {
        "private" => "w.v_private::jsonb".to_owned(),
        column => format!("w.v_{column}"),
    }
}

/// The assignments to one of the tables; `t` is its name in the statement.
fn assignments(kind: &Kind, t: &str, of_checkpoint: bool) -> String {
    let mut all = Vec::new();
    for (column, op) in kind.columns() {
        // The epoch is one of the leases' columns; its copy is written separately.
        if (is_of_checkpoint(column) && column != "epoch") != of_checkpoint {
            continue;
        }
        let value = new_value(column);
        all.push(match op {
            Op::Set => format!("{column} = {value}"),
            Op::Add => format!("{column} = {t}.{column} + {value}"),
            // What is null in it is removed.
            Op::Merge => {
                format!("{column} = jsonb_strip_nulls(coalesce({t}.{column}, '{{}}') || {value})")
            }
        });
    }
    if all.is_empty() && !of_checkpoint {
        all.push(format!("counter = {t}.counter"));
    }
    all.join(", ")
}

fn leases_only(tables: &Tables, input: &str, kind: &Kind) -> String {
    let Tables { leases, checkpoints, .. } = tables;
    let set = assignments(kind, "l", false);
    format!(
        "WITH {input},
        k AS MATERIALIZED (
            SELECT l.application, l.stream, l.shard FROM {leases} l JOIN w USING (application, stream, shard)
            ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF l
        ),
        l AS (
            UPDATE {leases} l SET {set} FROM w JOIN k USING (application, stream, shard)
            WHERE (l.application, l.stream, l.shard) = (w.application, w.stream, w.shard) AND {GUARD_HOLDS}
            RETURNING w.place, l.*
        )
        SELECT w.place, k.shard IS NOT NULL AS seen, l.place IS NOT NULL AS applied,
            w.application, w.stream, w.shard, {}
        FROM w LEFT JOIN k USING (application, stream, shard) LEFT JOIN l ON l.place = w.place
            LEFT JOIN {checkpoints} c ON (c.application, c.stream, c.shard) = (l.application, l.stream, l.shard)",
        answer()
    )
}

fn both(tables: &Tables, input: &str, kind: &Kind, locked: Locked) -> String {
    let Tables { leases, checkpoints, .. } = tables;
    let skip = match locked {
        Locked::Skip => "SKIP LOCKED",
        Locked::Wait => "",
    };
    let of_lease = "(l.application, l.stream, l.shard) = (w.application, w.stream, w.shard)";
    let of_checkpoint = "(c.application, c.stream, c.shard) = (l.application, l.stream, l.shard)";
    let (change_lease, change_checkpoint) = if *kind == Kind::Delete {
        (
            format!(
                "DELETE FROM {leases} l USING w JOIN m USING (application, stream, shard) WHERE {of_lease}"
            ),
            format!("DELETE FROM {checkpoints} c USING l JOIN w ON w.place = l.place WHERE {of_checkpoint}"),
        )
    } else {
        let set = assignments(kind, "l", false);
        let set_checkpoint = assignments(kind, "c", true);
        let comma = if set_checkpoint.is_empty() { "" } else { ", " };
        (
            format!(
                "UPDATE {leases} l SET {set} FROM w JOIN m USING (application, stream, shard) WHERE {of_lease}"
            ),
            format!(
                "UPDATE {checkpoints} c SET epoch = l.epoch{comma}{set_checkpoint}
                 FROM l JOIN w ON w.place = l.place WHERE {of_checkpoint}"
            ),
        )
    };
    format!(
        "WITH {input},
        k AS MATERIALIZED (
            SELECT c.application, c.stream, c.shard FROM {checkpoints} c JOIN w USING (application, stream, shard)
            ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF c {skip}
        ),
        m AS MATERIALIZED (
            SELECT l.application, l.stream, l.shard FROM {leases} l JOIN k USING (application, stream, shard)
            ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF l
        ),
        l AS ({change_lease} AND {GUARD_HOLDS} RETURNING w.place, l.*),
        c AS ({change_checkpoint} RETURNING w.place, c.*)
        SELECT w.place, m.shard IS NOT NULL AS seen, l.place IS NOT NULL AS applied,
            w.application, w.stream, w.shard, {}
        FROM w LEFT JOIN m USING (application, stream, shard)
            LEFT JOIN l ON l.place = w.place LEFT JOIN c ON c.place = w.place",
        answer()
    )
}

fn create(tables: &Tables, input: &str, kind: &Kind) -> String {
    let Tables { leases, checkpoints, .. } = tables;
    let lists = |columns: &[&str]| {
        let names: Vec<&str> = KEY.iter().chain(columns).copied().collect();
        let values = KEY.iter().map(|column| format!("w.{column}"));
        let values: Vec<String> = values.chain(columns.iter().map(|column| new_value(column))).collect();
        (names.join(", "), values.join(", "))
    };
    debug_assert_eq!(kind.columns().len(), LEASE_COLUMNS.len() + CHECKPOINT_COLUMNS.len() - 1);
    let (lease_columns, lease_values) = lists(LEASE_COLUMNS);
    let (checkpoint_columns, checkpoint_values) = lists(CHECKPOINT_COLUMNS);
    format!(
        "WITH {input},
        l AS (
            INSERT INTO {leases} ({lease_columns}) SELECT {lease_values} FROM w
            ORDER BY w.application, w.stream, w.shard
            ON CONFLICT (application, stream, shard) DO NOTHING RETURNING *
        ),
        c AS (
            INSERT INTO {checkpoints} ({checkpoint_columns}) SELECT {checkpoint_values}
            FROM w JOIN l USING (application, stream, shard) RETURNING *
        )
        SELECT w.place, true AS seen, l.shard IS NOT NULL AS applied,
            w.application, w.stream, w.shard, {}
        FROM w LEFT JOIN l USING (application, stream, shard) LEFT JOIN c USING (application, stream, shard)",
        answer()
    )
}

/// The arguments of [`write`].
pub(super) fn bind<'q>(
    statement: String,
    kind: &Kind,
    writes: &[&Planned],
) -> Query<'q, Postgres, PgArguments> {
    // Everything in the statement is a constant or a validated name.
    let query = sqlx::query(AssertSqlSafe(statement));
    let places: Vec<i64> = (0..).take(writes.len()).collect();
    let query = bind_keys(query.bind(places), &writes.iter().map(|write| &write.key).collect::<Vec<_>>());
    let mut query = bind_guards(query, writes.iter().map(|write| &write.guard));
    for (column, _) in kind.columns() {
        let values = writes.iter().map(|write| write.value(column));
        query = match sql_type(column) {
            "bigint" => query.bind(values.map(number).collect::<Vec<_>>()),
            "double precision" => query.bind(values.map(real).collect::<Vec<_>>()),
            "bytea" => query.bind(values.map(bytes).collect::<Vec<_>>()),
            _ => query.bind(values.map(text).collect::<Vec<_>>()),
        };
    }
    query
}

pub(super) fn bind_keys<'q>(
    query: Query<'q, Postgres, PgArguments>,
    keys: &[&LeaseKey],
) -> Query<'q, Postgres, PgArguments> {
    let of = |part: fn(&LeaseKey) -> &str| -> Vec<String> {
        keys.iter().map(|key| part(key).to_owned()).collect()
    };
    query
        .bind(of(|key| key.application().as_str()))
        .bind(of(|key| key.stream().as_str()))
        .bind(of(|key| key.shard().as_str()))
}

fn bind_guards<'q, 'g>(
    query: Query<'q, Postgres, PgArguments>,
    guards: impl Iterator<Item = &'g Guard>,
) -> Query<'q, Postgres, PgArguments> {
    let (mut kinds, mut owners, mut counters, mut tokens, mut holders) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for guard in guards {
        let mut owner_is = None;
        let mut counter_is = None;
        let mut token_is = None;
        let mut holder_is = None;
        kinds.push(match guard {
            Guard::Exists => "exists",
            Guard::Counter(counter) => {
                counter_is = Some(*counter);
                "counter"
            }
            Guard::OwnerCounter { owner, counter } => {
                (owner_is, counter_is) = (owner.as_ref(), Some(*counter));
                "owner_counter"
            }
            Guard::Tenure { counter, token } => {
                (counter_is, token_is) = (Some(*counter), Some(token.to_string()));
                "tenure"
            }
            Guard::Owners { owner, checkpoint_owner } => {
                (owner_is, holder_is) = (owner.as_ref(), checkpoint_owner.as_ref());
                "owners"
            }
            Guard::CounterNoHandoff(counter) => {
                counter_is = Some(*counter);
                "counter_no_handoff"
            }
            // Holds for no row that is there; `Planned` has refused what this store does not know.
            _ => "absent",
        });
        owners.push(owner_is.map(ToString::to_string));
        counters.push(counter_is.map(|counter| i64::try_from(counter).unwrap_or(i64::MAX)));
        tokens.push(token_is);
        holders.push(holder_is.map(ToString::to_string));
    }
    query.bind(kinds).bind(owners).bind(counters).bind(tokens).bind(holders)
}

const MISFIT: &str = "a column has one type";

fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(value) => value,
        other => unreachable!("{MISFIT}, and {other:?} is another"), // debug-ok: unreachable
    }
}

fn number(value: Value) -> Option<i64> {
    match value {
        Value::Number(value) => value,
        other => unreachable!("{MISFIT}, and {other:?} is another"), // debug-ok: unreachable
    }
}

fn real(value: Value) -> Option<f64> {
    match value {
        Value::Real(value) => value,
        other => unreachable!("{MISFIT}, and {other:?} is another"), // debug-ok: unreachable
    }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(value) => value,
        other => unreachable!("{MISFIT}, and {other:?} is another"), // debug-ok: unreachable
    }
}
