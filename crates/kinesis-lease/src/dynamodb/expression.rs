//! Guards as conditions and changes as update expressions.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use kinesis_core::lease::{FieldWrite, Guard, StoreError};

use super::item::{self, number, text};
use super::layout::TableLayout;

/// A condition, an update, and what their placeholders mean.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expression {
    pub(super) condition: String,
    pub(super) update: String,
    names: BTreeMap<String, String>,
    values: Vec<AttributeValue>,
}

impl Expression {
    /// The condition of a guard alone.
    pub(super) fn guarded(guard: &Guard) -> Result<Self, StoreError> {
        let mut expression = Self::default();
        expression.condition = expression.condition_of(guard)?;
        Ok(expression)
    }

    /// A guarded update that leaves `mark` in the row and is not applied a second time by a repeated request.
    pub(super) fn update(
        guard: &Guard,
        fields: &[FieldWrite],
        mark: &str,
        layout: &TableLayout,
    ) -> Result<Self, StoreError> {
        let mut expression = Self::guarded(guard)?;
        let (name, value) = (expression.name(item::WRITE), expression.value(text(mark)));
        let condition = &expression.condition;
        expression.condition = format!("{condition} AND (attribute_not_exists({name}) OR {name} <> {value})");
        let mut actions = Actions::default();
        for field in fields {
            actions.add_field(field)?;
        }
        if layout.is_shared() {
            actions.keep_token_counter(added_to_counter(fields));
        }
        actions.set(item::WRITE, Some(text(mark)));
        expression.update = expression.update_of(actions);
        Ok(expression)
    }

    /// Placeholder to name, as the SDK wants it: `None` when there are none.
    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        let names: HashMap<_, _> =
            self.names.iter().map(|(name, placeholder)| (placeholder.clone(), name.clone())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Placeholder to value.
    pub(super) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        let numbered = self.values.iter().enumerate();
        let values: HashMap<_, _> =
            numbered.map(|(index, value)| (format!(":v{index}"), value.clone())).collect();
        (!values.is_empty()).then_some(values)
    }

    fn name(&mut self, name: &str) -> String {
        let next = format!("#n{}", self.names.len());
        self.names.entry(name.to_owned()).or_insert(next).clone()
    }

    fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":v{}", self.values.len() - 1)
    }

    fn equals(&mut self, name: &str, value: Option<AttributeValue>) -> String {
        let name = self.name(name);
        match value {
            Some(value) => format!("{name} = {}", self.value(value)),
            None => format!("attribute_not_exists({name})"),
        }
    }

    fn condition_of(&mut self, guard: &Guard) -> Result<String, StoreError> {
        let condition = match guard {
            Guard::Absent => self.equals(item::KEY, None),
            Guard::Exists => format!("attribute_exists({})", self.name(item::KEY)),
            Guard::Counter(counter) => self.equals(item::COUNTER, Some(number(counter))),
            Guard::OwnerCounter { owner, counter } => {
                let counter = self.equals(item::COUNTER, Some(number(counter)));
                format!("{counter} AND {}", self.equals(item::OWNER, owner.as_ref().map(text)))
            }
            Guard::Tenure { counter, token } => {
                let counter = self.equals(item::COUNTER, Some(number(counter)));
                format!("{counter} AND {}", self.equals(item::TOKEN, Some(text(token))))
            }
            Guard::Owners { owner, checkpoint_owner } => {
                let exists = format!("attribute_exists({})", self.name(item::KEY));
                let owner = self.equals(item::OWNER, owner.as_ref().map(text));
                let old = self.equals(item::CHECKPOINT_OWNER, checkpoint_owner.as_ref().map(text));
                format!("{exists} AND {owner} AND {old}")
            }
            Guard::CounterNoHandoff(counter) => {
                let counter = self.equals(item::COUNTER, Some(number(counter)));
                format!("{counter} AND {}", self.equals(item::CHECKPOINT_OWNER, None))
            }
            _ => return Err(unknown("kind of guard")),
        };
        Ok(condition)
    }

    fn update_of(&mut self, actions: Actions) -> String {
        let (mut set, mut remove, mut add) = (Vec::new(), Vec::new(), Vec::new());
        for (name, action) in actions.0 {
            let name = self.name(&name);
            match action {
                Action::Set(value) => set.push(format!("{name} = {}", self.value(value))),
                Action::SetNumber(value) => set.push(format!("{name} = {}", self.value(number(&value)))),
                Action::Add(amount) => add.push(format!("{name} {}", self.value(number(&amount)))),
                Action::SetToCounterPlus(amount) => {
                    let (counter, amount) = (self.name(item::COUNTER), self.value(number(&amount)));
                    set.push(format!("{name} = {counter} + {amount}"));
                }
                Action::Remove => remove.push(name),
            }
        }
        let clauses = [("SET", set), ("REMOVE", remove), ("ADD", add)];
        let clauses = clauses.into_iter().filter(|(_, parts)| !parts.is_empty());
        clauses.map(|(word, parts)| format!("{word} {}", parts.join(", "))).collect::<Vec<_>>().join(" ")
    }
}

/// By how much an update adds to the counter.
pub(super) fn added_to_counter(fields: &[FieldWrite]) -> u64 {
    let added =
        fields.iter().map(|field| if let FieldWrite::AddCounter(amount) = field { *amount } else { 0 });
    added.fold(0, u64::saturating_add)
}

/// What happens to one attribute. An expression may name each only once.
#[derive(Debug, PartialEq)]
enum Action {
    Set(AttributeValue),
    SetNumber(u64),
    Add(u64),
    /// Sets what the counter becomes by adding this to it.
    SetToCounterPlus(u64),
    Remove,
}

/// The actions of one update, in the order of the attributes' names.
#[derive(Debug, Default)]
struct Actions(BTreeMap<String, Action>);

impl Actions {
    fn set(&mut self, name: &str, value: Option<AttributeValue>) {
        self.0.insert(name.to_owned(), value.map_or(Action::Remove, Action::Set));
    }

    /// Adds to what the fields before have left.
    fn add(&mut self, name: &str, amount: u64) {
        let action = match self.0.get(name) {
            Some(Action::Add(before)) => Action::Add(before.saturating_add(amount)),
            Some(Action::SetNumber(before)) => Action::SetNumber(before.saturating_add(amount)),
            _ => Action::Add(amount),
        };
        self.0.insert(name.to_owned(), action);
    }

    /// Keeps the counter of the token in step with the row's counter, as long as only this library adds to it.
    fn keep_token_counter(&mut self, added: u64) {
        match self.0.get(item::TOKEN) {
            // Without a token it shows who has counted on last.
            Some(_) => {
                self.0.insert(item::TOKEN_COUNTER.to_owned(), Action::SetToCounterPlus(added));
            }
            None if added > 0 => self.add(item::TOKEN_COUNTER, added),
            None => {}
        }
    }

    fn add_field(&mut self, field: &FieldWrite) -> Result<(), StoreError> {
        match field {
            FieldWrite::Owner(owner) => self.set(item::OWNER, owner.as_ref().map(text)),
            FieldWrite::AddCounter(amount) => self.add(item::COUNTER, *amount),
            FieldWrite::AddEpoch(amount) => self.add(item::EPOCH, *amount),
            FieldWrite::Token(token) => self.set(item::TOKEN, token.as_ref().map(text)),
            FieldWrite::Checkpoint(checkpoint) => {
                self.set(item::CHECKPOINT, Some(item::sequence(checkpoint)));
                self.set(item::SUB_SEQUENCE, Some(item::sub_sequence(checkpoint)));
            }
            FieldWrite::Pending { checkpoint, state } => {
                let checkpoint = checkpoint.as_ref();
                self.set(item::PENDING, checkpoint.map(item::sequence));
                self.set(item::PENDING_SUB_SEQUENCE, checkpoint.map(item::sub_sequence));
                let state = state.clone().map(|state| AttributeValue::B(Blob::new(state)));
                self.set(item::PENDING_STATE, state);
            }
            FieldWrite::Anchor(anchor) => {
                self.set(item::ANCHOR, anchor.map(|anchor| number(&anchor.as_millis())));
            }
            FieldWrite::Children(children) => self.set(item::CHILDREN, item::shard_set(children)),
            FieldWrite::HashRange(range) => {
                self.set(item::HASH_START, Some(text(&range.start())));
                self.set(item::HASH_END, Some(text(&range.end())));
            }
            FieldWrite::OwnerSwitches(count) => {
                self.0.insert(item::OWNER_SWITCHES.to_owned(), Action::SetNumber(*count));
            }
            FieldWrite::AddOwnerSwitches(amount) => self.add(item::OWNER_SWITCHES, *amount),
            FieldWrite::CheckpointOwner(owner) => self.set(item::CHECKPOINT_OWNER, owner.as_ref().map(text)),
            FieldWrite::Throughput(kbps) => self.set(item::THROUGHPUT, item::throughput(*kbps)),
            FieldWrite::CoolDown(cool_down) => {
                self.set(item::COOL_DOWN, cool_down.map(item::cool_down_millis));
                self.set(item::COOL_DOWN_FAILURES, cool_down.map(|cool_down| number(&cool_down.failures)));
            }
            FieldWrite::Private { name, value: None } => self.set(&item::user_attribute(name), None),
            FieldWrite::Private { name, value: Some(value) } => {
                let value = item::private(value).ok_or_else(|| unknown("kind of private attribute"))?;
                self.set(&item::user_attribute(name), Some(value));
            }
            _ => return Err(unknown("field")),
        }
        Ok(())
    }
}

fn unknown(what: &str) -> StoreError {
    StoreError::misconfigured(format!("the lease store does not know this {what}"), None)
}

#[cfg(test)]
#[path = "tests/expression.rs"]
mod tests;
