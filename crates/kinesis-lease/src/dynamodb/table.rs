//! The table comes into being, and is what it should be.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, PointInTimeRecoverySpecification,
    ProvisionedThroughput, ScalarAttributeType, TableDescription, TableStatus, Tag,
};
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::lease::StoreError;

use super::DynamoDbStore;
use super::config::{NewTable, TableBilling};
use super::error::{Failure, Kind, if_table};
use super::item::{self, KEY};
use super::layout::{TableLayout, same_stream};

/// The delays between looks at a table that is being made.
const LOOKS: BackoffConfig = BackoffConfig::new(Duration::from_millis(200), Duration::from_secs(5));

/// How many rows are looked at to tell which layout a table has.
const SAMPLE: i32 = 25;

impl DynamoDbStore {
    /// Makes the table if it is to be made, waits until it is usable, and checks it.
    pub(super) async fn set_up(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + self.settings.table_timeout;
        let mut looks = Backoff::new(LOOKS, fastrand::u64(..));
        let mut made = false;
        loop {
            let problem = match self.describe().await? {
                Some(table) => {
                    self.check_keys(&table)?;
                    match state_of(&table) {
                        State::Usable => break,
                        State::Passing(status) => format!("is {status}"),
                        State::Unusable(status) => return Err(self.unusable(format!("is {status}"), None)),
                    }
                }
                None => {
                    let Some(table) = &self.settings.new_table else {
                        let problem = "does not exist; make it, or let the store do so with `create_table`";
                        return Err(self.unusable(problem, None));
                    };
                    made = made || self.create(table).await?;
                    // A table that was made is not seen at once.
                    "does not show up".to_owned()
                }
            };
            if Instant::now() >= deadline {
                return Err(StoreError::unavailable(format!(
                    "the DynamoDB table {} still {problem} after {} s",
                    self.settings.table,
                    self.settings.table_timeout.as_secs_f64()
                )));
            }
            tokio::time::sleep(looks.next_delay()).await;
        }
        if made && self.settings.new_table.as_ref().is_some_and(|table| table.point_in_time_recovery) {
            self.keep_history(deadline).await?;
        }
        self.check_layout().await
    }

    async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        let call = self.client.describe_table().table_name(&self.settings.table);
        let answer = if_table(&self.settings.table, Box::pin(call.send()).await)?;
        Ok(answer.and_then(|answer| answer.table))
    }

    /// Makes the table; `false` when somebody else is making it or removing it.
    async fn create(&self, table: &NewTable) -> Result<bool, StoreError> {
        let call = with_options(self.client.create_table().table_name(&self.settings.table), table);
        match Box::pin(call.send()).await {
            Ok(_) => Ok(true),
            // Answers that were lost are found out by the next look.
            Err(error) => match Failure::new(&error) {
                failure if failure.kind == Kind::InUse => Ok(false),
                failure => Err(failure.into_store_error(&self.settings.table)),
            },
        }
    }

    /// Turns on recovery to a point in time, which a table takes only a while after it was made.
    async fn keep_history(&self, deadline: Instant) -> Result<(), StoreError> {
        let on = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
        let on =
            on.map_err(|error| StoreError::misconfigured("point-in-time recovery", Some(Box::new(error))))?;
        let mut looks = Backoff::new(LOOKS, fastrand::u64(..));
        loop {
            let call = self.client.update_continuous_backups().table_name(&self.settings.table);
            let sent = Box::pin(call.point_in_time_recovery_specification(on.clone()).send()).await;
            let failure = match sent {
                Ok(_) => return Ok(()),
                Err(error) => Failure::new(&error),
            };
            let may_pass = matches!(failure.kind, Kind::InUse | Kind::Throttled | Kind::Unavailable);
            if !may_pass || Instant::now() >= deadline {
                let problem = "was made, but recovery to a point in time cannot be turned on";
                return Err(self.unusable(problem, Some(failure)));
            }
            tokio::time::sleep(looks.next_delay()).await;
        }
    }

    fn check_keys(&self, table: &TableDescription) -> Result<(), StoreError> {
        let schema = table.key_schema();
        let is_text = |name: &str| {
            let mut types = table.attribute_definitions().iter();
            types.any(|attribute| {
                attribute.attribute_name() == name && *attribute.attribute_type() == ScalarAttributeType::S
            })
        };
        if let [only] = schema
            && only.attribute_name() == KEY
            && *only.key_type() == KeyType::Hash
            && is_text(KEY)
        {
            return Ok(());
        }
        let found: Vec<&str> = schema.iter().map(KeySchemaElement::attribute_name).collect();
        Err(self.unusable(
            format!(
                "is no lease table: its key is ({}), not the text `{KEY}` alone; name another table",
                found.join(", ")
            ),
            None,
        ))
    }

    /// Looks at some rows, so that a table of another layout or stream is not taken for an empty one.
    async fn check_layout(&self) -> Result<(), StoreError> {
        let call = self.client.scan().table_name(&self.settings.table).limit(SAMPLE);
        let answer = Box::pin(call.send()).await.map_err(|error| self.failed(&error))?;
        for found in answer.items().iter().filter(|found| item::is_lease(found)) {
            if let Some(key) = item::key_of(found) {
                self.settings.keys.check_layout(key)?;
            }
            if let TableLayout::KclSingleStream { stream } = &self.settings.keys.layout
                && let Some(Ok(other)) = item::stream_of(found)
            {
                same_stream(&other, stream)?;
            }
        }
        Ok(())
    }

    fn unusable(&self, problem: impl AsRef<str>, failure: Option<Failure>) -> StoreError {
        let problem = format!("the DynamoDB table {} {}", self.settings.table, problem.as_ref());
        StoreError::misconfigured(problem, failure.map(|failure| Box::new(failure) as _))
    }

    /// The store's error for a failed call.
    pub(super) fn failed<E>(
        &self,
        error: &SdkError<E, aws_sdk_dynamodb::config::http::HttpResponse>,
    ) -> StoreError
    where
        E: aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + 'static,
    {
        Failure::new(error).into_store_error(&self.settings.table)
    }
}

enum State {
    Usable,
    /// May become usable.
    Passing(String),
    Unusable(String),
}

fn state_of(table: &TableDescription) -> State {
    match table.table_status() {
        // A table that is being changed, for example its capacity, works on.
        Some(TableStatus::Active | TableStatus::Updating) => State::Usable,
        Some(status @ (TableStatus::Creating | TableStatus::Deleting)) => {
            State::Passing(status.as_str().to_owned())
        }
        Some(status) => State::Unusable(status.as_str().to_owned()),
        None => State::Passing("in an unknown state".to_owned()),
    }
}

fn with_options(call: CreateTableFluentBuilder, table: &NewTable) -> CreateTableFluentBuilder {
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
    let mut call = call
        .key_schema(key.build().expect("both parts are set"))
        .attribute_definitions(attribute.build().expect("both parts are set"));
    if table.deletion_protection {
        call = call.deletion_protection_enabled(true);
    }
    call = match table.billing {
        TableBilling::OnDemand => call.billing_mode(BillingMode::PayPerRequest),
        TableBilling::Provisioned { read_units, write_units } => {
            let capacity = ProvisionedThroughput::builder()
                .read_capacity_units(read_units.into())
                .write_capacity_units(write_units.into());
            call.billing_mode(BillingMode::Provisioned)
                .provisioned_throughput(capacity.build().expect("both parts are set"))
        }
    };
    for (name, value) in &table.tags {
        call = call.tags(Tag::builder().key(name).value(value).build().expect("both parts are set"));
    }
    call
}
