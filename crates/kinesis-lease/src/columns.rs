//! The row of a lease as columns of an SQL table: what the SQL stores share.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kinesis_core::lease::{CoolDown, FieldWrite, Lease, LeaseKey, PrivateValue, ScanPage, StoreError};
use kinesis_core::{Checkpoint, HashKeyRange, Position, ShardId, Timestamp};
use serde_json::{Map, Value as Json};
use sqlx::Row as _;

/// The key, in the order of the primary key.
pub(crate) const KEY: &[&str] = &["application", "stream", "shard"];

/// Everything else.
pub(crate) const FIELDS: &[&str] = &[
    "owner",
    "counter",
    "epoch",
    "token",
    "checkpoint",
    "sub_sequence",
    "pending",
    "pending_sub_sequence",
    "pending_state",
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

/// A value of a column.
#[derive(Debug)]
pub(crate) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
    Real(Option<f64>),
    Bytes(Option<Vec<u8>>),
}

/// A row that columns can be read from by name. Errors name the column, and nothing of the value.
pub(crate) trait Columns {
    fn text(&self, column: &str) -> Result<Option<String>, String>;
    fn number(&self, column: &str) -> Result<Option<i64>, String>;
    fn real(&self, column: &str) -> Result<Option<f64>, String>;
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, String>;
}

macro_rules! columns_of {
    ($row:ty) => {
        impl Columns for $row {
            fn text(&self, column: &str) -> Result<Option<String>, String> {
                self.try_get(column).map_err(|error| error.to_string())
            }

            fn number(&self, column: &str) -> Result<Option<i64>, String> {
                self.try_get(column).map_err(|error| error.to_string())
            }

            fn real(&self, column: &str) -> Result<Option<f64>, String> {
                self.try_get(column).map_err(|error| error.to_string())
            }

            fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, String> {
                self.try_get(column).map_err(|error| error.to_string())
            }
        }
    };
}

#[cfg(feature = "postgres")]
columns_of!(sqlx::postgres::PgRow);
#[cfg(feature = "sqlite")]
columns_of!(sqlx::sqlite::SqliteRow);

/// The columns that a field of a lease is kept in; `None` for a field that this store does not know.
pub(crate) fn columns(field: &FieldWrite) -> Option<&'static [&'static str]> {
    let columns: &[&str] = match field {
        FieldWrite::Owner(_) => &["owner"],
        FieldWrite::AddCounter(_) => &["counter"],
        FieldWrite::AddEpoch(_) => &["epoch"],
        FieldWrite::Token(_) => &["token"],
        FieldWrite::Checkpoint(_) => &["checkpoint", "sub_sequence"],
        FieldWrite::Pending { .. } => &["pending", "pending_sub_sequence", "pending_state"],
        FieldWrite::Anchor(_) => &["anchor_ms"],
        FieldWrite::Children(_) => &["children"],
        FieldWrite::HashRange(_) => &["hash_start", "hash_end"],
        FieldWrite::OwnerSwitches(_) | FieldWrite::AddOwnerSwitches(_) => &["owner_switches"],
        FieldWrite::CheckpointOwner(_) => &["checkpoint_owner"],
        FieldWrite::Throughput(_) => &["throughput_kbps"],
        FieldWrite::CoolDown(_) => &["cool_down_ms", "cool_down_failures"],
        FieldWrite::Private { .. } => &["private"],
        _ => return None,
    };
    Some(columns)
}

/// The value of a column for a lease.
pub(crate) fn value(lease: &Lease, column: &str) -> Value {
    match column {
        "owner" => text(lease.owner.as_ref()),
        "counter" => number(lease.counter),
        "epoch" => number(lease.epoch),
        "token" => text(lease.token.as_ref()),
        "checkpoint" => Value::Text(Some(sequence(&lease.checkpoint))),
        "sub_sequence" => number(sub_sequence(&lease.checkpoint)),
        "pending" => Value::Text(lease.pending.as_ref().map(sequence)),
        "pending_sub_sequence" => match &lease.pending {
            Some(pending) => number(sub_sequence(pending)),
            None => Value::Number(None),
        },
        "pending_state" => Value::Bytes(lease.pending_state.as_ref().map(|bytes| bytes.to_vec())),
        "anchor_ms" => Value::Number(lease.anchor.map(Timestamp::as_millis)),
        "parents" => Value::Text(Some(list(&lease.parents))),
        "children" => Value::Text(Some(list(&lease.children))),
        "hash_start" => Value::Text(lease.hash_range.map(|range| range.start().to_string())),
        "hash_end" => Value::Text(lease.hash_range.map(|range| range.end().to_string())),
        "owner_switches" => number(lease.owner_switches),
        "checkpoint_owner" => text(lease.checkpoint_owner.as_ref()),
        "throughput_kbps" => Value::Real(lease.throughput_kbps),
        "cool_down_ms" => match lease.cool_down {
            Some(cool_down) => number(u64::try_from(cool_down.rest.as_millis()).unwrap_or(u64::MAX)),
            None => Value::Number(None),
        },
        "cool_down_failures" => Value::Number(lease.cool_down.map(|cool_down| i64::from(cool_down.failures))),
        "private" => Value::Text((!lease.private.is_empty()).then(|| private_text(&lease.private))),
        other => unreachable!("{other} is not a column of this store"),
    }
}

fn text(value: Option<&impl ToString>) -> Value {
    Value::Text(value.map(ToString::to_string))
}

fn number(value: u64) -> Value {
    Value::Number(Some(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn sequence(checkpoint: &Checkpoint) -> String {
    match checkpoint {
        Checkpoint::At(position) => position.sequence().to_string(),
        sentinel => sentinel.to_string(),
    }
}

fn sub_sequence(checkpoint: &Checkpoint) -> u64 {
    checkpoint.position().map_or(0, Position::sub_sequence)
}

/// Shard ids have no control characters.
fn list(shards: &[ShardId]) -> String {
    shards.iter().map(ShardId::as_str).collect::<Vec<_>>().join("\n")
}

/// The key of a row, which is readable even where the rest is not.
pub(crate) fn read_key(row: &dyn Columns) -> Result<LeaseKey, String> {
    Ok(LeaseKey::new(parsed(row, "application")?, parsed(row, "stream")?, parsed(row, "shard")?))
}

/// Reads the rows of a page whose end the caller knows.
pub(crate) fn read_page<R: Columns>(rows: &[R], cursor: Option<String>) -> ScanPage {
    let mut page = ScanPage::new(Vec::with_capacity(rows.len()), cursor);
    for row in rows {
        match read(row) {
            Ok(lease) => page.leases.push(lease),
            Err(error) => page.unreadable.push(error),
        }
    }
    page
}

/// Reads a row.
pub(crate) fn read(row: &dyn Columns) -> Result<Lease, StoreError> {
    let key = read_key(row).map_err(|problem| {
        StoreError::misconfigured(format!("the lease table has a row without a valid key: {problem}"), None)
    })?;
    read_fields(row, key.clone()).map_err(|problem| StoreError::corrupt(key, problem))
}

fn read_fields(row: &dyn Columns, key: LeaseKey) -> Result<Lease, String> {
    let checkpoint =
        read_checkpoint(row.text("checkpoint")?, row, "sub_sequence")?.ok_or("checkpoint is missing")?;
    let mut lease = Lease::new(key, checkpoint);
    lease.owner = optional(row, "owner")?;
    lease.counter = unsigned(row, "counter")?;
    lease.epoch = unsigned(row, "epoch")?;
    lease.token = optional(row, "token")?;
    lease.pending = read_checkpoint(row.text("pending")?, row, "pending_sub_sequence")?;
    lease.pending_state = row.bytes("pending_state")?.map(Bytes::from);
    lease.anchor = row.number("anchor_ms")?.map(Timestamp::from_millis);
    lease.parents = read_list(row, "parents")?;
    lease.children = read_list(row, "children")?;
    lease.hash_range = match (optional(row, "hash_start")?, optional(row, "hash_end")?) {
        (Some(start), Some(end)) => {
            Some(HashKeyRange::new(start, end).ok_or("hash_start is above hash_end")?)
        }
        _ => None,
    };
    lease.owner_switches = unsigned(row, "owner_switches")?;
    lease.checkpoint_owner = optional(row, "checkpoint_owner")?;
    lease.throughput_kbps = row.real("throughput_kbps")?;
    lease.cool_down = match row.number("cool_down_ms")? {
        Some(rest) => {
            let rest = u64::try_from(rest).map_err(|_| "cool_down_ms is negative")?;
            let failures = unsigned(row, "cool_down_failures")?;
            Some(CoolDown::new(Duration::from_millis(rest), u32::try_from(failures).unwrap_or(u32::MAX)))
        }
        None => None,
    };
    lease.private = match row.text("private")? {
        Some(text) => read_private(&text).ok_or("private is not what this store writes")?,
        None => BTreeMap::new(),
    };
    Ok(lease)
}

fn unsigned(row: &dyn Columns, column: &str) -> Result<u64, String> {
    let number = row.number(column)?.ok_or_else(|| format!("{column} is missing"))?;
    u64::try_from(number).map_err(|_| format!("{column} is negative"))
}

fn parsed<T: std::str::FromStr>(row: &dyn Columns, column: &str) -> Result<T, String> {
    optional(row, column)?.ok_or_else(|| format!("{column} is missing"))
}

fn optional<T: std::str::FromStr>(row: &dyn Columns, column: &str) -> Result<Option<T>, String> {
    row.text(column)?
        .map(|text| text.parse().map_err(|_| format!("{column} cannot be understood")))
        .transpose()
}

fn read_list(row: &dyn Columns, column: &str) -> Result<Vec<ShardId>, String> {
    let text = row.text(column)?.ok_or_else(|| format!("{column} is missing"))?;
    let parse = |line: &str| line.parse().map_err(|_| format!("{column} cannot be understood"));
    text.lines().map(parse).collect()
}

fn read_checkpoint(
    text: Option<String>,
    row: &dyn Columns,
    sub_column: &str,
) -> Result<Option<Checkpoint>, String> {
    let Some(text) = text else { return Ok(None) };
    Ok(Some(match text.as_str() {
        "AT_TIMESTAMP" => Checkpoint::AtTimestamp,
        "TRIM_HORIZON" => Checkpoint::TrimHorizon,
        "LATEST" => Checkpoint::Latest,
        "SHARD_END" => Checkpoint::ShardEnd,
        digits => {
            let sequence = digits.parse().map_err(|_| "a checkpoint is neither a number nor a known word")?;
            Checkpoint::At(Position::new(sequence, unsigned(row, sub_column)?))
        }
    }))
}

fn private_text(private: &BTreeMap<String, PrivateValue>) -> String {
    let entries = private.iter().map(|(name, value)| (name.clone(), private_json(value)));
    Json::Object(entries.collect()).to_string()
}

/// A private attribute as it is kept: its kind and its content.
pub(crate) fn private_json(value: &PrivateValue) -> Json {
    let (kind, content) = match value {
        // Some databases have no place for this character in a text.
        PrivateValue::Text(text) if text.contains('\0') => ("utf8", Json::from(hex(text.as_bytes()))),
        PrivateValue::Text(text) => ("text", Json::from(text.as_str())),
        PrivateValue::Number(number) => ("number", Json::from(*number)),
        PrivateValue::Binary(bytes) => ("binary", Json::from(hex(bytes))),
        // Kinds of a later version of the trait.
        // debug-ok: goes into the row, never into a message
        other => ("text", Json::from(format!("{other:?}"))),
    };
    Json::Object(Map::from_iter([(kind.to_owned(), content)]))
}

fn read_private(text: &str) -> Option<BTreeMap<String, PrivateValue>> {
    let Json::Object(entries) = serde_json::from_str(text).ok()? else { return None };
    entries
        .into_iter()
        .map(|(name, attribute)| {
            let (kind, content) = attribute.as_object()?.iter().next()?;
            let value = match kind.as_str() {
                "text" => PrivateValue::Text(content.as_str()?.to_owned()),
                "utf8" => PrivateValue::Text(String::from_utf8(unhex(content.as_str()?)?).ok()?),
                "number" => PrivateValue::Number(content.as_i64()?),
                "binary" => PrivateValue::Binary(Bytes::from(unhex(content.as_str()?)?)),
                _ => return None,
            };
            Some((name, value))
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The same error for another write of the call.
pub(crate) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Misconfigured { problem, .. } => StoreError::misconfigured(problem.clone(), None),
        other => StoreError::unavailable(other.to_string()),
    }
}
