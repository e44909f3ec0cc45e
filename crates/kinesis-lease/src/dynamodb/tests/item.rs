use aws_sdk_dynamodb::types::AttributeValue::{B, N, S, Ss};
use kinesis_core::lease::TenureToken;
use kinesis_core::{ApplicationName, HashKey, WorkerId};

use super::*;

fn stream() -> StreamRef {
    StreamRef::new("orders").unwrap()
}

fn key() -> LeaseKey {
    let shard = ShardId::new("shardId-000000000002").unwrap();
    LeaseKey::new(ApplicationName::new("billing").unwrap(), stream(), shard)
}

fn keys(layout: TableLayout) -> Keys {
    Keys { application: ApplicationName::new("billing").unwrap(), layout }
}

fn single() -> Keys {
    keys(TableLayout::kcl_single_stream(stream()))
}

fn s(text: &str) -> AttributeValue {
    S(text.to_owned())
}

fn n(digits: &str) -> AttributeValue {
    N(digits.to_owned())
}

fn item(attributes: &[(&str, AttributeValue)]) -> Item {
    attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

const SEQUENCE: &str = "49590338271490256608559692538361571095921575989136588898";

/// A row of a worker of the KCL 3 in the middle of a graceful hand-over, with a prepared checkpoint.
fn of_java() -> Item {
    item(&[
        ("leaseKey", s("shardId-000000000002")),
        ("leaseOwner", s("2f7e2c3a-5d0c-4b8e-9f10-000000000002")),
        ("checkpointOwner", s("2f7e2c3a-5d0c-4b8e-9f10-000000000001")),
        ("leaseCounter", n("1017")),
        ("ownerSwitchesSinceCheckpoint", n("1")),
        ("checkpoint", s(SEQUENCE)),
        ("checkpointSubSequenceNumber", n("4")),
        ("pendingCheckpoint", s("SHARD_END")),
        ("pendingCheckpointSubSequenceNumber", n("0")),
        ("pendingCheckpointState", B(Blob::new(b"state".to_vec()))),
        ("parentShardId", Ss(vec!["shardId-000000000001".into(), "shardId-000000000000".into()])),
        ("childShardIds", Ss(vec!["shardId-000000000003".into()])),
        ("startingHashKey", s("0")),
        ("endingHashKey", s("340282366920938463463374607431768211455")),
        ("throughputKBps", n("12.345679")),
        ("entityType", s("LEASE")),
    ])
}

fn read_java(change: impl FnOnce(&mut Item)) -> Result<Lease, StoreError> {
    let mut row = of_java();
    change(&mut row);
    read(&row, key(), &single())
}

#[test]
fn a_row_of_the_kcl_is_read_attribute_by_attribute() {
    let lease = read_java(|_| ()).unwrap();
    let worker = |last| WorkerId::new(format!("2f7e2c3a-5d0c-4b8e-9f10-00000000000{last}")).unwrap();
    let shard = |number| ShardId::new(format!("shardId-{number:012}")).unwrap();
    let mut expected = Lease::new(key(), Checkpoint::At(Position::new(SEQUENCE.parse().unwrap(), 4)));
    expected.owner = Some(worker(2));
    expected.checkpoint_owner = Some(worker(1));
    expected.counter = 1017;
    expected.owner_switches = 1;
    expected.pending = Some(Checkpoint::ShardEnd);
    expected.pending_state = Some(Bytes::from_static(b"state"));
    expected.parents = vec![shard(0), shard(1)];
    expected.children = vec![shard(3)];
    expected.hash_range = HashKeyRange::new(HashKey::MIN, HashKey::MAX);
    expected.throughput_kbps = Some(12.345_679);
    assert_eq!(lease, expected);
}

/// The oldest rows have neither hash range nor entity type, and no owner was ever an empty text.
#[test]
fn a_bare_row_of_the_kcl_is_read() {
    let row = item(&[
        ("leaseKey", s("shardId-000000000002")),
        ("leaseCounter", n("0")),
        ("ownerSwitchesSinceCheckpoint", n("0")),
        ("checkpoint", s("TRIM_HORIZON")),
        ("checkpointSubSequenceNumber", n("0")),
    ]);
    assert_eq!(read(&row, key(), &single()).unwrap(), Lease::new(key(), Checkpoint::TrimHorizon));
}

#[test]
fn a_new_row_has_the_attributes_and_types_of_the_kcl() {
    let mut lease = read_java(|_| ()).unwrap();
    lease.parents.reverse();
    let mut written = write(&lease, &single(), "m1").unwrap();
    let ours: Item = written.extract_if(|name, _| name.starts_with(PREFIX)).collect();
    let expected = [
        ("kinesisRs_stream", s("orders")),
        // Nobody else has counted on since.
        ("kinesisRs_tokenCounter", n(&lease.counter.to_string())),
        ("kinesisRs_write", s("m1")),
    ];
    assert_eq!(ours, item(&expected));
    let mut expected = of_java();
    expected.insert(PARENTS.into(), Ss(vec!["shardId-000000000000".into(), "shardId-000000000001".into()]));
    assert_eq!(written, expected);

    let bare = Lease::new(key(), Checkpoint::Latest);
    let mut written = write(&bare, &keys(TableLayout::Native), "m2").unwrap();
    assert_eq!(written.remove("kinesisRs_write"), Some(s("m2")));
    let expected = [
        ("leaseKey", s("billing|orders|shardId-000000000002")),
        ("leaseCounter", n("0")),
        ("ownerSwitchesSinceCheckpoint", n("0")),
        ("checkpoint", s("LATEST")),
        ("checkpointSubSequenceNumber", n("0")),
        ("entityType", s("LEASE")),
    ];
    assert_eq!(written, item(&expected), "nothing is written for what is not there");
}

/// S-221: a row of a table of several streams has the stream and the shard as attributes too.
#[test]
fn multi_stream_rows_name_stream_and_shard() {
    let layout = TableLayout::kcl_multi_stream([(stream(), "12:orders:1700".parse().unwrap())]);
    let written = write(&Lease::new(key(), Checkpoint::Latest), &keys(layout), "m").unwrap();
    assert_eq!(written["leaseKey"], s("12:orders:1700:shardId-000000000002"));
    assert_eq!(written["streamName"], s("12:orders:1700"));
    assert_eq!(written["shardId"], s("shardId-000000000002"));
    assert_eq!(written["kinesisRs_stream"], s("orders"));
}

/// S-033: who has made a row, and who has counted on last, can be told from it.
#[test]
fn rows_of_the_kcl_are_told_from_ours() {
    let mut row = of_java();
    assert!(is_made_by_kcl(&row) && is_counted_by_kcl(&row));
    let ours = write(&Lease::new(key(), Checkpoint::Latest), &single(), "m1").unwrap();
    assert!(!is_made_by_kcl(&ours) && !is_counted_by_kcl(&ours));
    // We have taken and released it since.
    row.insert("kinesisRs_tokenCounter".into(), row["leaseCounter"].clone());
    assert!(is_made_by_kcl(&row) && !is_counted_by_kcl(&row));
    let mut taken = ours;
    taken.insert("leaseCounter".into(), n("1"));
    assert!(!is_made_by_kcl(&taken) && is_counted_by_kcl(&taken));
}

#[test]
fn what_the_kcl_does_not_know_has_one_prefix() {
    let mut lease = Lease::new(key(), Checkpoint::AtTimestamp);
    lease.epoch = 7;
    lease.token = Some("000000000000000000000000000000ff".parse().unwrap());
    lease.anchor = Some(Timestamp::from_millis(1_750_000_000_123));
    lease.cool_down = Some(CoolDown::new(Duration::from_millis(90_500), 4));
    lease.private.insert("note".into(), PrivateValue::Text("hi".into()));
    let written = write(&lease, &keys(TableLayout::Native), "m").unwrap();
    let ours: Item = written.clone().into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let expected = [
        ("kinesisRs_epoch", n("7")),
        ("kinesisRs_token", s("000000000000000000000000000000ff")),
        ("kinesisRs_anchor", n("1750000000123")),
        ("kinesisRs_coolDownMillis", n("90500")),
        ("kinesisRs_coolDownFailures", n("4")),
        ("kinesisRs_user_note", s("hi")),
        ("kinesisRs_write", s("m")),
    ];
    assert_eq!(ours, item(&expected));
    assert_eq!(read(&written, key(), &keys(TableLayout::Native)).unwrap(), lease);
}

/// The KCL's own slip: a creation puts the sub-sequence number where the application's bytes belong.
#[test]
fn a_pending_state_of_another_type_counts_as_absent() {
    let lease = read_java(|row| drop(row.insert("pendingCheckpointState".into(), n("0")))).unwrap();
    assert_eq!(lease.pending_state, None);
}

#[test]
fn garbage_is_named_without_its_value() {
    let problem = |name: &str, value: Option<AttributeValue>| {
        let error = read_java(|row| match value {
            Some(value) => drop(row.insert(name.to_owned(), value)),
            None => drop(row.remove(name)),
        });
        match error.unwrap_err() {
            StoreError::Corrupt { key: of, problem, .. } if *of == key() => problem,
            other => panic!("{other:?}"),
        }
    };
    let neither = "checkpoint is neither a sequence number nor a known word";
    assert_eq!(problem("checkpoint", Some(s("TRIM_HORIZONT"))), neither);
    assert_eq!(problem("checkpoint", Some(s("12a4"))), neither);
    assert_eq!(problem("checkpoint", Some(s(""))), neither);
    assert_eq!(problem("checkpoint", Some(n("124"))), "checkpoint is not text");
    assert_eq!(problem("checkpoint", None), "checkpoint is missing");
    assert_eq!(problem("leaseCounter", None), "leaseCounter is missing");
    assert_eq!(problem("leaseCounter", Some(n("-1"))), "leaseCounter is not a number in its range");
    assert_eq!(problem("leaseCounter", Some(s("1"))), "leaseCounter is not a number");
    assert_eq!(problem("leaseOwner", Some(s(" "))), "leaseOwner cannot be understood");
    assert_eq!(
        problem("checkpointSubSequenceNumber", Some(n("1.5"))),
        "checkpointSubSequenceNumber is not a number in its range"
    );
    assert_eq!(
        problem("pendingCheckpoint", Some(s("soon"))),
        "pendingCheckpoint is neither a sequence number nor a known word"
    );
    assert_eq!(problem("parentShardId", Some(s("shardId-1"))), "parentShardId is not a set of texts");
    assert_eq!(problem("startingHashKey", Some(s("x"))), "startingHashKey cannot be understood");
}

#[test]
fn a_hash_range_that_ends_before_it_starts_is_garbage() {
    let backwards = [("startingHashKey", s("9")), ("endingHashKey", s("8"))];
    let error = read_java(|row| row.extend(item(&backwards))).unwrap_err();
    assert!(error.to_string().ends_with("startingHashKey is above endingHashKey"), "{error}");
}

/// F-43: a row that says that it is of another stream is not read as one of this.
#[test]
fn a_row_of_another_stream_is_refused_with_both_names() {
    let error = read_java(|row| drop(row.insert("kinesisRs_stream".into(), s("clicks")))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the stream clicks") && text.contains("those of orders"), "{text}");
}

#[test]
fn other_rows_of_the_kcl_are_no_leases() {
    let lock = [("leaseKey", s("Leader")), ("ownerName", s("w")), ("recordVersionNumber", s("u"))];
    let state = [("leaseKey", s("Migration3.0")), ("cv", s("CLIENT_VERSION_3X"))];
    let metrics =
        [("leaseKey", s("worker-1")), ("entityType", s("WORKER_METRIC_STATS")), ("leaseCounter", n("1"))];
    for row in [&lock[..], &state, &metrics, &[("leaseKey", s("worker-1")), ("lut", n("1"))]] {
        assert!(!is_lease(&item(row)), "{row:?}");
    }
    assert!(is_lease(&of_java()));
    for part in [("checkpoint", s("LATEST")), ("leaseCounter", n("0"))] {
        assert!(
            is_lease(&item(&[("leaseKey", s("shard")), part])),
            "half a lease is one that cannot be read"
        );
    }
    assert!(is_lease(&item(&[("leaseKey", s("shardId-000000000001"))])));
}

#[test]
fn throughput_is_written_with_six_decimals() {
    assert_eq!(throughput(1.0 / 3.0), Some(n("0.333333")));
    assert_eq!(throughput(12.25), Some(n("12.250000")));
    assert_eq!(throughput(-1.0), Some(n("0.000000")));
    assert_eq!(throughput(f64::MAX), Some(n("1000000000000000.000000")));
    assert_eq!(throughput(f64::NAN), None);
}

/// The KCL leaves the token of the tenure before when it takes a lease, but adds to the counter.
#[test]
fn a_token_is_void_once_somebody_else_has_counted() {
    let token: TenureToken = "000000000000000000000000000000ff".parse().unwrap();
    let mut lease = Lease::new(key(), Checkpoint::Latest);
    (lease.token, lease.counter) = (Some(token), 5);
    let mut row = write(&lease, &single(), "m").unwrap();
    assert_eq!(read(&row, key(), &single()).unwrap().token, Some(token));
    row.insert(COUNTER.to_owned(), n("6"));
    assert_eq!(read(&row, key(), &single()).unwrap().token, None);
    assert_eq!(
        read(&row, key(), &keys(TableLayout::Native)).unwrap().token,
        Some(token),
        "nobody else writes there"
    );
    row.remove(TOKEN_COUNTER);
    assert_eq!(read(&row, key(), &single()).unwrap().token, None);
}
