//! The conformance suite of `kinesis-core` on the stores of this crate.

use std::sync::Arc;

use async_trait::async_trait;
use kinesis_core::lease::conformance::StoreFactory;
use kinesis_lease::{LeaseStore, MemoryStore};

/// S-036 to S-039, S-041, S-055, S-061, S-062: the contract on the memory store.
mod memory {
    use super::*;

    #[derive(Debug, Default)]
    struct Memory(MemoryStore);

    #[async_trait]
    impl StoreFactory for Memory {
        async fn client(&self) -> Arc<dyn LeaseStore> {
            Arc::new(self.0.clone())
        }
    }

    kinesis_core::lease_store_conformance! {
        #[tokio::test]
        Memory::default()
    }
}
