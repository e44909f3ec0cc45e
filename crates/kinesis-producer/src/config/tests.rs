//! Defaults and ranges.

use super::*;

fn field_of(change: impl FnOnce(&mut ProducerConfig)) -> Option<&'static str> {
    let mut config = ProducerConfig::default();
    change(&mut config);
    config.validate().err().map(|error| error.field())
}

/// S-126, S-133, S-153, S-154, S-155, S-156, S-157, C-11, C-17: the documented defaults, all of them settings.
#[test]
fn defaults_are_the_documented_ones_and_valid() {
    let config = ProducerConfig::default();
    assert_eq!(config.max_retries, 3);
    assert_eq!(config.batch_records, 500);
    assert_eq!(config.batch_bytes, 5_242_880);
    assert_eq!(config.buffer_records, 500);
    assert_eq!(config.buffer_bytes, 67_108_864);
    assert_eq!(config.linger, Duration::from_millis(100));
    assert_eq!(config.max_record_bytes, 1_048_576);
    assert_eq!(config.in_flight, 4);
    assert_eq!(config.attempt_timeout, Duration::from_secs(30));
    assert_eq!(config.delivery_timeout, Duration::from_secs(120));
    assert_eq!(config.retry_initial, Duration::from_millis(200));
    assert_eq!(config.retry_max, Duration::from_secs(10));
    assert_eq!((config.aggregation, config.outer_key), (Aggregation::Off, OuterKey::First));
    assert_eq!((config.aggregate_bytes, config.aggregate_records), (51_200, 4_294_967_295));
    assert_eq!((config.misplaced, config.partition_key_safety), (Misplaced::SendAgain, false));
    assert_eq!(config.shard_map_interval, Duration::from_secs(1));
    assert_eq!(config.shard_map_retry_max, Duration::from_secs(30));
    assert_eq!(config.shard_map_timeout, Duration::from_secs(5));
    #[cfg(feature = "compress")]
    {
        assert_eq!((config.compression, config.compression_level), (None, Level::Default));
        assert_eq!((config.compress_each, config.max_input_bytes), (false, 10 * MIB));
    }
    assert_eq!(config.validate(), Ok(()));
}

/// S-154, S-155, C-11: both ends of every range, and one step beyond, with the setting's name.
#[test]
fn settings_out_of_range_are_named() {
    for good in [1, 500] {
        assert_eq!(field_of(|c| c.batch_records = good), None);
    }
    for bad in [0, 501] {
        assert_eq!(field_of(|c| c.batch_records = bad), Some("batch_records"));
    }
    for good in [MIB, 10 * MIB] {
        assert_eq!(field_of(|c| c.batch_bytes = good), None);
    }
    for bad in [0, MIB - 1, 10 * MIB + 1] {
        assert_eq!(field_of(|c| c.batch_bytes = bad), Some("batch_bytes"));
    }
    for bad in [0, 10 * MIB + 1] {
        assert_eq!(field_of(|c| c.max_record_bytes = bad), Some("max_record_bytes"));
    }
    assert_eq!(field_of(|c| (c.max_record_bytes, c.batch_bytes) = (10 * MIB, 10 * MIB)), None);
    assert_eq!(field_of(|c| c.max_record_bytes = 6 * MIB), Some("batch_bytes"));
    assert_eq!(field_of(|c| c.buffer_records = 0), Some("buffer_records"));
    assert_eq!(field_of(|c| c.buffer_bytes = MIB + RECORD_OVERHEAD - 1), Some("buffer_bytes"));
    assert_eq!(field_of(|c| c.buffer_bytes = MIB + RECORD_OVERHEAD), None);
    for bad in [0, 257] {
        assert_eq!(field_of(|c| c.in_flight = bad), Some("in_flight"));
    }
}

#[test]
fn aggregates_fit_into_records() {
    let aggregating = |change: &dyn Fn(&mut ProducerConfig)| {
        field_of(|c| {
            c.aggregation = Aggregation::ByShard;
            change(c);
        })
    };
    for good in [64, MIB] {
        assert_eq!(aggregating(&|c| c.aggregate_bytes = good), None);
    }
    for bad in [0, 63, MIB + 1] {
        assert_eq!(aggregating(&|c| c.aggregate_bytes = bad), Some("aggregate_bytes"));
    }
    assert_eq!(field_of(|c| c.aggregate_bytes = 0), None, "without effect");
    assert_eq!(field_of(|c| c.aggregate_records = 0), Some("aggregate_records"));
}

#[cfg(feature = "gzip")]
#[test]
fn the_input_of_compression_has_a_range() {
    let compressing =
        |bytes| field_of(|c| (c.compression, c.max_input_bytes) = (Some(Compression::Gzip), bytes));
    for good in [MIB, 1024 * MIB] {
        assert_eq!(compressing(good), None);
    }
    for bad in [MIB - 1, 1024 * MIB + 1] {
        assert_eq!(compressing(bad), Some("max_input_bytes"));
    }
    assert_eq!(field_of(|c| c.max_input_bytes = 0), None, "without effect");
}

#[test]
fn durations_out_of_range_are_named() {
    let long = MAX_DURATION + Duration::from_nanos(1);
    assert_eq!(field_of(|c| c.linger = Duration::ZERO), None);
    assert_eq!(field_of(|c| c.linger = long), Some("linger"));
    for bad in [Duration::ZERO, long] {
        assert_eq!(field_of(|c| c.attempt_timeout = bad), Some("attempt_timeout"));
        assert_eq!(field_of(|c| c.delivery_timeout = bad), Some("delivery_timeout"));
        assert_eq!(field_of(|c| c.retry_initial = bad), Some("retry_initial"));
        assert_eq!(field_of(|c| c.retry_max = bad), Some("retry_max"));
        assert_eq!(field_of(|c| c.shard_map_interval = bad), Some("shard_map_interval"));
        assert_eq!(field_of(|c| c.shard_map_retry_max = bad), Some("shard_map_retry_max"));
        assert_eq!(field_of(|c| c.shard_map_timeout = bad), Some("shard_map_timeout"));
    }
    assert_eq!(field_of(|c| c.retry_initial = Duration::from_secs(11)), Some("retry_max"));
    assert_eq!(field_of(|c| c.shard_map_interval = Duration::from_secs(31)), Some("shard_map_retry_max"));
}

#[test]
fn an_error_says_which_setting_and_what_is_allowed() {
    let config = ProducerConfig { batch_records: 501, ..ProducerConfig::default() };
    let text = config.validate().unwrap_err().to_string();
    assert_eq!(text, "invalid setting `batch_records`: must be from 1 to 500, is 501");
}
