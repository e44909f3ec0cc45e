//! Any bytes, with the digest as it is and with a right one: no panic, one outcome in all ways, and what prost reads.
#![no_main]

#[path = "../../tests/support/judge.rs"]
mod judge;
#[path = "../../tests/support/proto.rs"]
mod proto;

use bytes::Bytes;
use judge::plain;
use kinesis_core::{HashKey, HashKeyRange};
use kinesis_kpl::{
    Aggregate, Checksum, Deaggregated, Deaggregator, RangeFilter, Reason, Strictness, deaggregate, unnest,
};
use libfuzzer_sys::fuzz_target;
use md5::Digest as _;
use prost::Message as _;
use proto::AggregatedRecord;

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(framed) = data.strip_prefix(&kinesis_kpl::MAGIC)
        && let Some(message) = framed.len().checked_sub(16).map(|len| &framed[..len])
    {
        let digest: [u8; 16] = md5::Md5::digest(message).into();
        assert!(digest == kinesis_kpl::md5::digest(message));
        check(&[&kinesis_kpl::MAGIC, message, &digest].concat());
        compare(message, &digest);
    }
});

fn check(bytes: &[u8]) {
    let view = Aggregate::parse(bytes);
    let bytes = Bytes::copy_from_slice(bytes);
    let lenient = deaggregate(bytes.clone());
    let strict = Deaggregator::new().strictness(Strictness::Strict).deaggregate(bytes.clone());
    let mut many = Deaggregator::new().deaggregate_many(vec![bytes.clone(); 3]);
    assert!(lenient.reason() == many.remove(2).expect("lenient").reason());
    match view {
        Err(reason) => {
            let Deaggregated::Raw { reason: same, data, .. } = lenient else { panic!("split") };
            assert!(same == reason && data == bytes);
            assert!(strict.err().map(|error| error.reason()) == (!reason.is_plain()).then_some(reason));
        }
        Ok(view) => {
            let Ok(Deaggregated::Records(mut aggregate)) = strict else { panic!("not split") };
            let records = plain(&view);
            assert!(plain(&aggregate) == records);
            let owned: Vec<_> = aggregate.clone().into_records().collect();
            assert!(owned.len() == records.len());
            for (record, expected) in owned.iter().zip(&records) {
                assert!(
                    record.data[..] == expected.data
                        && record.partition_key.as_str() == expected.partition_key
                );
            }
            assert!(unnest(aggregate.clone(), 0).len() == records.len());
            assert!(unnest(aggregate.clone(), 3).iter().all(|nested| nested.path.len() <= 4));
            let range = HashKeyRange::new(HashKey::MIN, HashKey::new(1 << 127)).expect("a range");
            let report = aggregate.retain_in_range(RangeFilter::PerRecord, range);
            assert!(report.kept == aggregate.iter().count() && report.kept + report.dropped == records.len());
            let report = aggregate.retain_in_range(RangeFilter::KclCompatible, range);
            assert!(report.dropped == 0, "nothing is left outside");
        }
    }
}

fn compare(message: &[u8], digest: &[u8]) {
    let bytes = [&kinesis_kpl::MAGIC, message, digest].concat();
    let Ok(theirs) = AggregatedRecord::decode(message) else { return };
    match (Aggregate::parse_with(&bytes[..], Checksum::Skip), theirs.user_records()) {
        (Ok(ours), Some(expected)) => assert!(plain(&ours) == expected),
        (Err(Reason::MissingField | Reason::IndexOutOfRange), None) => {}
        (Err(Reason::TooShort), _) => assert!(message.is_empty()),
        (ours, expected) => panic!("ours {:?}, prost {:?}", ours.err(), expected.is_some()),
    }
}
