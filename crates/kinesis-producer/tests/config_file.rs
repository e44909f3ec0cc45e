//! The configuration as a file.

use std::time::Duration;

use kinesis_producer::ProducerConfig;

/// The JSON of the README.
fn example() -> &'static str {
    let readme = include_str!("../README.md");
    let (_, rest) = readme.split_once("```json\n").expect("the README has a configuration");
    rest.split_once("```").expect("it ends").0
}

/// S-239: the README's configuration is a valid one; what it does not name has its default.
#[test]
fn the_readmes_configuration_is_read() {
    let config: ProducerConfig = serde_json::from_str(example()).unwrap();
    let mut expected = ProducerConfig::default();
    expected.max_retries = 5;
    expected.batch_records = 250;
    expected.buffer_bytes = 16 * 1024 * 1024;
    expected.linger = Duration::from_millis(20);
    expected.delivery_timeout = Duration::from_secs(300);
    expected.aggregation = kinesis_producer::Aggregation::ByShard;
    expected.aggregate_bytes = 102_400;
    assert_eq!(config, expected);
    assert_eq!(config.validate(), Ok(()));
}

#[test]
fn a_written_configuration_is_read_back() {
    let text = serde_json::to_string(&ProducerConfig::default()).unwrap();
    assert!(text.contains(r#""linger":"100ms""#), "{text}");
    assert_eq!(serde_json::from_str::<ProducerConfig>(&text).unwrap(), ProducerConfig::default());
}

#[test]
fn an_unknown_or_malformed_setting_is_named() {
    let error = serde_json::from_str::<ProducerConfig>(r#"{ "batch_recrods": 5 }"#).unwrap_err();
    assert!(error.to_string().contains("batch_recrods"), "{error}");
    let negative = r#"{ "linger": "-5s" }"#;
    assert!(serde_json::from_str::<ProducerConfig>(negative).is_err());
}

/// S-140: the settings of compression, as the README names them.
#[cfg(feature = "zstd")]
#[test]
fn compression_is_set_in_the_file_too() {
    use kinesis_producer::compress::{Compression, Level};
    let text = r#"{ "compression": "zstd", "compression_level": "fastest", "compress_each": true }"#;
    let config: ProducerConfig = serde_json::from_str(text).unwrap();
    assert_eq!((config.compression, config.compression_level), (Some(Compression::Zstd), Level::Fastest));
    assert!(config.compress_each);
    assert_eq!(config.validate(), Ok(()));
}
