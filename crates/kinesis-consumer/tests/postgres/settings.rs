//! What transactional checkpoints do not go together with.

use std::sync::Arc;

use kinesis_consumer::core::lease::LeaseStore;
use kinesis_consumer::core::{BoxError, Record};
use kinesis_consumer::lease::{LeaseStoreSource, MemoryStore, PostgresStore};
use kinesis_consumer::{CheckpointVerb, Checkpoints, ConfigError, Consumer, ConsumerBuilder, RecordBatch};
use kinesis_testkit::TestKinesis;

fn consumer() -> ConsumerBuilder {
    Consumer::builder(TestKinesis::new().client(), "billing", "orders")
        .checkpoints(Checkpoints::Transactional)
}

fn store() -> PostgresStore {
    PostgresStore::connect("postgres://nobody@127.0.0.1:1/none").unwrap()
}

async fn batches(_: RecordBatch) -> Result<(), BoxError> {
    Ok(())
}

/// Whether the error names both settings.
fn assert_names(error: &ConfigError, other: &str) {
    assert_eq!(error.field(), "checkpoints");
    let text = error.to_string();
    assert!(text.contains("transactional") && text.contains(other), "{text}");
}

/// S-117: a combination that cannot work is refused before anything starts, with the names of both settings.
#[tokio::test]
async fn combinations_that_cannot_work_are_refused_by_both_names() {
    let build = |source: LeaseStoreSource| consumer().lease_store(source).for_each_batch(batches).build();
    assert!(build(store().into()).is_ok());
    assert!(build(Arc::new(store()).into()).is_ok());

    let erased: Arc<dyn LeaseStore> = Arc::new(store());
    let factory = LeaseStoreSource::factory(|| std::future::ready(Ok(store())));
    for other in [MemoryStore::new().into(), erased.into(), factory] {
        assert_names(&build(other).unwrap_err(), "lease_store");
    }
    let by_hand = consumer().checkpoint_verb(CheckpointVerb::Done).lease_store(store());
    assert_names(&by_hand.for_each_batch(batches).build().unwrap_err(), "checkpoint_verb");
    let records = |_: Record| std::future::ready(Ok::<_, BoxError>(()));
    assert_names(&consumer().lease_store(store()).for_each(records).build().unwrap_err(), "for_each");
}
