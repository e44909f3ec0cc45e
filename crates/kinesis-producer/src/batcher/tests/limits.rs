//! What fits into a call.

use super::*;

fn config(batch_records: usize, batch_bytes: usize, max_record_bytes: usize) -> ProducerConfig {
    ProducerConfig {
        batch_records,
        batch_bytes,
        max_record_bytes,
        in_flight: 16,
        ..ProducerConfig::default()
    }
}

/// Puts records of these wire sizes at once, each with a key of its own, and returns the calls they make.
fn calls_for(config: &ProducerConfig, sizes: &[usize]) -> Vec<(usize, usize)> {
    let mut bench = Bench::new(config);
    let batch = sizes.iter().enumerate().map(|(index, size)| {
        let key = format!("{index:06}");
        Numbered(index as u32, OutboundRecord::new(key.as_str(), vec![0; size - key.len()]))
    });
    let batch: Vec<_> = batch.collect();
    bench.step(Event::AdmittedBatch(batch));
    let covered: Vec<u32> = bench.started.iter().flat_map(|call| bench.records_of(*call)).collect();
    assert_eq!(covered, (0..sizes.len() as u32).collect::<Vec<_>>(), "in order and complete");
    bench.calls()
}

/// S-154, F-34: 500 records are one call, 501 are two.
#[test]
fn a_call_has_at_most_so_many_records() {
    let config = ProducerConfig::default();
    assert_eq!(calls_for(&config, &[10; 500]), [(500, 5_000)]);
    assert_eq!(calls_for(&config, &[10; 501]), [(500, 5_000), (1, 10)]);
}

/// S-155, F-34: payloads and keys of a call reach the limit to the byte and never exceed it.
#[test]
fn a_call_reaches_its_limit_to_the_byte() {
    let config = config(500, 5 * MIB, MIB);
    assert_eq!(calls_for(&config, &[MIB; 5]), [(5, 5 * MIB)]);
    assert_eq!(calls_for(&config, &[MIB, MIB, MIB, MIB, MIB - 9, 10]), [(5, 5 * MIB - 9), (1, 10)]);
    assert_eq!(calls_for(&config, &[MIB, MIB, MIB, MIB, MIB - 10, 10]), [(6, 5 * MIB)]);
}

/// F-34: the key counts in bytes, not in characters.
#[test]
fn a_key_counts_in_bytes() {
    let config = ProducerConfig { linger: Duration::ZERO, ..config(500, 2_000, 2_000) };
    let mut bench = Bench::new(&config);
    let key = "ü".repeat(256);
    bench.put(&key, 100);
    assert_eq!(bench.calls(), [(1, 612)]);
}

/// F-45: a record that the stream may refuse takes no other record with it.
#[test]
fn a_record_above_one_mebibyte_goes_alone() {
    let config = config(500, 10 * MIB, 10 * MIB);
    let sizes = [100, MIB, MIB + 1, 100, 100, 10 * MIB, 100];
    let calls = [(2, MIB + 100), (1, MIB + 1), (2, 200), (1, 10 * MIB), (1, 100)];
    assert_eq!(calls_for(&config, &sizes), calls);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// S-155, F-34: whatever the sizes, no call exceeds a limit, none could have taken the next record too, and the
    /// order is kept.
    #[test]
    fn calls_are_as_full_as_the_limits_allow(
        sizes in proptest::collection::vec(6_usize..=1_000, 1..80),
        batch_records in 1_usize..20,
        batch_bytes in 1_000_usize..4_000,
    ) {
        let config = ProducerConfig { in_flight: 200, ..config(batch_records, batch_bytes, 1_000) };
        let calls = calls_for(&config, &sizes);
        let mut next = 0;
        for (records, bytes) in calls {
            proptest::prop_assert!(records <= batch_records && bytes <= batch_bytes);
            proptest::prop_assert_eq!(sizes[next..next + records].iter().sum::<usize>(), bytes);
            next += records;
            if let Some(more) = sizes.get(next) {
                proptest::prop_assert!(records == batch_records || bytes + more > batch_bytes);
            }
        }
    }
}
