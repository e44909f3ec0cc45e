//! What the format costs in memory, counted by an allocator that keeps books.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "support/frame.rs"]
mod frame;

use allocation_counter::measure;
use bytes::Bytes;
use frame::frame;
use kinesis_kpl::{Aggregate, Aggregator, AggregatorConfig, RecordRef, deaggregate};

fn full(aggregator: &mut Aggregator) {
    for i in 0..480_usize {
        aggregator.try_push(RecordRef::new(["a", "b", "c", "d"][i % 4], &[i as u8; 90])).unwrap();
    }
}

fn aggregate() -> Bytes {
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    full(&mut aggregator);
    aggregator.finish().unwrap().into_data()
}

/// S-125: a declared length, however large, allocates nothing: 2 GiB, the largest number, and one byte too many, in
/// every place where a length can be.
#[test]
fn declared_lengths_allocate_nothing() {
    let lengths: [&[u8]; 4] = [
        &[0x80, 0x80, 0x80, 0x80, 0x08],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
        &[0x02],
    ];
    for length in lengths {
        let within = |outer: &[u8], key: u8| {
            let inner = [&[key], length, b"x"].concat();
            [outer, &[inner.len() as u8], &inner].concat()
        };
        let messages = [
            [&[0x0A], length, b"x"].concat(),
            [&[0x12], length, b"x"].concat(),
            [&[0x1A], length, b"x"].concat(),
            [&[0x7A], length, b"x"].concat(),
            within(&[0x1A], 0x1A),
            within(&[0x1A], 0x22),
            within(&[0x1A], 0x7A),
        ];
        for message in messages {
            let bytes = Bytes::from(frame(&message));
            let info = measure(|| {
                assert!(deaggregate(bytes.clone()).reason().is_some());
            });
            // The one small allocation is that of the shared handle to the input.
            assert!(info.bytes_max <= 64, "{} bytes for {message:02x?}", info.bytes_max);
        }
    }
}

/// S-125: an index that declares nothing but holds a lot stays in proportion to the bytes that are there.
#[test]
fn the_index_is_in_proportion_to_the_bytes() {
    let mib = 1 << 20;
    let table_entries = [0x0A, 0].repeat(mib / 2);
    let records: Vec<u8> = [&[0x0A, 0][..], &[0x1A, 4, 0x08, 0, 0x1A, 0].repeat(mib / 6)].concat();
    let unknown = [0x28, 0].repeat(mib / 2);
    let tags: Vec<u8> = [&[0x22, 2, 0x0A, 0].repeat(mib / 4)[..], &[0x08, 0, 0x1A, 0]].concat();
    let mut tagged = vec![0x0A, 0, 0x1A];
    prost::encoding::encode_varint(tags.len() as u64, &mut tagged);
    tagged.extend_from_slice(&tags);
    for (message, ceiling) in [(table_entries, 6), (records, 10), (unknown, 1), (tagged, 18)] {
        let bytes = frame(&message);
        let info = measure(|| {
            Aggregate::parse(&bytes[..]).unwrap();
        });
        assert!(info.bytes_max <= ceiling * mib as u64, "{} bytes", info.bytes_max);
    }
}

/// A deep nest of groups uses no memory.
#[test]
fn a_nesting_bomb_costs_nothing() {
    let bytes = frame(&[0x4B; 100_000]);
    let info = measure(|| {
        Aggregate::parse(&bytes[..]).unwrap_err();
    });
    assert_eq!(info.count_total, 0);
}

/// Iterating a view allocates nothing; parsing a handful for the index.
#[test]
fn a_view_allocates_only_its_index() {
    let bytes = aggregate();
    let mut view = None;
    let info = measure(|| view = Some(Aggregate::parse(&bytes[..]).unwrap()));
    assert!(info.count_total <= 8, "{} allocations", info.count_total);
    let view = view.unwrap();
    let info = measure(|| {
        let sum: usize = view.iter().map(|r| r.data().len() + r.partition_key().len() + r.tags().len()).sum();
        assert_eq!(sum, 480 * 91);
    });
    assert_eq!(info.count_total, 0);
}

/// Owned records allocate for the distinct keys, not for each record.
#[test]
fn owned_records_allocate_per_key_not_per_record() {
    let aggregate = Aggregate::parse(aggregate()).unwrap();
    let info = measure(|| assert_eq!(aggregate.into_records().count(), 480));
    assert!(info.count_total <= 12, "{} allocations for 480 records of 4 keys", info.count_total);
}

/// A warm aggregator allocates its result and nothing else.
#[test]
fn a_warm_aggregator_allocates_only_its_result() {
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    full(&mut aggregator);
    aggregator.finish().unwrap();
    let info = measure(|| full(&mut aggregator));
    assert_eq!(info.count_total, 0);
    // The aggregate and its partition key.
    let info = measure(|| drop(aggregator.finish()));
    assert!(info.count_total <= 2, "{} allocations", info.count_total);
}
