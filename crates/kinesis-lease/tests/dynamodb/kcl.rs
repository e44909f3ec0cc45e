//! A table that is shared with the KCL.

use aws_sdk_dynamodb::types::{
    AttributeAction, AttributeValue, AttributeValueUpdate, ExpectedAttributeValue,
};
use kinesis_core::lease::conformance;
use kinesis_core::lease::{
    Lease, LeaseKey, LeaseStore, LeaseWrite, Outcome, ScanRequest, StoreError, TenureToken,
};
use kinesis_core::{Checkpoint, StreamRef};
use kinesis_lease::{DynamoDbStore, LeaseConfig, LeaseEvent, StreamIdentifier, TableLayout, ops};

use crate::common::{
    FakeDirectory, acquired, application, at, builder, key, millis, secs, shard, stream, worker,
};
use crate::support::{Item, Table, item, n, s};

const TOKEN: TenureToken = TenureToken::from_random(7);
const SEQUENCE: &str = "49590338271490256608559692538361571095921575989136588898";

/// A row as a worker of the KCL 2 leaves it.
fn java_row(number: u32) -> Item {
    item(&[
        ("leaseKey", s(shard(number).as_str())),
        ("leaseOwner", s("ip-10-0-0-1:4f6b")),
        ("leaseCounter", n(41)),
        ("ownerSwitchesSinceCheckpoint", n(2)),
        ("checkpoint", s(SEQUENCE)),
        ("checkpointSubSequenceNumber", n(3)),
        ("parentShardId", AttributeValue::Ss(vec!["shardId-000000000000".into()])),
        ("startingHashKey", s("0")),
        ("endingHashKey", s("340282366920938463463374607431768211455")),
        ("ofALaterVersion", AttributeValue::M([("a".to_owned(), n(1))].into())),
    ])
}

async fn single_stream() -> (Table, DynamoDbStore) {
    let table = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    let store = table.ready().await;
    (table, store)
}

async fn applied(store: &DynamoDbStore, write: LeaseWrite) -> Lease {
    match store.apply(&[write]).await.remove(0).unwrap() {
        Outcome::Applied(row) => row,
        other => panic!("{other:?}"),
    }
}

/// The attributes that are the KCL's own.
fn public(row: Item) -> Item {
    row.into_iter().filter(|(name, _)| !name.starts_with(DynamoDbStore::ATTRIBUTE_PREFIX)).collect()
}

/// A renewal as the KCL writes it, with its condition.
async fn java_renews(table: &Table, number: u32, counter: i64) -> bool {
    let expected = ExpectedAttributeValue::builder().value(n(counter)).build();
    let update = AttributeValueUpdate::builder().value(n(counter + 1)).action(AttributeAction::Put).build();
    let call = table
        .client()
        .update_item()
        .table_name(&table.name)
        .key("leaseKey", s(shard(number).as_str()))
        .expected("leaseCounter", expected)
        .attribute_updates("leaseCounter", update);
    match call.send().await {
        Ok(_) => true,
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_conditional_check_failed_exception(), "{error}");
            false
        }
    }
}

/// S-039, S-041: what each side writes is what the other's conditions look at: taking a lease from Java, its renewal
/// fails; and all that Java knows of the row stays as it was, but for what was named.
#[tokio::test]
async fn a_lease_is_taken_from_java_and_given_back() {
    let (table, store) = single_stream().await;
    table.put(java_row(1)).await;
    let lease = store.get(&[key(1)]).await.unwrap().remove(0).unwrap();
    assert!(java_renews(&table, 1, 41).await, "it lives");
    let refused = store.apply(&[ops::take(&lease, &worker("rust-1"), TOKEN)]).await.remove(0).unwrap();
    let Outcome::Refused { current: Some(lease) } = refused else { panic!("{refused:?}") };

    let taken = applied(&store, ops::take(&lease, &worker("rust-1"), TOKEN)).await;
    assert_eq!(taken.checkpoint, lease.checkpoint, "work goes on where Java has left it");
    let mut expected = java_row(1);
    expected.insert("leaseOwner".into(), s("rust-1"));
    expected.insert("leaseCounter".into(), n(43));
    expected.insert("ownerSwitchesSinceCheckpoint".into(), n(3));
    assert_eq!(public(table.row(shard(1).as_str()).await.unwrap()), expected);
    assert!(!java_renews(&table, 1, 42).await, "Java learns that it has lost the lease");

    let stored = applied(&store, ops::checkpoint(&taken, TOKEN, at(5))).await;
    expected.insert("leaseCounter".into(), n(44));
    expected.insert("checkpoint".into(), s("5"));
    expected.insert("checkpointSubSequenceNumber".into(), n(0));
    expected.insert("ownerSwitchesSinceCheckpoint".into(), n(0));
    assert_eq!(public(table.row(shard(1).as_str()).await.unwrap()), expected);

    applied(&store, ops::release(&stored, TOKEN, None, None)).await;
    expected.insert("leaseCounter".into(), n(45));
    expected.remove("leaseOwner");
    assert_eq!(public(table.row(shard(1).as_str()).await.unwrap()), expected);
    // The KCL takes a lease with the same condition as it renews one.
    assert!(java_renews(&table, 1, 45).await);
    assert!(matches!(
        store.apply(&[ops::renew(&stored, TOKEN)]).await.remove(0),
        Ok(Outcome::Refused { .. })
    ));
}

/// A taking as the KCL 2 writes it: it does not know of tokens.
async fn java_takes(table: &Table, number: u32) {
    let row = table.row(shard(number).as_str()).await.unwrap();
    let counter: i64 = row["leaseCounter"].as_n().unwrap().parse().unwrap();
    let put = |value| AttributeValueUpdate::builder().value(value).action(AttributeAction::Put).build();
    let call = table
        .client()
        .update_item()
        .table_name(&table.name)
        .key("leaseKey", s(shard(number).as_str()))
        .expected("leaseCounter", ExpectedAttributeValue::builder().value(n(counter)).build())
        .attribute_updates("leaseOwner", put(s("java-1")))
        .attribute_updates("leaseCounter", put(n(counter + 1)));
    call.send().await.unwrap();
}

/// S-041: a worker from whom Java has taken a lease learns it, though its token is still in the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_java_takes_is_lost() {
    let (table, store) = single_stream().await;
    let config = LeaseConfig::default().heartbeat_interval(millis(200));
    let directory = FakeDirectory::open(1);
    let (coordinator, mut events) =
        builder(store.clone(), &directory, "rust-1").config(config).start().await.unwrap();
    let tenure = acquired(&mut events).await;
    tenure.checkpoint(at(5)).await.unwrap();
    // A heartbeat may come first.
    while !tenure.ownership().is_lost() {
        java_takes(&table, 0).await;
        let row = store.get(&[key(0)]).await.unwrap().remove(0).unwrap();
        assert_eq!((row.owner, row.token, row.checkpoint), (Some(worker("java-1")), None, at(5)));
        if tokio::time::timeout(millis(1_000), tenure.ownership().lost()).await.is_ok() {
            break;
        }
    }
    loop {
        match events.next().await.unwrap() {
            LeaseEvent::Lost { key: of, .. } => break assert_eq!(of, key(0)),
            LeaseEvent::Warning(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(coordinator.shutdown(secs(10)).await.is_complete());
}

/// The conformance suite on the layout that is shared with Java, without the two cases that need many streams or
/// applications.
#[tokio::test]
async fn the_contract_holds_in_the_layout_of_the_kcl() {
    const MANY: [&str; 2] = ["scan_filters_by_stream", "applications_are_separate"];
    let mut kept = 0;
    for case in conformance::ALL.iter().filter(|case| !MANY.contains(&case.name())) {
        let layout = TableLayout::kcl_single_stream(stream());
        let table = Table::new().await.layout(layout).application("conformance");
        let result = case.run(&table).await;
        conformance::assert_kept(case.name(), &result);
        kept += 1;
    }
    assert_eq!(kept, conformance::ALL.len() - 2);
}

/// S-058: the end of a shard is the KCL's own mark, with the children beside it.
#[tokio::test]
async fn the_end_of_a_shard_is_what_java_expects() {
    let (table, store) = single_stream().await;
    table.put(java_row(1)).await;
    let lease = store.get(&[key(1)]).await.unwrap().remove(0).unwrap();
    let lease = applied(&store, ops::take(&lease, &worker("rust-1"), TOKEN)).await;
    let end = applied(&store, ops::end(&lease, TOKEN, vec![shard(3), shard(2)])).await;
    assert!(end.is_finished());
    let row = table.row(shard(1).as_str()).await.unwrap();
    let children = vec![shard(2).to_string(), shard(3).to_string()];
    assert_eq!(row["checkpoint"], s("SHARD_END"));
    assert_eq!(row["checkpointSubSequenceNumber"], n(0));
    assert_eq!(row["childShardIds"], AttributeValue::Ss(children));
    assert!(!row.contains_key("leaseOwner"));
}

/// Bad rows are reported each by itself; rows of another kind are passed over; all others are read.
#[tokio::test]
async fn garbage_stops_no_other_shard() {
    let (table, store) = single_stream().await;
    for number in 0..12 {
        table.put(java_row(number)).await;
    }
    let garbage: [(u32, &str, Option<AttributeValue>); 5] = [
        (1, "checkpoint", Some(s("TRIM_HORIZONT"))),
        (3, "checkpoint", Some(s("0x12"))),
        (5, "checkpoint", None),
        (7, "leaseCounter", None),
        (9, "leaseCounter", Some(s("41"))),
    ];
    for (number, attribute, value) in &garbage {
        let mut row = java_row(*number);
        row.remove(*attribute);
        row.extend(value.clone().map(|value| ((*attribute).to_owned(), value)));
        table.put(row).await;
    }
    table.put(item(&[("leaseKey", s("Migration3.0")), ("cv", s("CLIENT_VERSION_3X"))])).await;
    table.put(item(&[("leaseKey", s("w-1")), ("entityType", s("WORKER_METRIC_STATS")), ("lut", n(1))])).await;

    let page = store.scan(&ScanRequest::new(application())).await.unwrap();
    let mut read: Vec<_> = page.leases.iter().map(|lease| lease.key.clone()).collect();
    read.sort();
    assert_eq!(read, [0, 2, 4, 6, 8, 10, 11].map(key));
    let mut unreadable: Vec<LeaseKey> = page
        .unreadable
        .iter()
        .map(|error| match error {
            StoreError::Corrupt { key, .. } => (**key).clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    unreadable.sort();
    assert_eq!(unreadable, garbage.clone().map(|(number, ..)| key(number)));

    // Writes to them are errors of theirs alone.
    let writes: Vec<_> = (0..12)
        .map(|number| {
            let mut lease = Lease::new(key(number), Checkpoint::Latest);
            lease.owner = Some(worker("ip-10-0-0-1:4f6b"));
            lease.counter = 41;
            ops::take(&lease, &worker("rust-1"), TOKEN)
        })
        .collect();
    for (number, result) in (0..).zip(store.apply(&writes).await) {
        let is_garbage = garbage.iter().any(|(bad, ..)| *bad == number);
        match result {
            Ok(Outcome::Applied(_)) => assert!(!is_garbage, "{number}"),
            Err(StoreError::Corrupt { key: of, .. }) => assert!(is_garbage && *of == key(number), "{number}"),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// F-43: a table with room for one stream refuses a second one and names both, whoever asks.
#[tokio::test]
async fn a_second_stream_is_refused() {
    let (table, store) = single_stream().await;
    applied(&store, LeaseWrite::create(Lease::new(key(0), Checkpoint::Latest))).await;
    let clicks = StreamRef::new("clicks").unwrap();
    let other = table.clone().layout(TableLayout::kcl_single_stream(clicks.clone())).store();
    let other_key = LeaseKey::new(application(), clicks.clone(), shard(0));
    for error in [
        store.get(std::slice::from_ref(&other_key)).await.unwrap_err(),
        store.scan(&ScanRequest::new(application()).stream(clicks)).await.unwrap_err(),
        other.get(&[other_key]).await.unwrap_err(),
        other.scan(&ScanRequest::new(application())).await.unwrap_err(),
        other.setup().await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, StoreError::Misconfigured { .. }), "{text}");
        assert!(text.contains("the stream orders") && text.contains("those of clicks"), "{text}");
    }
}

/// S-221: one table has the leases of several streams under the names that the KCL gives them.
#[tokio::test]
async fn two_streams_share_one_table() {
    let clicks = StreamRef::new("clicks").unwrap();
    let id = |name: &str| -> StreamIdentifier { format!("123456789012:{name}:1700000000").parse().unwrap() };
    let layout = TableLayout::kcl_multi_stream([(stream(), id("orders")), (clicks.clone(), id("clicks"))]);
    let table = Table::new().await.layout(layout);
    let store = table.ready().await;
    for stream in [stream(), clicks.clone()] {
        for number in 0..3 {
            let key = LeaseKey::new(application(), stream.clone(), shard(number));
            applied(&store, LeaseWrite::create(Lease::new(key, Checkpoint::TrimHorizon))).await;
        }
    }
    let mut java = java_row(9);
    java.insert("leaseKey".into(), s("123456789012:elsewhere:1:shardId-000000000009"));
    table.put(java).await;
    let row = table.row("123456789012:clicks:1700000000:shardId-000000000002").await.unwrap();
    assert_eq!(
        (&row["streamName"], &row["shardId"]),
        (&s("123456789012:clicks:1700000000"), &s(shard(2).as_str()))
    );
    let request = ScanRequest::new(application());
    let all = store.scan(&request).await.unwrap();
    assert_eq!((all.leases.len(), all.unreadable.len()), (6, 0));
    let page = store.scan(&request.stream(clicks.clone())).await.unwrap();
    assert_eq!(page.leases.len(), 3);
    assert!(page.leases.iter().all(|lease| *lease.key.stream() == clicks));
}
