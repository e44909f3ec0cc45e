//! The conformance suite.

use crate::support::Table;

/// S-033, S-036 to S-039, S-041, S-055, S-061, S-062: the contract on the DynamoDB store.
mod one_scan {
    use super::Table;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        Table::new().await, with foreign writer
    }
}

/// The same with scans that read the table in three parts at once.
mod three_segments {
    use super::Table;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        Table::new().await.segments(3), with foreign writer
    }
}
