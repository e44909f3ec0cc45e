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
