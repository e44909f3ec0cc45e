//! Who shares out the leases of a table, as the KCL's rows say it: formats of 2.7, 3.0 to 3.4 and 3.5.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use kinesis_core::Checkpoint;
use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::Lease;
use kinesis_lease::{
    Balance, Coordination, CoordinatorBuilder, LeaseConfig, LeaseEvent, LeaseEvents, LeaseStore,
    LeaseStoreSource, LeaseWarning, LeaseWrite, Regime, RegimeProbe as _, StartError, TableLayout, ops,
};

use crate::common::{FakeDirectory, acquired, builder, key, millis, secs, shard, stream, worker};
use crate::support::{Item, Table, item, n, s};

const STATE: &str = "billing-CoordinatorState";
const METRICS: &str = "billing-WorkerMetricStats";

async fn single_stream() -> Table {
    let table = Table::new().await.layout(TableLayout::kcl_single_stream(stream()));
    table.ready().await;
    table
}

/// A table with a text as its key, as the KCL makes its own.
async fn make_table(table: &Table, name: &str, key: &str) {
    let attribute = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
    let schema = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
    let call = table.client().create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let call = call.attribute_definitions(attribute.build().unwrap()).key_schema(schema.build().unwrap());
    call.send().await.unwrap();
}

async fn put(table: &Table, name: &str, row: Item) {
    table.client().put_item().table_name(name).set_item(Some(row)).send().await.unwrap();
}

/// The state of the migration from 2.x, as 3.x writes it.
fn migration(key: &str, version: &str) -> Item {
    item(&[
        (key, s("Migration3.0")),
        ("entityType", s("CLIENT_VERSION_MIGRATION")),
        ("cv", s(version)),
        ("mb", s("worker-1")),
        ("mts", n(1_750_000_000_000)),
        (
            "h",
            AttributeValue::L(vec![AttributeValue::M(HashMap::from([(
                "cv".to_owned(),
                s("CLIENT_VERSION_2X"),
            )]))]),
        ),
    ])
}

fn leader(key: &str, version: &str) -> Item {
    item(&[
        (key, s("Leader")),
        ("entityType", s("LEADER")),
        ("ownerName", s("worker-1")),
        ("leaseDuration", s("120000")),
        ("recordVersionNumber", s(version)),
    ])
}

fn metrics(updated: i64) -> Item {
    item(&[
        ("wid", s("worker-1")),
        ("lut", n(updated)),
        ("sts", AttributeValue::M(HashMap::from([("C".to_owned(), AttributeValue::L(vec![n(12)]))]))),
        ("opr", AttributeValue::M(HashMap::from([("C".to_owned(), AttributeValue::L(vec![n(80)]))]))),
    ])
}

/// A row as a worker of the KCL 2 makes it.
fn java_row(number: u32, owner: Option<&str>) -> Item {
    let mut row = item(&[
        ("leaseKey", s(shard(number).as_str())),
        ("leaseCounter", n(0)),
        ("ownerSwitchesSinceCheckpoint", n(0)),
        ("checkpoint", s("TRIM_HORIZON")),
        ("checkpointSubSequenceNumber", n(0)),
    ]);
    row.extend(owner.map(|owner| ("leaseOwner".to_owned(), s(owner))));
    row
}

fn config() -> LeaseConfig {
    LeaseConfig::default().look_interval(millis(100)).regime_interval(millis(200))
}

fn of(table: &Table, config: LeaseConfig) -> CoordinatorBuilder {
    let table = table.clone();
    let source = LeaseStoreSource::factory(move || {
        let store = table.store();
        async move { Ok(store) }
    });
    builder(source, &FakeDirectory::open(2), "rust-1").config(config)
}

/// The regime, and the item that shows it, at both places where versions keep their state.
#[tokio::test]
async fn each_state_of_a_migration_has_its_regime() {
    for beside in [false, true] {
        let table = single_stream().await;
        let store = table.store();
        let found = store.regime().await.unwrap();
        assert_eq!((&found.regime, found.item.as_str()), (&Regime::Takers, ""), "{found}");
        let (name, key) = if beside { (STATE, "key") } else { (table.name.as_str(), "leaseKey") };
        if beside {
            make_table(&table, name, key).await;
        }
        for (version, regime) in [
            ("CLIENT_VERSION_2X", Regime::Takers),
            ("CLIENT_VERSION_UPGRADE_FROM_2X", Regime::Upgrading),
            ("CLIENT_VERSION_3X_WITH_ROLLBACK", Regime::Leader),
            ("CLIENT_VERSION_3X", Regime::Leader),
            ("CLIENT_VERSION_9X", Regime::Leader),
        ] {
            put(&table, name, migration(key, version)).await;
            let found = store.regime().await.unwrap();
            assert_eq!(found.regime, regime, "{version}");
            assert_eq!((found.table.as_str(), found.item.as_str()), (name, "Migration3.0"));
            assert_eq!(found.state, version);
        }
    }
}

/// Without a state a leader's lock or metrics of workers are a sign; the mark is what changes while they live.
#[tokio::test]
async fn a_leader_or_metrics_without_a_state_are_a_sign() {
    let table = single_stream().await;
    let store = table.store();
    make_table(&table, METRICS, "wid").await;
    put(&table, METRICS, metrics(1_750_000_000)).await;
    let found = store.regime().await.unwrap();
    assert_eq!(found.regime, Regime::Unclear { mark: "1750000000".to_owned() });
    assert_eq!((found.table.as_str(), found.item.as_str()), (METRICS, "worker-1"));
    put(&table, &table.name, leader("leaseKey", "v-1")).await;
    let found = store.regime().await.unwrap();
    assert_eq!(found.regime, Regime::Unclear { mark: "v-1".to_owned() });
    assert_eq!((found.table.as_str(), found.item.as_str()), (table.name.as_str(), "Leader"));
    let mut released = leader("leaseKey", "v-2");
    released.insert("isReleased".into(), s("1"));
    put(&table, &table.name, released).await;
    assert_eq!(store.regime().await.unwrap().item, "worker-1");
    // None of it is taken for a lease.
    let page = store.scan(&kinesis_lease::ScanRequest::new(crate::common::application())).await.unwrap();
    assert_eq!((page.leases.len(), page.unreadable.len()), (0, 0));
}

/// S-033: whose leases are in a table is told from its rows.
#[tokio::test]
async fn the_tenants_of_a_table_are_told_from_its_rows() {
    let native = Table::new().await;
    let tenants = native.ready().await.tenants().await.unwrap();
    assert!(!tenants.shared, "the KCL cannot use its keys");

    let table = single_stream().await;
    let store = table.store();
    assert_eq!(store.tenants().await.unwrap().kcl_lease, None, "an empty table");
    let made = Lease::new(key(0), Checkpoint::TrimHorizon);
    apply(&store, LeaseWrite::create(made.clone())).await;
    let token = kinesis_lease::TenureToken::from_random(7);
    let taken = apply(&store, ops::take(&made, &worker("rust-1"), token)).await;
    apply(&store, ops::release(&taken, token, None, None)).await;
    let tenants = store.tenants().await.unwrap();
    assert!(tenants.shared && tenants.kcl_lease.is_none(), "{tenants:?}");
    // Java takes it.
    table.set(shard(0).as_str(), "leaseOwner", s("java-1")).await;
    table.set(shard(0).as_str(), "leaseCounter", n(3)).await;
    let found = store.tenants().await.unwrap().kcl_lease.unwrap();
    assert!(
        found.contains(shard(0).as_str()) && found.contains("held by the KCL's worker java-1"),
        "{found}"
    );
    // We take it back, and there is nothing of Java's but a row that it has made.
    let row = store.get(&[key(0)]).await.unwrap().remove(0).unwrap();
    apply(&store, ops::take(&row, &worker("rust-1"), token)).await;
    assert_eq!(store.tenants().await.unwrap().kcl_lease, None);
    table.put(java_row(1, None)).await;
    let found = store.tenants().await.unwrap().kcl_lease.unwrap();
    assert!(found.contains(shard(1).as_str()) && found.contains("made by the KCL"), "{found}");
}

async fn apply(store: &dyn LeaseStore, write: LeaseWrite) -> Lease {
    match store.apply(&[write]).await.remove(0).unwrap() {
        kinesis_lease::Outcome::Applied(row) => row,
        other => panic!("{other:?}"),
    }
}

/// S-033: a lease of a running worker of the KCL is taken where the table is the KCL's, and not where it was made by us.
#[tokio::test]
async fn leases_are_shared_as_the_table_needs_it() {
    let table = single_stream().await;
    for number in 0..2 {
        table.put(java_row(number, Some("java-1"))).await;
    }
    let (coordinator, mut events) = of(&table, config()).start().await.unwrap();
    let tenure = acquired(&mut events).await;
    assert_eq!(tenure.lease().owner_switches, 1, "from a worker that lives for all we know");
    assert!(coordinator.shutdown(secs(5)).await.is_complete());
    let wrong = of(&table, config().coordination(Coordination::Native)).start().await.unwrap_err();
    let StartError::Coordination { setting, found, .. } = &wrong else { panic!("{wrong}") };
    assert_eq!(*setting, Coordination::Native);
    assert!(found.contains("made by the KCL") && !wrong.is_retryable(), "{wrong}");

    let native = Table::new().await;
    native.ready().await;
    let wrong = of(&native, config().coordination(Coordination::KclCompatible)).start().await.unwrap_err();
    assert!(matches!(wrong, StartError::Coordination { .. }), "{wrong}");
}

/// Sharing by load does not go together with the KCL's way, also where that was found in the table.
#[tokio::test]
async fn sharing_by_load_is_refused_on_a_table_of_the_kcl() {
    let table = single_stream().await;
    table.put(java_row(0, Some("java-1"))).await;
    let refused = of(&table, config().balance(Balance::Load)).start().await.unwrap_err();
    let StartError::Config(error) = &refused else { panic!("{refused}") };
    assert_eq!(error.field(), "balance");
    let text = refused.to_string();
    assert!(text.contains("balance") && text.contains("coordination = kcl_compatible"), "{text}");
    assert!(!refused.is_retryable());
}

/// A table whose leases a leader assigns is refused at the start, by its name and the item.
#[tokio::test]
async fn a_table_with_a_leader_is_refused_at_the_start() {
    let table = single_stream().await;
    table.put(java_row(0, Some("java-1"))).await;
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_3X")).await;
    let refused = of(&table, config()).start().await.unwrap_err();
    let StartError::Regime(found) = &refused else { panic!("{refused}") };
    assert_eq!((found.table.as_str(), found.item.as_str()), (table.name.as_str(), "Migration3.0"));
    let text = refused.to_string();
    assert!(text.contains(&table.name) && text.contains("CLIENT_VERSION_3X"), "{text}");
    assert!(!refused.is_retryable());
    let row = table.row(shard(0).as_str()).await.unwrap();
    assert_eq!(row, java_row(0, Some("java-1")), "nothing was written");
}

/// The next event that is not of a tenure.
async fn told(events: &mut LeaseEvents) -> LeaseEvent {
    let next = async {
        loop {
            match events.next().await.expect("the coordinator lives") {
                LeaseEvent::Acquired(_) => {}
                other => return other,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), next).await.expect("it is told in time")
}

/// A change to 3.x in mid-run: first a warning while the upgrade is prepared, then the end, told once; what is held is
/// still ours until it is given back, and nothing more is taken.
#[tokio::test]
async fn a_change_to_a_leader_in_mid_run_is_told() {
    let table = single_stream().await;
    make_table(&table, STATE, "key").await;
    table.put(java_row(0, None)).await;
    let (coordinator, mut events) = of(&table, config()).start().await.unwrap();
    let tenure = acquired(&mut events).await;
    put(&table, STATE, migration("key", "CLIENT_VERSION_UPGRADE_FROM_2X")).await;
    let event = told(&mut events).await;
    let LeaseEvent::Warning(LeaseWarning::Regime(found)) = event else { panic!("{event:?}") };
    assert_eq!((found.regime, found.table.as_str()), (Regime::Upgrading, STATE));
    put(&table, STATE, migration("key", "CLIENT_VERSION_3X_WITH_ROLLBACK")).await;
    let event = told(&mut events).await;
    let LeaseEvent::RegimeChanged(found) = event else { panic!("{event:?}") };
    assert_eq!((found.table.as_str(), found.item.as_str()), (STATE, "Migration3.0"));
    assert_eq!(found.state, "CLIENT_VERSION_3X_WITH_ROLLBACK");
    tenure.checkpoint(crate::common::at(9)).await.unwrap();
    table.put(java_row(7, None)).await;
    tokio::time::sleep(millis(500)).await;
    assert!(!table.row(shard(7).as_str()).await.unwrap().contains_key("leaseOwner"), "nothing is taken");
    assert!(coordinator.shutdown(secs(5)).await.is_complete());
    let row = table.row(tenure.key().shard().as_str()).await.unwrap();
    assert_eq!(row["checkpoint"], s("9"));
    assert!(!row.contains_key("leaseOwner"), "the leader can assign it at once");
}

/// A lock that stands still may be that of a leader that is gone; one that moves is that of a leader.
#[tokio::test]
async fn a_leader_without_a_state_counts_once_it_is_seen_alive() {
    let table = single_stream().await;
    table.put(java_row(0, None)).await;
    put(&table, &table.name, leader("leaseKey", "v-1")).await;
    let (coordinator, mut events) = of(&table, config()).start().await.unwrap();
    let event = told(&mut events).await;
    let LeaseEvent::Warning(LeaseWarning::Regime(found)) = event else { panic!("{event:?}") };
    assert_eq!(found.item, "Leader");
    tokio::time::sleep(millis(600)).await;
    put(&table, &table.name, leader("leaseKey", "v-2")).await;
    let event = told(&mut events).await;
    let LeaseEvent::RegimeChanged(found) = event else { panic!("{event:?}") };
    assert_eq!(found.item, "Leader");
    coordinator.shutdown(secs(5)).await;
}

/// A table that cannot be looked at is told of once, and does not stop the worker.
#[tokio::test]
async fn a_look_that_fails_is_told_once() {
    let table = single_stream().await;
    table.put(java_row(0, None)).await;
    table.wire.disturb(|operation, _| match operation {
        "GetItem" => crate::support::Fate::Refused("AccessDeniedException"),
        _ => crate::support::Fate::Pass,
    });
    let (coordinator, mut events) = of(&table, config()).start().await.unwrap();
    let event = told(&mut events).await;
    assert!(matches!(event, LeaseEvent::Warning(LeaseWarning::RegimeUnseen(_))), "{event:?}");
    tokio::time::sleep(millis(700)).await;
    table.wire.disturb(|_, _| crate::support::Fate::Pass);
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_3X")).await;
    let event = told(&mut events).await;
    assert!(matches!(event, LeaseEvent::RegimeChanged(_)), "{event:?}");
    coordinator.shutdown(secs(5)).await;
}

fn is_fresh(row: &Item, attribute: &str) -> bool {
    row[attribute].as_n().is_ok_and(|seconds| seconds.len() == 10)
}

/// The metrics of a worker are published only where it was asked for and workers of 3.x have theirs, in their form.
#[tokio::test]
async fn metrics_are_published_where_the_others_have_theirs() {
    let table = single_stream().await;
    let store = table.store();
    let me = worker("rust-1");
    let find = async |name: &str, attribute: &str| {
        let get = table.client().get_item().table_name(name).key(attribute, s("rust-1"));
        get.consistent_read(true).send().await.unwrap().item
    };
    store.publish(&me).await.unwrap();
    assert_eq!(find(&table.name, "leaseKey").await, None, "a worker of 2.x could not read it");
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_2X")).await;
    store.publish(&me).await.unwrap();
    assert_eq!(find(&table.name, "leaseKey").await, None, "rolled back");

    // In one table.
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_UPGRADE_FROM_2X")).await;
    store.publish(&me).await.unwrap();
    let row = find(&table.name, "leaseKey").await.unwrap();
    assert_eq!((&row["entityType"], &row["sup"]), (&s("WORKER_METRIC_STATS"), &n(1)));
    assert!(is_fresh(&row, "lut") && is_fresh(&row, "slu"), "{row:?}");
    let empty = AttributeValue::M(HashMap::new());
    assert_eq!((&row["sts"], &row["opr"]), (&empty, &empty));

    // In a table of their own, by the coordinator.
    make_table(&table, METRICS, "wid").await;
    table.put(java_row(0, None)).await;
    let (coordinator, _events) = of(&table, config()).start().await.unwrap();
    tokio::time::sleep(millis(500)).await;
    assert_eq!(find(METRICS, "wid").await, None, "not asked for");
    coordinator.shutdown(secs(5)).await;
    let (coordinator, _events) = of(&table, config().publish_worker_metrics(true)).start().await.unwrap();
    let row = find(METRICS, "wid").await.unwrap();
    assert!(is_fresh(&row, "lut") && !row.contains_key("entityType"), "{row:?}");
    // A leader gives leases to whoever has metrics.
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_3X")).await;
    crate::common::until_async("they are taken back", async || find(METRICS, "wid").await.is_none()).await;
    assert_eq!(find(&table.name, "leaseKey").await, None, "there, too");
    coordinator.shutdown(secs(5)).await;
}

/// A store that is wrapped is looked at with the probe that it is given, and an erased one without.
#[tokio::test]
async fn a_wrapped_store_has_the_probe_that_it_is_given() {
    let table = single_stream().await;
    table.put(java_row(0, None)).await;
    put(&table, &table.name, migration("leaseKey", "CLIENT_VERSION_3X")).await;
    let erased = || Arc::new(table.store()) as Arc<dyn LeaseStore>;
    let start = |source: LeaseStoreSource| builder(source, &FakeDirectory::open(1), "rust-1").start();
    let refused = start(LeaseStoreSource::from(erased()).regime_probe(table.store())).await.unwrap_err();
    assert!(matches!(refused, StartError::Regime(_)), "{refused}");
    let refused = start(LeaseStoreSource::from(Arc::new(table.store()))).await.unwrap_err();
    assert!(matches!(refused, StartError::Regime(_)), "{refused}");
    let (coordinator, _events) = start(LeaseStoreSource::from(erased())).await.unwrap();
    coordinator.shutdown(secs(5)).await;
}

/// The KCL removes the row of a finished shard while the service still lists the shard: it is not made anew, which would
/// read the whole shard again.
#[tokio::test]
async fn rows_that_the_kcl_has_removed_are_not_made_anew() {
    let table = single_stream().await;
    for number in 1..3 {
        table.put(java_row(number, None)).await;
    }
    let child = |number| ShardInfo::new(shard(number)).parents(vec![shard(0)]);
    let listed = vec![ShardInfo::new(shard(0)).closed(true), child(1), child(2), ShardInfo::new(shard(3))];
    let directory = FakeDirectory::new(listed);
    let (coordinator, _events) =
        builder(table.store(), &directory, "rust-1").config(config()).start().await.unwrap();
    coordinator.discover_now().await.unwrap();
    assert_eq!(table.row(shard(0).as_str()).await, None);
    assert!(table.row(shard(3).as_str()).await.is_some(), "what is new is made");
    assert!(coordinator.shutdown(secs(5)).await.is_complete());
}
