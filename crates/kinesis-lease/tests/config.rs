//! The settings: defaults, checks, and a configuration file.

use std::time::Duration;

use kinesis_lease::{Balance, Coordination, LeaseConfig, ScanCost};

fn refused(config: &LeaseConfig) -> &'static str {
    config.validate().expect_err("it should be refused").field()
}

/// S-003, S-026, S-027, S-029: the documented defaults.
#[test]
fn defaults_are_the_documented_ones() {
    let config = LeaseConfig::default();
    assert_eq!(config.heartbeat_interval, Duration::from_secs(3));
    assert_eq!(config.expiry, Duration::from_secs(10));
    assert_eq!(config.look_interval, Duration::from_secs(1));
    assert_eq!(config.full_look_interval, None);
    assert_eq!(config.all_rows_interval(ScanCost::PerScan), Duration::from_secs(1));
    assert_eq!(config.all_rows_interval(ScanCost::PerRow), Duration::from_secs(20));
    assert_eq!(config.discovery_interval, Duration::from_secs(60));
    assert_eq!(config.hand_over_timeout, Duration::from_secs(30));
    assert_eq!(config.call_timeout(), Duration::from_secs(2));
    assert_eq!(config.belief(), Duration::from_secs(9));
    assert_eq!(config.max_leases, None);
    assert_eq!((config.coordination, config.max_leases_to_steal), (None, 1));
    assert_eq!(config.steal_interval(), Duration::from_secs(20));
    assert_eq!((config.regime_interval, config.publish_worker_metrics), (Duration::from_secs(30), false));
    assert!(!config.worker_heartbeat);
    assert_eq!((config.balance, config.load_window), (Balance::Count, Duration::from_secs(120)));
    assert_eq!(config.validate(), Ok(()));
}

/// Loads are measured with heartbeats, and workers of the KCL do not know of them.
#[test]
fn sharing_by_load_needs_a_window_and_our_own_way_to_share() {
    let config = || LeaseConfig::default().balance(Balance::Load);
    assert_eq!(config().validate(), Ok(()));
    let short = Duration::from_millis(5_999);
    assert_eq!(refused(&config().load_window(short)), "load_window");
    assert_eq!(LeaseConfig::default().load_window(short).validate(), Ok(()));
    assert_eq!(refused(&LeaseConfig::default().load_window(Duration::ZERO)), "load_window");
    let beside_kcl = config().coordination(Coordination::KclCompatible);
    let error = beside_kcl.validate().unwrap_err();
    assert_eq!(error.field(), "balance");
    assert!(error.to_string().contains("coordination = kcl_compatible"), "{error}");
    assert_eq!(config().coordination(Coordination::Native).validate(), Ok(()));
}

/// All rows are never read more often than a worker looks.
#[test]
fn a_full_look_is_not_shorter_than_a_look() {
    let config = |look, full| {
        let config = LeaseConfig::default().look_interval(Duration::from_secs(look));
        config.full_look_interval(Duration::from_secs(full))
    };
    assert_eq!(refused(&config(5, 4)), "full_look_interval");
    assert_eq!(config(5, 5).validate(), Ok(()));
    for cost in [ScanCost::PerScan, ScanCost::PerRow] {
        assert_eq!(config(5, 30).all_rows_interval(cost), Duration::from_secs(30));
    }
    let slow = LeaseConfig::default().look_interval(Duration::from_secs(25));
    assert_eq!(slow.all_rows_interval(ScanCost::PerRow), Duration::from_secs(25));
}

/// S-028: a heartbeat interval that is not smaller than the expiry is refused.
#[test]
fn a_heartbeat_interval_not_smaller_than_the_expiry_is_refused() {
    let config = LeaseConfig::default();
    for interval in [10, 11, 100] {
        let error = config.clone().heartbeat_interval(Duration::from_secs(interval)).validate().unwrap_err();
        assert_eq!(error.to_string(), "invalid setting `heartbeat_interval`: must be shorter than expiry");
    }
}

/// S-028: nor may a renewal that begins on time end after the holder has given up.
#[test]
fn a_renewal_must_be_able_to_end_in_time() {
    let config = LeaseConfig::default();
    assert_eq!(
        refused(&config.clone().heartbeat_interval(Duration::from_millis(7_001))),
        "heartbeat_interval"
    );
    assert_eq!(refused(&config.clone().store_timeout(Duration::from_millis(6_001))), "store_timeout");
    assert_eq!(config.store_timeout(Duration::from_millis(6_000)).validate(), Ok(()));
}

#[test]
fn zero_durations_and_limits_are_refused_by_name() {
    let zero = Duration::ZERO;
    let config = LeaseConfig::default;
    assert_eq!(refused(&config().heartbeat_interval(zero)), "heartbeat_interval");
    assert_eq!(refused(&config().expiry(zero)), "expiry");
    assert_eq!(refused(&config().look_interval(zero)), "look_interval");
    assert_eq!(refused(&config().full_look_interval(zero)), "full_look_interval");
    assert_eq!(refused(&config().discovery_interval(zero)), "discovery_interval");
    assert_eq!(refused(&config().hand_over_timeout(zero)), "hand_over_timeout");
    assert_eq!(refused(&config().store_timeout(zero)), "store_timeout");
    assert_eq!(refused(&config().max_leases(0)), "max_leases");
    assert_eq!(refused(&config().max_leases_to_steal(0)), "max_leases_to_steal");
    assert_eq!(refused(&config().regime_interval(zero)), "regime_interval");
}

#[cfg(feature = "serde")]
mod file {
    use super::*;

    /// The snippet of the README is a valid configuration, and says what it seems to say.
    #[test]
    fn the_snippet_of_the_readme_is_valid() {
        let readme = include_str!("../README.md");
        let snippet = readme.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
        let config: LeaseConfig = serde_json::from_str(snippet).unwrap();
        let expected = LeaseConfig::default()
            .heartbeat_interval(Duration::from_millis(500))
            .expiry(Duration::from_secs(2))
            .max_leases(16);
        assert_eq!(config, expected);
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn unknown_fields_and_bad_durations_are_refused() {
        for text in [r#"{"expirey": "2s"}"#, r#"{"expiry": "-2s"}"#, r#"{"expiry": 2}"#] {
            assert!(serde_json::from_str::<LeaseConfig>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_configuration_survives_a_file() {
        let config = LeaseConfig::default()
            .store_timeout(Duration::from_millis(250))
            .coordination(kinesis_lease::Coordination::KclCompatible)
            .balance(kinesis_lease::Balance::Load);
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains(r#""coordination":"kcl_compatible""#), "{text}");
        assert!(text.contains(r#""balance":"load","load_window":"2m""#), "{text}");
        assert_eq!(serde_json::from_str::<LeaseConfig>(&text).unwrap(), config);
    }
}

/// S-117: times that no sum could hold are refused by name, without a panic.
#[test]
fn absurdly_long_times_are_refused() {
    let config = LeaseConfig::default;
    assert_eq!(refused(&config().expiry(Duration::MAX)), "expiry");
    assert_eq!(
        refused(&config().heartbeat_interval(Duration::MAX).expiry(Duration::MAX)),
        "heartbeat_interval"
    );
    assert_eq!(refused(&config().look_interval(Duration::MAX)), "look_interval");
    assert_eq!(refused(&config().discovery_interval(Duration::MAX)), "discovery_interval");
    assert_eq!(refused(&config().hand_over_timeout(Duration::MAX)), "hand_over_timeout");
    assert_eq!(refused(&config().store_timeout(Duration::MAX)), "store_timeout");
}

/// The KCL takes each row for a lease.
#[test]
fn a_worker_heartbeat_is_native() {
    let config = || LeaseConfig::default().worker_heartbeat(true);
    assert_eq!(config().validate(), Ok(()));
    assert_eq!(config().coordination(Coordination::Native).validate(), Ok(()));
    let shared = config().coordination(Coordination::KclCompatible);
    assert_eq!(refused(&shared), "worker_heartbeat");
    assert!(shared.validate().unwrap_err().to_string().contains("coordination = kcl_compatible"));
}

/// Metrics that come too late are those of a worker that is gone.
#[test]
fn metrics_are_published_often_enough() {
    let config = LeaseConfig::default().publish_worker_metrics(true);
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(refused(&config.clone().regime_interval(Duration::from_secs(31))), "regime_interval");
    let config = config.publish_worker_metrics(false);
    assert_eq!(config.regime_interval(Duration::from_secs(31)).validate(), Ok(()));
}
