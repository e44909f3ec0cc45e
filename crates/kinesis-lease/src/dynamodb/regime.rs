//! What the KCL leaves in its tables: leases, and from version 3 on who assigns them.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use kinesis_core::WorkerId;
use kinesis_core::clock::{Clock as _, SystemClock};
use kinesis_core::lease::StoreError;

use super::DynamoDbStore;
use super::error::if_table;
use super::item::{self, Item, KEY};
use crate::{Regime, RegimeProbe, RegimeSighting, TableTenants};

/// What follows the application's name in the name of the table for the state, in 3.0 to 3.4.
const STATE_TABLE: &str = "CoordinatorState";
/// The key of that table.
const STATE_KEY: &str = "key";
/// What follows the application's name in the name of the table of the workers' metrics, in 3.0 to 3.4.
const METRICS_TABLE: &str = "WorkerMetricStats";
/// The key of that table.
const METRICS_KEY: &str = "wid";
/// The entity type of a worker's metrics in the lease table.
const METRICS_TYPE: &str = "WORKER_METRIC_STATS";

/// The item that says which version's rules apply, and its attribute.
const MIGRATION: &str = "Migration3.0";
const VERSION: &str = "cv";
/// The item of the leader's lock, its attribute that changes with every heartbeat, and the one that says it is free.
const LEADER: &str = "Leader";
const LOCK_VERSION: &str = "recordVersionNumber";
const LOCK_RELEASED: &str = "isReleased";
/// When a worker's metrics were written, in seconds since 1970.
const UPDATED: &str = "lut";

/// That a worker understands all entities in one table (3.5), and when it said so last.
const SUPPORTS: &str = "sup";
const SUPPORTS_AT: &str = "slu";
const SUPPORTS_ONE_TABLE: i64 = 1;

/// How many rows of the metrics are looked at.
const METRICS_SAMPLE: i32 = 25;

impl DynamoDbStore {
    /// The name of another table of the application's, beside the lease table.
    fn beside(&self, what: &str) -> String {
        // Named after the application, whatever the lease table is called.
        let name = format!("{}-{what}", self.settings.keys.application);
        match self.settings.table.rsplit_once(":table/") {
            Some((place, _)) => format!("{place}:table/{name}"),
            None => name,
        }
    }

    /// What a table has under a key, if there is such a table.
    async fn find(&self, table: &str, attribute: &str, key: &str) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(table).key(attribute, item::text(key));
        let answer = if_table(table, Box::pin(call.consistent_read(true).send()).await)?;
        Ok(answer.and_then(|answer| answer.item))
    }

    /// An item of the coordinators, in the table that was made for them or in the lease table.
    async fn state_item(&self, key: &str) -> Result<Option<(String, Item)>, StoreError> {
        let beside = self.beside(STATE_TABLE);
        if let Some(found) = self.find(&beside, STATE_KEY, key).await? {
            return Ok(Some((beside, found)));
        }
        let table = self.settings.table.clone();
        Ok(self.find(&table, KEY, key).await?.map(|found| (table, found)))
    }

    /// The newest row of the workers' metrics in their own table.
    async fn newest_metrics(&self) -> Result<Option<RegimeSighting>, StoreError> {
        let table = self.beside(METRICS_TABLE);
        let call = self.client.scan().table_name(&table).limit(METRICS_SAMPLE).consistent_read(true);
        let Some(answer) = if_table(&table, Box::pin(call.send()).await)? else { return Ok(None) };
        let rows = answer.items();
        let newest =
            rows.iter().filter_map(|row| Some((seconds(row, UPDATED)?, text(row, METRICS_KEY)?))).max();
        Ok(newest.map(|(updated, worker)| {
            let mark = updated.to_string();
            RegimeSighting::new(Regime::Unclear { mark }, table, worker, format!("{UPDATED} {updated}"))
        }))
    }

    async fn regime_of_table(&self) -> Result<RegimeSighting, StoreError> {
        if let Some((table, found)) = self.state_item(MIGRATION).await? {
            let state = text(&found, VERSION).unwrap_or("no cv");
            let regime = match state {
                "CLIENT_VERSION_2X" => Regime::Takers,
                "CLIENT_VERSION_INIT" | "CLIENT_VERSION_UPGRADE_FROM_2X" => Regime::Upgrading,
                // Also what is not known yet.
                _ => Regime::Leader,
            };
            return Ok(RegimeSighting::new(regime, table, MIGRATION, state));
        }
        if let Some((table, found)) = self.state_item(LEADER).await?
            && !found.contains_key(LOCK_RELEASED)
        {
            let mark = text(&found, LOCK_VERSION).unwrap_or_default().to_owned();
            let state = format!("{LOCK_VERSION} {mark}");
            return Ok(RegimeSighting::new(Regime::Unclear { mark }, table, LEADER, state));
        }
        let nothing = || RegimeSighting::new(Regime::Takers, &self.settings.table, "", "");
        Ok(self.newest_metrics().await?.unwrap_or_else(nothing))
    }

    /// The rows that are looked at are all of the table's, until one is the KCL's.
    async fn lease_of_kcl(&self) -> Result<Option<String>, StoreError> {
        let mut after: Option<HashMap<String, AttributeValue>> = None;
        loop {
            let call = self.client.scan().table_name(&self.settings.table).set_exclusive_start_key(after);
            let answer = Box::pin(call.send()).await.map_err(|error| self.failed(&error))?;
            let mut leases = answer.items().iter().filter(|found| item::is_lease(found));
            if let Some(trace) = leases.find_map(trace_of_kcl) {
                return Ok(Some(trace));
            }
            after = answer.last_evaluated_key;
            if after.is_none() {
                return Ok(None);
            }
        }
    }

    async fn publish_metrics(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let seconds = SystemClock.wall().as_millis() / 1_000;
        // Without figures the leader reckons with the throughput that is assigned to the worker.
        let empty = || AttributeValue::M(HashMap::new());
        let mut row = vec![
            (UPDATED, item::number(&seconds)),
            ("sts", empty()),
            ("opr", empty()),
            (SUPPORTS, item::number(&SUPPORTS_ONE_TABLE)),
            (SUPPORTS_AT, item::number(&seconds)),
        ];
        let beside = self.beside(METRICS_TABLE);
        if self.put_attributes(&beside, METRICS_KEY, worker.as_str(), &row).await? {
            return Ok(());
        }
        // In the lease table only where all workers know by their version that there are other items than leases in it.
        let table = self.settings.table.clone();
        if let Some(state) = self.find(&table, KEY, MIGRATION).await?
            && text(&state, VERSION) != Some("CLIENT_VERSION_2X")
        {
            row.push((item::ENTITY_TYPE, item::text(METRICS_TYPE)));
            self.put_attributes(&table, KEY, worker.as_str(), &row).await?;
        }
        Ok(())
    }

    async fn delete_metrics(&self, worker: &WorkerId) -> Result<(), StoreError> {
        for (table, attribute) in
            [(self.beside(METRICS_TABLE), METRICS_KEY), (self.settings.table.clone(), KEY)]
        {
            let mut call = self.client.delete_item().table_name(&table).key(attribute, item::text(worker));
            if attribute == KEY {
                // Whatever else may have the name of a worker.
                call = call
                    .condition_expression("#type = :type")
                    .expression_attribute_names("#type", item::ENTITY_TYPE)
                    .expression_attribute_values(":type", item::text(METRICS_TYPE));
            }
            match Box::pin(call.send()).await {
                Err(error)
                    if error
                        .as_service_error()
                        .is_some_and(|error| error.is_conditional_check_failed_exception()) => {}
                result => {
                    if_table(&table, result)?;
                }
            }
        }
        Ok(())
    }

    /// Sets attributes of an item; `false` when there is no such table.
    async fn put_attributes(
        &self,
        table: &str,
        attribute: &str,
        key: &str,
        attributes: &[(&str, AttributeValue)],
    ) -> Result<bool, StoreError> {
        let mut call = self.client.update_item().table_name(table).key(attribute, item::text(key));
        let mut sets = Vec::new();
        for (number, (name, value)) in attributes.iter().enumerate() {
            sets.push(format!("#n{number} = :v{number}"));
            call = call
                .expression_attribute_names(format!("#n{number}"), *name)
                .expression_attribute_values(format!(":v{number}"), value.clone());
        }
        let call = call.update_expression(format!("SET {}", sets.join(", ")));
        Ok(if_table(table, Box::pin(call.send()).await)?.is_some())
    }
}

fn text<'a>(found: &'a Item, name: &str) -> Option<&'a str> {
    found.get(name)?.as_s().ok().map(String::as_str)
}

fn seconds(found: &Item, name: &str) -> Option<i64> {
    found.get(name)?.as_n().ok()?.parse().ok()
}

/// What shows that the KCL uses a lease: it made the row, or it counted on last.
fn trace_of_kcl(found: &Item) -> Option<String> {
    let key = item::key_of(found)?;
    if item::is_made_by_kcl(found) {
        return Some(format!("the lease {key} was made by the KCL"));
    }
    if !item::is_counted_by_kcl(found) {
        return None;
    }
    Some(match text(found, item::OWNER) {
        Some(owner) => format!("the lease {key} is held by the KCL's worker {owner}"),
        None => format!("the lease {key} was written by the KCL"),
    })
}

#[async_trait]
impl RegimeProbe for DynamoDbStore {
    async fn tenants(&self) -> Result<TableTenants, StoreError> {
        if !self.settings.keys.layout.is_shared() {
            return Ok(TableTenants::default());
        }
        Ok(TableTenants::shared(self.lease_of_kcl().await?))
    }

    async fn regime(&self) -> Result<RegimeSighting, StoreError> {
        self.regime_of_table().await
    }

    async fn publish(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.publish_metrics(worker).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.delete_metrics(worker).await
    }
}
