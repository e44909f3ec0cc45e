//! The table: made, awaited, checked.

use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextMut;
use kinesis_core::ApplicationName;
use kinesis_core::lease::{LeaseStore, StoreError};
use kinesis_lease::{DynamoDbStore, NewTable, TableLayout};
use serde_json::json;

use crate::common::{millis, stream};
use crate::support::{Fate, Table, item, n, s};

fn problem(error: StoreError) -> String {
    assert!(!error.is_retryable());
    match error {
        StoreError::Misconfigured { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

/// S-051: the table is named after the application unless it has another name.
#[tokio::test]
async fn the_table_is_named_after_the_application() {
    let table = Table::new().await;
    let application = ApplicationName::new("billing").unwrap();
    let builder = DynamoDbStore::builder(&table.config, application).create_table(NewTable::on_demand());
    let store = builder.clone().build().unwrap();
    store.setup().await.unwrap();
    assert_eq!(store.table(), "billing");
    let made = &table.wire.sent("CreateTable")[0];
    assert_eq!(
        *made,
        json!({
            "TableName": "billing",
            "KeySchema": [{ "AttributeName": "leaseKey", "KeyType": "HASH" }],
            "AttributeDefinitions": [{ "AttributeName": "leaseKey", "AttributeType": "S" }],
            "BillingMode": "PAY_PER_REQUEST",
        })
    );
    assert_eq!(builder.table("leases").build().unwrap().table(), "leases");
}

#[tokio::test]
async fn the_options_of_a_new_table_reach_the_service() {
    let table = Table::new().await;
    table.wire.disturb(|operation, _| match operation {
        // Not known to every local DynamoDB.
        "UpdateContinuousBackups" => Fate::Answered("{}"),
        _ => Fate::Pass,
    });
    let options = NewTable::provisioned(5, 7)
        .tag("team", "billing")
        .tag("stage", "test")
        .point_in_time_recovery(true)
        .deletion_protection(true);
    let store = table.builder().create_table(options).build().unwrap();
    store.setup().await.unwrap();
    let made = &table.wire.sent("CreateTable")[0];
    assert_eq!(made["BillingMode"], "PROVISIONED");
    assert_eq!(made["ProvisionedThroughput"], json!({ "ReadCapacityUnits": 5, "WriteCapacityUnits": 7 }));
    assert_eq!(made["DeletionProtectionEnabled"], true);
    let tags = json!([{ "Key": "stage", "Value": "test" }, { "Key": "team", "Value": "billing" }]);
    assert_eq!(made["Tags"], tags);
    let history = &table.wire.sent("UpdateContinuousBackups")[0];
    assert_eq!(history["PointInTimeRecoverySpecification"], json!({ "PointInTimeRecoveryEnabled": true }));
    let description = table.client().describe_table().table_name(&table.name).send().await.unwrap();
    assert_eq!(description.table.unwrap().deletion_protection_enabled, Some(true));

    store.setup().await.unwrap();
    assert_eq!(table.wire.sent("CreateTable").len(), 1, "a table that exists is left as it is");
    assert_eq!(table.wire.sent("UpdateContinuousBackups").len(), 1);
}

#[tokio::test]
async fn a_table_without_the_history_that_was_asked_for_is_an_error() {
    let table = Table::new().await;
    table.wire.disturb(|operation, _| match operation {
        "UpdateContinuousBackups" => Fate::Refused("AccessDeniedException"),
        _ => Fate::Pass,
    });
    let options = NewTable::on_demand().point_in_time_recovery(true);
    let error = table.builder().create_table(options).build().unwrap().setup().await.unwrap_err();
    let text = problem(error);
    assert!(text.contains("recovery to a point in time cannot be turned on"), "{text}");
}

/// S-032: making the table is an option that is off.
#[tokio::test]
async fn a_missing_table_is_made_only_when_told_to() {
    let table = Table::new().await;
    let application = ApplicationName::new("billing").unwrap();
    let store = DynamoDbStore::builder(&table.config, application).build().unwrap();
    let text = problem(store.setup().await.unwrap_err());
    assert_eq!(
        text,
        "the DynamoDB table billing does not exist; make it, or let the store do so with `create_table`"
    );
    assert_eq!(table.wire.sent("CreateTable").len(), 0);
    assert_eq!(
        problem(store.get(&[crate::common::key(0)]).await.unwrap_err()),
        "the DynamoDB table billing does not exist"
    );
}

#[tokio::test]
async fn a_table_with_another_key_is_refused() {
    let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
    let cases = [
        (vec![("id", text.clone())], "(id)"),
        (vec![("leaseKey", text.clone()), ("shard", text)], "(leaseKey, shard)"),
        (vec![("leaseKey", number)], "(leaseKey)"),
    ];
    for (attributes, shown) in cases {
        let table = Table::new().await;
        let mut create =
            table.client().create_table().table_name(&table.name).billing_mode(BillingMode::PayPerRequest);
        for (index, (name, kind)) in attributes.iter().enumerate() {
            let role = if index == 0 { KeyType::Hash } else { KeyType::Range };
            let key = KeySchemaElement::builder().attribute_name(*name).key_type(role);
            let attribute = AttributeDefinition::builder().attribute_name(*name).attribute_type(kind.clone());
            create =
                create.key_schema(key.build().unwrap()).attribute_definitions(attribute.build().unwrap());
        }
        create.send().await.unwrap();
        let found = problem(table.store().setup().await.unwrap_err());
        let expected = format!("is no lease table: its key is {shown}, not the text `leaseKey` alone");
        assert!(found.contains(&expected), "{found}");
    }
}

/// A table that stays unusable is waited for within a limit.
#[tokio::test]
async fn a_table_that_never_becomes_usable_is_given_up() {
    let table = Table::new().await;
    table.wire.disturb(|operation, _| match operation {
        "DescribeTable" => Fate::Answered(
            r#"{"Table":{"TableStatus":"CREATING","KeySchema":[{"AttributeName":"leaseKey","KeyType":"HASH"}],
                "AttributeDefinitions":[{"AttributeName":"leaseKey","AttributeType":"S"}]}}"#,
        ),
        _ => Fate::Pass,
    });
    let store = table.builder().table_timeout(millis(1)).build().unwrap();
    let error = store.setup().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let text = kinesis_core::error_chain(&error);
    assert!(text.contains("still is CREATING after 0.001 s"), "{text}");
}

#[tokio::test]
async fn a_refused_table_says_why() {
    let table = Table::new().await;
    table.wire.disturb(|_, _| Fate::Refused("AccessDeniedException"));
    let error = table.store().setup().await.unwrap_err();
    assert_eq!(
        kinesis_core::error_chain(&error),
        format!(
            "the lease store is not usable: access to the DynamoDB table {} is denied: \
             AccessDeniedException: as asked for",
            table.name
        )
    );
}

/// A table of another layout is refused at the start, not taken for an empty one.
#[tokio::test]
async fn a_table_of_another_layout_is_refused() {
    let table = Table::new().await;
    table.ready().await;
    let row = |key: &str| item(&[("leaseKey", s(key)), ("checkpoint", s("LATEST")), ("leaseCounter", n(0))]);
    table.put(item(&[("leaseKey", s("Leader")), ("entityType", s("LEADER"))])).await;
    table.store().setup().await.unwrap();
    table.put(row("shardId-000000000000")).await;
    let text = problem(table.store().setup().await.unwrap_err());
    assert!(text.contains("rows in the KCL's single-stream layout"), "{text}");
    let single = table.clone().layout(TableLayout::kcl_single_stream(stream()));
    single.store().setup().await.unwrap();
}

/// S-117: settings that cannot be used are refused by name, before any call.
#[tokio::test]
async fn settings_are_checked() {
    let table = Table::new().await;
    let builder = || table.builder();
    let cases = [
        (builder().table("ab"), "table"),
        (builder().table("with space"), "table"),
        (builder().table("arn:aws:sqs:us-east-1:1:table/leases"), "table"),
        (builder().max_concurrency(0), "max_concurrency"),
        (builder().scan_segments(0), "scan_segments"),
        (builder().scan_segments(1_000_001), "scan_segments"),
        (builder().attempt_timeout(millis(0)), "attempt_timeout"),
        (builder().table_timeout(millis(0)), "table_timeout"),
        (builder().create_table(NewTable::provisioned(0, 1)), "billing"),
        (builder().create_table(NewTable::provisioned(1, 0)), "billing"),
        (builder().layout(TableLayout::kcl_multi_stream([])), "layout"),
    ];
    for (builder, field) in cases {
        let text = problem(builder.build().unwrap_err());
        assert!(text.contains(&format!("invalid setting `{field}`")), "{text}");
    }
    builder().table("arn:aws:dynamodb:us-east-1:123456789012:table/leases").build().unwrap();
    let application = ApplicationName::new("my application").unwrap();
    let text = problem(DynamoDbStore::builder(&table.config, application).build().unwrap_err());
    assert!(text.contains("`my application` cannot name a table"), "{text}");
}

/// Marks every request.
#[derive(Debug)]
struct Marker;

impl Intercept for Marker {
    fn name(&self) -> &'static str {
        "Marker"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        context.request_mut().headers_mut().insert("x-marker", "here");
        Ok(())
    }
}

/// What the caller of a ready client has set survives: endpoint, HTTP client, interceptors.
#[tokio::test]
async fn a_ready_client_keeps_what_its_owner_has_set() {
    let table = Table::new().await;
    let config = aws_sdk_dynamodb::config::Builder::from(&table.config).interceptor(Marker).build();
    let client = aws_sdk_dynamodb::Client::from_conf(config);
    let application = ApplicationName::new("billing").unwrap();
    let builder = DynamoDbStore::builder(client, application).create_table(NewTable::on_demand());
    builder.build().unwrap().setup().await.unwrap();
    let markers = table.wire.markers();
    assert!(markers.len() >= 3 && markers.iter().all(|marker| marker == "here"), "{markers:?}");
}
