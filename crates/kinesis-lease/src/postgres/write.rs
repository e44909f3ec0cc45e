//! What a write does, in columns. Writes of one kind go into one statement.

use std::collections::BTreeMap;

use kinesis_core::Checkpoint;
use kinesis_core::lease::{Change, FieldWrite, Guard, Lease, LeaseKey, LeaseWrite};
use serde_json::{Map, Value as Json};

use super::statement::is_of_checkpoint;
use crate::columns::{self, FIELDS, Value, private_json};

/// How a column gets its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    Set,
    Add,
    /// Sets and removes entries.
    Merge,
}

/// What writes of one statement have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Create,
    Delete,
    Update(Vec<(&'static str, Op)>),
}

impl Kind {
    /// The columns that are written, in the order of the statement's arguments.
    pub(super) fn columns(&self) -> Vec<(&'static str, Op)> {
        match self {
            Self::Create => FIELDS.iter().map(|column| (*column, Op::Set)).collect(),
            Self::Delete => Vec::new(),
            Self::Update(columns) => columns.clone(),
        }
    }

    /// Whether the checkpoint state is written too. A new epoch counts: it fences transactions on that state.
    pub(super) fn writes_checkpoint(&self) -> bool {
        match self {
            Self::Create | Self::Delete => true,
            Self::Update(columns) => columns.iter().any(|(column, _)| is_of_checkpoint(column)),
        }
    }
}

/// A new value of a column.
#[derive(Debug, Clone)]
enum Assignment {
    Text(Option<String>),
    Number(Option<i64>),
    Add(i64),
    Real(Option<f64>),
    Bytes(Option<Vec<u8>>),
    Merge(Map<String, Json>),
}

/// A write in columns.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its place in the call.
    pub(super) place: usize,
    pub(super) key: LeaseKey,
    pub(super) guard: Guard,
    pub(super) kind: Kind,
    assignments: BTreeMap<&'static str, Assignment>,
}

impl Planned {
    /// What of it this store does not know is the error.
    pub(super) fn new(place: usize, write: &LeaseWrite) -> Result<Self, &'static str> {
        match write.guard {
            Guard::Absent
            | Guard::Exists
            | Guard::Counter(_)
            | Guard::OwnerCounter { .. }
            | Guard::Tenure { .. }
            | Guard::Owners { .. }
            | Guard::CounterNoHandoff(_) => {}
            _ => return Err("the lease store does not know this kind of guard"),
        }
        let mut assignments = BTreeMap::new();
        let kind = match &write.change {
            Change::Create(lease) if write.guard == Guard::Absent => {
                create(&mut assignments, lease);
                Kind::Create
            }
            Change::Create(_) => return Err("a row is made only where there is none"),
            Change::Delete => Kind::Delete,
            Change::Update(fields) => {
                for field in fields {
                    update(&mut assignments, &write.key, field)
                        .ok_or("the lease store does not know one of the fields")?;
                }
                Kind::Update(assignments.iter().map(|(column, value)| (*column, value.op())).collect())
            }
            _ => return Err("the lease store does not know this kind of change"),
        };
        Ok(Self { place, key: write.key.clone(), guard: write.guard.clone(), kind, assignments })
    }

    /// The argument for a column of its kind.
    pub(super) fn value(&self, column: &str) -> Value {
        match &self.assignments[column] {
            Assignment::Text(value) => Value::Text(value.clone()),
            Assignment::Number(value) => Value::Number(*value),
            Assignment::Add(amount) => Value::Number(Some(*amount)),
            Assignment::Real(value) => Value::Real(*value),
            Assignment::Bytes(value) => Value::Bytes(value.clone()),
            Assignment::Merge(entries) => Value::Text(Some(Json::Object(entries.clone()).to_string())),
        }
    }
}

impl Assignment {
    fn op(&self) -> Op {
        match self {
            Self::Add(_) => Op::Add,
            Self::Merge(_) => Op::Merge,
            Self::Text(_) | Self::Number(_) | Self::Real(_) | Self::Bytes(_) => Op::Set,
        }
    }
}

impl From<Value> for Assignment {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(value) => Self::Text(value),
            Value::Number(value) => Self::Number(value),
            Value::Real(value) => Self::Real(value),
            Value::Bytes(value) => Self::Bytes(value),
        }
    }
}

type Assignments = BTreeMap<&'static str, Assignment>;

fn create(assignments: &mut Assignments, lease: &Lease) {
    for column in FIELDS {
        assignments.insert(column, columns::value(lease, column).into());
    }
}

/// Notes one field; `None` when this store does not know it. A later write of a column goes on from an earlier one.
fn update(assignments: &mut Assignments, key: &LeaseKey, field: &FieldWrite) -> Option<()> {
    match field {
        FieldWrite::AddCounter(amount) => add(assignments, "counter", *amount),
        FieldWrite::AddEpoch(amount) => add(assignments, "epoch", *amount),
        FieldWrite::AddOwnerSwitches(amount) => add(assignments, "owner_switches", *amount),
        FieldWrite::Private { name, value } => {
            let entry = value.as_ref().map_or(Json::Null, private_json);
            let merge = assignments.entry("private").or_insert_with(|| Assignment::Merge(Map::new()));
            if let Assignment::Merge(entries) = merge {
                entries.insert(name.clone(), entry);
            }
        }
        set => {
            // The columns of the field, as a row would have them.
            let row = Lease::new(key.clone(), Checkpoint::TrimHorizon);
            let row = Change::Update(vec![set.clone()]).apply_to(Some(row))?;
            for column in columns::columns(set)? {
                assignments.insert(column, columns::value(&row, column).into());
            }
        }
    }
    Some(())
}

fn add(assignments: &mut Assignments, column: &'static str, amount: u64) {
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    let sum = match assignments.get(column) {
        Some(Assignment::Add(before)) => Assignment::Add(before.saturating_add(amount)),
        Some(Assignment::Number(Some(before))) => Assignment::Number(Some(before.saturating_add(amount))),
        _ => Assignment::Add(amount),
    };
    assignments.insert(column, sum);
}
