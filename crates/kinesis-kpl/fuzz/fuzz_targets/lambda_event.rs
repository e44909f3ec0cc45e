//! Any JSON as a Lambda event: no panic, and as many items as records.
#![no_main]

use kinesis_kpl::lambda::KinesisEvent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = serde_json::from_slice::<KinesisEvent>(data) else { return };
    let records = event.records.len();
    let items = event.clone().into_batch();
    assert!(items.len() == records);
    let all: usize = items.into_iter().map(|item| item.into_records().count()).sum();
    let mut tried = 0;
    let response = event.for_each(|_| {
        tried += 1;
        Ok::<(), ()>(())
    });
    assert!(tried == all && response.batch_item_failures.is_empty());
});
