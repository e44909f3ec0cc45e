//! The settings.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::OpenShard;
use kinesis_efo::{EfoConfig, EfoSource, EfoStream};

/// S-092, S-098: every setting has the default that its documentation states.
#[test]
fn defaults_are_as_documented() {
    let EfoConfig {
        consumer,
        tags,
        activation_timeout,
        parallel_registrations,
        control_timeout,
        control_backoff_initial,
        control_backoff_max,
        subscribe_timeout,
        silence_timeout,
        stall_tolerance,
        max_resubscribe_interval,
        max_attempts,
        denied_attempts,
        degraded_after,
        latest_margin,
        shards_per_client,
        ..
    } = EfoConfig::default();
    assert_eq!((consumer.as_str(), tags.len()), ("", 0));
    assert_eq!((activation_timeout, parallel_registrations), (60 * SECOND, 5));
    assert_eq!((control_timeout, subscribe_timeout), (10 * SECOND, 10 * SECOND));
    assert_eq!((control_backoff_initial, control_backoff_max), (500 * MS, 5 * SECOND));
    assert_eq!((silence_timeout, stall_tolerance), (35 * SECOND, SECOND));
    assert_eq!((max_resubscribe_interval, degraded_after), (30 * SECOND, 10 * SECOND));
    assert_eq!((max_attempts, denied_attempts), (None, 5));
    assert_eq!((latest_margin, shards_per_client), (SECOND, 50));
}

/// S-117, S-098, R-13: settings out of their range are refused with the name of the field, before any call.
#[tokio::test(start_paused = true)]
async fn settings_out_of_range_are_refused_by_name() {
    let day = Duration::from_secs(86_400);
    let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing:1767225600";
    for fine in [
        config(),
        EfoConfig::new("a.B-c_9"),
        EfoConfig::new("x".repeat(128)),
        EfoConfig::new(arn),
        config().max_resubscribe_interval(SECOND),
        config().max_resubscribe_interval(day),
        config().silence_timeout(300 * SECOND),
        config().parallel_registrations(1),
        config().max_attempts(Some(1)),
    ] {
        assert_eq!(fine.validate(), Ok(()));
    }
    let many: BTreeMap<_, _> = (0..51).map(|n| (n.to_string(), String::new())).collect();
    let refused = [
        ("consumer", EfoConfig::default()),
        ("consumer", EfoConfig::new("with space")),
        ("consumer", EfoConfig::new("x".repeat(129))),
        ("consumer", EfoConfig::new("arn:aws:kinesis:us-east-1:123456789012:stream/orders")),
        ("tags", config().tags(many)),
        ("activation_timeout", config().activation_timeout(Duration::ZERO)),
        ("activation_timeout", config().activation_timeout(day + MS)),
        ("control_timeout", config().control_timeout(Duration::ZERO)),
        ("control_backoff_initial", config().control_backoff_initial(Duration::ZERO)),
        ("control_backoff_max", config().control_backoff_max(499 * MS)),
        ("control_backoff_max", config().control_backoff_max(day + MS)),
        ("subscribe_timeout", config().subscribe_timeout(Duration::ZERO)),
        ("subscribe_timeout", config().subscribe_timeout(301 * SECOND)),
        ("silence_timeout", config().silence_timeout(Duration::ZERO)),
        ("silence_timeout", config().silence_timeout(301 * SECOND)),
        ("stall_tolerance", config().stall_tolerance(Duration::ZERO)),
        ("max_resubscribe_interval", config().max_resubscribe_interval(999 * MS)),
        ("max_resubscribe_interval", config().max_resubscribe_interval(day + MS)),
        ("parallel_registrations", config().parallel_registrations(0)),
        ("parallel_registrations", config().parallel_registrations(6)),
        ("max_attempts", config().max_attempts(Some(0))),
        ("denied_attempts", config().denied_attempts(0)),
        ("degraded_after", config().degraded_after(Duration::MAX)),
        ("latest_margin", config().latest_margin(Duration::MAX)),
        ("shards_per_client", config().shards_per_client(0)),
    ];
    let kinesis = service(1);
    for (field, config) in refused {
        let error = EfoSource::new(kinesis.client(), config).unwrap_err();
        assert_eq!(error.field(), field);
        assert!(error.to_string().contains(&format!("`{field}`")), "{error}");
    }
    assert!(kinesis.calls_log().is_empty());
}

/// S-206: debug output shows neither credentials nor payloads.
#[tokio::test(start_paused = true)]
async fn debug_output_shows_no_secrets() {
    let kinesis = service(1);
    kinesis.put(STREAM, "secret-key", "secret-payload").unwrap();
    let source = source(kinesis.client(), config());
    let mut stream = EfoStream::new(&source, OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let event = futures_util::StreamExt::next(&mut stream).await.unwrap().unwrap();
    let text = format!("{source:?} {stream:?} {event:?}");
    assert!(!text.contains("secret"), "{text}");
}

/// Settings come from a file; mistakes are named.
#[cfg(feature = "serde")]
#[test]
fn settings_come_from_a_file() {
    let text = r#"{ "consumer": "billing", "silence_timeout": "20s", "tags": { "team": "orders" } }"#;
    let read: EfoConfig = serde_json::from_str(text).unwrap();
    let tags = BTreeMap::from([("team".to_owned(), "orders".to_owned())]);
    assert_eq!(read, EfoConfig::new("billing").silence_timeout(20 * SECOND).tags(tags));
    let again: EfoConfig = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(again, read);
    let error = serde_json::from_str::<EfoConfig>(r#"{ "silence": "1s" }"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `silence`"), "{error}");
}
