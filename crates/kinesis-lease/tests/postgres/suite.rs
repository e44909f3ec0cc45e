//! The conformance suite of `kinesis-core` on the PostgreSQL store.

/// S-033, S-036 to S-039, S-041, S-055, S-061, S-062: the contract on a server.
mod direct {
    use crate::table::Table;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        #[ignore = "needs postgres"]
        Table::new(), with foreign writer
    }
}

/// F-46: the same through pgbouncer in transaction mode with two server connections.
mod pooled {
    use crate::table::Table;

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        #[ignore = "needs postgres"]
        Table::pooled().await, with foreign writer
    }
}
