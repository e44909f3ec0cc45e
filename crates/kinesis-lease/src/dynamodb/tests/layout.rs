use super::*;

const ARN: &str = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";

fn application(name: &str) -> ApplicationName {
    ApplicationName::new(name).unwrap()
}

fn key(name: &str, stream: &str, shard: &str) -> LeaseKey {
    LeaseKey::new(application(name), StreamRef::new(stream).unwrap(), ShardId::new(shard).unwrap())
}

fn keys(layout: TableLayout) -> Keys {
    Keys { application: application("billing"), layout }
}

fn multi() -> TableLayout {
    let named = |name: &str, id: &str| (StreamRef::new(name).unwrap(), id.parse().unwrap());
    TableLayout::kcl_multi_stream([named("orders", "12:orders:1700"), named("clicks", "12:clicks:1800")])
}

fn single() -> TableLayout {
    TableLayout::kcl_single_stream(StreamRef::new("orders").unwrap())
}

fn problem(error: &StoreError) -> String {
    assert!(matches!(error, StoreError::Misconfigured { .. }), "{error}");
    error.to_string()
}

#[test]
fn native_keys_have_application_stream_and_shard() {
    let keys = keys(TableLayout::Native);
    let plain = key("billing", "orders", "shardId-000000000001");
    assert_eq!(keys.render(&plain).unwrap(), "billing|orders|shardId-000000000001");
    for odd in [plain, key("a|b%7C", ARN, "sh|ard"), key("%25", "orders", "s%7C")] {
        let request = ScanRequest::new(odd.application().clone());
        assert_eq!(keys.parse(&keys.render(&odd).unwrap(), &request), Some(odd));
    }
}

#[test]
fn native_scans_ask_for_the_keys_of_one_application() {
    let keys = keys(TableLayout::Native);
    let request = ScanRequest::new(application("a|b"));
    assert_eq!(keys.filter(&request).unwrap(), Filter::KeyPrefix("a%7Cb|".to_owned()));
    let request = request.stream(StreamRef::new("orders").unwrap());
    assert_eq!(keys.filter(&request).unwrap(), Filter::KeyPrefix("a%7Cb|orders|".to_owned()));
    assert_eq!(keys.parse("a%7Cb|clicks|s", &request), None, "another stream");
    assert_eq!(keys.parse("a|orders|s", &request), None, "another application");
}

/// F-43: a key without room for the stream serves one stream, and the refusal names both.
#[test]
fn a_second_stream_is_refused_with_both_names() {
    let keys = keys(single());
    assert_eq!(keys.render(&key("billing", "orders", "shardId-1")).unwrap(), "shardId-1");
    assert_eq!(
        keys.render(&key("billing", ARN, "shardId-1")).unwrap(),
        "shardId-1",
        "the same stream by ARN"
    );
    let text = problem(&keys.render(&key("billing", "clicks", "shardId-1")).unwrap_err());
    assert!(text.contains("the stream orders") && text.contains("those of clicks"), "{text}");
    let request = ScanRequest::new(application("billing")).stream(StreamRef::new("clicks").unwrap());
    assert_eq!(problem(&keys.filter(&request).unwrap_err()), text);
    let text = problem(&keys.render(&key("other", "orders", "shardId-1")).unwrap_err());
    assert!(text.contains("application billing, not to other"), "{text}");
    let elsewhere = StreamRef::new("arn:aws:kinesis:us-east-1:123456789012:stream/orders").unwrap();
    assert!(same_stream(&StreamRef::new(ARN).unwrap(), &elsewhere).is_err(), "another region");
}

/// S-221: one table has the leases of several streams, each named as the KCL names it.
#[test]
fn multi_stream_keys_are_those_of_the_kcl() {
    let keys = keys(multi());
    let orders = key("billing", "orders", "shardId-000000000003");
    assert_eq!(keys.render(&orders).unwrap(), "12:orders:1700:shardId-000000000003");
    let request = ScanRequest::new(application("billing"));
    assert_eq!(keys.filter(&request).unwrap(), Filter::All);
    assert_eq!(keys.parse("12:orders:1700:shardId-000000000003", &request), Some(orders));
    assert_eq!(keys.parse("12:orders:1699:shardId-000000000003", &request), None, "a stream made again");
    assert_eq!(keys.parse("worker-1", &request), None);
    let request = request.stream(StreamRef::new("clicks").unwrap());
    assert_eq!(keys.filter(&request).unwrap(), Filter::StreamName("12:clicks:1800".to_owned()));
    assert_eq!(keys.parse("12:orders:1700:shardId-000000000003", &request), None);
    let text = problem(&keys.render(&key("billing", "views", "shardId-1")).unwrap_err());
    assert!(text.contains("does not list the stream views, only clicks, orders"), "{text}");
}

#[test]
fn identifiers_are_account_name_and_epoch() {
    let identifier: StreamIdentifier = "123456789012:orders:1700000000".parse().unwrap();
    assert_eq!(
        (identifier.account(), identifier.name(), identifier.epoch()),
        ("123456789012", "orders", 1_700_000_000)
    );
    assert_eq!(identifier.to_string(), "123456789012:orders:1700000000");
    for bad in ["", "1:orders", "x:orders:1", "1::1", "1:orders:0", "1:orders:-1", "1:orders:1:s"] {
        assert!(bad.parse::<StreamIdentifier>().is_err(), "{bad:?}");
    }
}

#[test]
fn rows_of_another_layout_are_told() {
    let rows = ["billing|orders|shardId-1", "shardId-000000000001", "12:orders:1700:shardId-000000000001"];
    for (own, layout) in [TableLayout::Native, single(), multi()].into_iter().enumerate() {
        let keys = keys(layout);
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(keys.check_layout(row).is_ok(), index == own, "{row} in {}", keys.layout.name());
        }
        keys.check_layout("something else").unwrap();
    }
    let text = problem(&keys(TableLayout::Native).check_layout(rows[1]).unwrap_err());
    assert!(
        text.contains("rows in the KCL's single-stream layout, but the store is set to native"),
        "{text}"
    );
}
