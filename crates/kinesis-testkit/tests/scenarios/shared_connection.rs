//! Unread streams on a connection that all calls share.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use kinesis_testkit::{Operation, TestClock, TestKinesis, scenarios};
use tokio::time::timeout;

use super::support::efo::{from_oldest, subscribe};

/// F-07: over TLS, subscriptions to shards that are full and stay unread leave no room for calls.
#[tokio::test]
async fn unread_backlogs_starve_the_shared_connection() {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).without_throughput_limits().build();
    kinesis.create_stream("s", 8).unwrap();
    scenarios::unread_backlog(&kinesis, "s", 8_000_000).unwrap();
    assert_eq!(kinesis.record_count("s").unwrap(), 64);
    let server = kinesis.serve_with(([127, 0, 0, 1], 0), scenarios::shared_connection()).await.unwrap();
    let trust = TrustStore::empty().with_pem_certificate(server.certificate_pem().unwrap());
    let context = TlsContext::builder().with_trust_store(trust).build().unwrap();
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(context)
        .build_https();
    let config = aws_sdk_kinesis::config::Builder::from(&kinesis.sdk_config());
    let client =
        aws_sdk_kinesis::Client::from_conf(config.http_client(http).endpoint_url(server.url()).build());
    let arn = kinesis.register_consumer("s", "app").unwrap();
    client.list_streams().send().await.unwrap();
    let mut unread = BTreeMap::new();
    for shard in kinesis.shards("s").unwrap() {
        let subscribing = subscribe(&client, &arn, &shard.shard_id, from_oldest());
        let Ok(subscribed) = timeout(Duration::from_secs(2), subscribing).await else { break };
        unread.insert(shard.shard_id, subscribed.unwrap());
    }
    assert!(unread.len() < 8, "eight unread subscriptions left room");
    assert!(timeout(Duration::from_secs(1), client.list_streams().send()).await.is_err());
    drop(unread);
    client.list_streams().send().await.unwrap();
    assert!(kinesis.calls(Operation::ListStreams) >= 2);
    drop(server);
}
