use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use kinesis_core::lease::{CoolDown, PrivateValue, TenureToken};
use kinesis_core::{Checkpoint, WorkerId};

use super::*;

/// The text with names and values in the place of their placeholders.
fn shown(expression: &Expression, text: &str) -> String {
    let mut shown = text.to_owned();
    for (placeholder, name) in expression.names().unwrap_or_default() {
        shown = replaced(&shown, &placeholder, &name);
    }
    for (placeholder, value) in expression.values().unwrap_or_default() {
        let value = match value {
            S(text) => format!("'{text}'"),
            N(digits) => digits,
            other => format!("{other:?}"),
        };
        shown = replaced(&shown, &placeholder, &value);
    }
    shown
}

/// Replaces a placeholder that is not the start of a longer one.
fn replaced(text: &str, placeholder: &str, with: &str) -> String {
    let mut parts = text.split(placeholder);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let longer = part.starts_with(|c: char| c.is_ascii_digit());
        all.push_str(if longer { placeholder } else { with });
        all.push_str(part);
    }
    all
}

fn condition(guard: &Guard) -> String {
    let expression = Expression::guarded(guard).unwrap();
    shown(&expression, &expression.condition)
}

fn update(fields: &[FieldWrite]) -> String {
    let expression = Expression::update(&Guard::Exists, fields, "m", &TableLayout::Native).unwrap();
    shown(&expression, &expression.update)
}

fn worker(name: &str) -> Option<WorkerId> {
    Some(WorkerId::new(name).unwrap())
}

/// S-038, S-039, S-041: every guard is a condition that the service checks with the write, as the KCL has it.
#[test]
fn guards_are_conditions() {
    assert_eq!(condition(&Guard::Absent), "attribute_not_exists(leaseKey)");
    assert_eq!(condition(&Guard::Exists), "attribute_exists(leaseKey)");
    assert_eq!(condition(&Guard::Counter(5)), "leaseCounter = 5");
    assert_eq!(
        condition(&Guard::CounterNoHandoff(5)),
        "leaseCounter = 5 AND attribute_not_exists(checkpointOwner)"
    );
    assert_eq!(
        condition(&Guard::OwnerCounter { owner: worker("a"), counter: 5 }),
        "leaseCounter = 5 AND leaseOwner = 'a'"
    );
    assert_eq!(
        condition(&Guard::OwnerCounter { owner: None, counter: 5 }),
        "leaseCounter = 5 AND attribute_not_exists(leaseOwner)"
    );
    assert_eq!(
        condition(&Guard::Tenure { counter: 5, token: TenureToken::from_random(255) }),
        "leaseCounter = 5 AND kinesisRs_token = '000000000000000000000000000000ff'"
    );
    assert_eq!(
        condition(&Guard::Owners { owner: worker("a"), checkpoint_owner: None }),
        "attribute_exists(leaseKey) AND leaseOwner = 'a' AND attribute_not_exists(checkpointOwner)"
    );
    assert_eq!(
        condition(&Guard::Owners { owner: None, checkpoint_owner: worker("b") }),
        "attribute_exists(leaseKey) AND attribute_not_exists(leaseOwner) AND checkpointOwner = 'b'"
    );
}

/// F-22: an update that was applied is not applied again when its request is sent again.
#[test]
fn an_update_is_conditional_on_not_being_applied_yet() {
    let expression =
        Expression::update(&Guard::Counter(5), &[FieldWrite::AddCounter(1)], "m", &TableLayout::Native)
            .unwrap();
    assert_eq!(
        shown(&expression, &expression.condition),
        "leaseCounter = 5 AND (attribute_not_exists(kinesisRs_write) OR kinesisRs_write <> 'm')"
    );
    assert_eq!(shown(&expression, &expression.update), "SET kinesisRs_write = 'm' ADD leaseCounter 1");
}

#[test]
fn updates_name_the_attributes_they_change_and_no_others() {
    let sequence = "49590338271490256608559692538361571095921575989136588898".parse().unwrap();
    let at = Checkpoint::At(kinesis_core::Position::new(sequence, 3));
    assert_eq!(
        update(&[FieldWrite::Checkpoint(at), FieldWrite::AddCounter(1)]),
        "SET checkpoint = '49590338271490256608559692538361571095921575989136588898', \
         checkpointSubSequenceNumber = 3, kinesisRs_write = 'm' ADD leaseCounter 1"
    );
    assert_eq!(
        update(&[FieldWrite::Checkpoint(Checkpoint::ShardEnd)]),
        "SET checkpoint = 'SHARD_END', checkpointSubSequenceNumber = 0, kinesisRs_write = 'm'"
    );
    assert_eq!(
        update(&[FieldWrite::Owner(None), FieldWrite::Token(None), FieldWrite::AddEpoch(2)]),
        "SET kinesisRs_write = 'm' REMOVE kinesisRs_token, leaseOwner ADD kinesisRs_epoch 2"
    );
    assert_eq!(
        update(&[FieldWrite::Pending { checkpoint: None, state: None }, FieldWrite::Children(Vec::new())]),
        "SET kinesisRs_write = 'm' REMOVE childShardIds, pendingCheckpoint, pendingCheckpointState, \
         pendingCheckpointSubSequenceNumber"
    );
    assert_eq!(
        update(&[FieldWrite::CoolDown(Some(CoolDown::new(std::time::Duration::from_secs(1), 2)))]),
        "SET kinesisRs_coolDownFailures = 2, kinesisRs_coolDownMillis = 1000, kinesisRs_write = 'm'"
    );
    assert_eq!(
        update(&[
            FieldWrite::Private { name: "a b#:".into(), value: Some(PrivateValue::Number(-1)) },
            FieldWrite::Private { name: "gone".into(), value: None },
        ]),
        "SET kinesisRs_user_a b#: = -1, kinesisRs_write = 'm' REMOVE kinesisRs_user_gone"
    );
}

/// A release during a hand-over sets the number of switches and then adds to it; an expression may name it once.
#[test]
fn several_writes_of_one_attribute_become_one() {
    let switches = |fields: &[FieldWrite]| {
        update(fields).replace("SET kinesisRs_write = 'm'", "").replace(", kinesisRs_write = 'm'", "")
    };
    assert_eq!(
        switches(&[FieldWrite::AddOwnerSwitches(1), FieldWrite::AddOwnerSwitches(2)]),
        " ADD ownerSwitchesSinceCheckpoint 3"
    );
    let set_add = [FieldWrite::OwnerSwitches(0), FieldWrite::AddOwnerSwitches(1)];
    let text = update(&set_add);
    assert!(text.contains("ownerSwitchesSinceCheckpoint = 1") && !text.contains("ADD"), "{text}");
    let text = update(&[FieldWrite::AddOwnerSwitches(1), FieldWrite::OwnerSwitches(0)]);
    assert!(text.contains("ownerSwitchesSinceCheckpoint = 0") && !text.contains("ADD"), "{text}");
    let text = update(&[FieldWrite::Owner(None), FieldWrite::Owner(worker("b"))]);
    assert!(text.contains("leaseOwner = 'b'") && !text.contains("REMOVE"), "{text}");
    assert_eq!(added_to_counter(&[FieldWrite::AddCounter(1), FieldWrite::AddCounter(2)]), 3);
}

/// In a table that the KCL writes to, a token is worth something only as long as the counter has its value.
#[test]
fn tokens_are_tied_to_the_counter_where_others_count_too() {
    let layout = TableLayout::kcl_single_stream("orders".parse().unwrap());
    let update = |fields: &[FieldWrite]| {
        let expression = Expression::update(&Guard::Exists, fields, "m", &layout).unwrap();
        shown(&expression, &expression.update)
    };
    assert_eq!(
        update(&[FieldWrite::Token(Some(TenureToken::from_random(1))), FieldWrite::AddCounter(1)]),
        "SET kinesisRs_token = '00000000000000000000000000000001', \
         kinesisRs_tokenCounter = leaseCounter + 1, kinesisRs_write = 'm' ADD leaseCounter 1"
    );
    assert_eq!(
        update(&[FieldWrite::AddCounter(1)]),
        "SET kinesisRs_write = 'm' ADD kinesisRs_tokenCounter 1, leaseCounter 1"
    );
    assert_eq!(
        update(&[FieldWrite::Token(None), FieldWrite::AddCounter(1)]),
        "SET kinesisRs_tokenCounter = leaseCounter + 1, kinesisRs_write = 'm' REMOVE kinesisRs_token ADD leaseCounter 1"
    );
    assert_eq!(update(&[FieldWrite::Owner(None)]), "SET kinesisRs_write = 'm' REMOVE leaseOwner");
}
