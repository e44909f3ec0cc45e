//! The DynamoDB store against a DynamoDB that was not written here: `ministack`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#[path = "dynamodb/support.rs"]
mod support;

use kinesis_core::lease::LeaseStore;
use kinesis_core::lease::conformance::{self, Verdict, assert_kept};
use kinesis_lease::NewTable;
use support::Table;

fn endpoint() -> String {
    std::env::var("MINISTACK_ENDPOINT").expect("set by `cargo xtask peers`")
}

/// S-033, S-036 to S-039, S-041, S-055: the whole contract, each case on a table of its own.
#[tokio::test]
#[ignore = "needs peers"]
async fn the_store_keeps_its_contract_on_another_server() {
    let mut kept = 0;
    for case in conformance::ALL {
        let result = case.run(&Table::at(&endpoint()).segments(2)).await;
        assert_kept(case.name(), &result);
        kept += usize::from(result == Ok(Verdict::Passed));
    }
    assert_eq!(kept, conformance::ALL.len());
}

/// The options of a new table are taken by another server, recovery to a point in time among them.
#[tokio::test]
#[ignore = "needs peers"]
async fn a_table_is_made_with_all_options_on_another_server() {
    let table = Table::at(&endpoint());
    let options = NewTable::on_demand().tag("team", "billing").point_in_time_recovery(true);
    table.builder().create_table(options).build().unwrap().setup().await.unwrap();
    let backups = table.client().describe_continuous_backups().table_name(&table.name).send().await.unwrap();
    let history = backups.continuous_backups_description.unwrap().point_in_time_recovery_description.unwrap();
    let status = history.point_in_time_recovery_status.unwrap();
    assert_eq!(status.as_str(), "ENABLED");
}
