//! How many connections the clients of a configuration open, over sockets.

use aws_sdk_kinesis::Client;
use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_testkit::{TestClock, TestKinesis};

use crate::common::STREAM;

/// F-07: the clients of a configuration, or made after a client, that has no `http_client` have connections of their
/// own: one for control calls, one for reads, one for each group of subscriptions. Each keeps its own.
#[tokio::test]
async fn each_purpose_has_a_connection_of_its_own() {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    kinesis.create_stream(STREAM, 1).unwrap();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    for from_client in [false, true] {
        let before = server.connections();
        let mut builder = kinesis.sdk_config().into_builder().endpoint_url(server.url());
        builder.set_http_client(None);
        let config = builder.build();
        let clients = match from_client {
            true => ClientSource::from(&Client::new(&config)),
            false => ClientSource::from(&config),
        };
        let purposes = [
            Purpose::Control,
            Purpose::Read,
            Purpose::Subscribe { group: 0 },
            Purpose::Subscribe { group: 1 },
        ];
        for _ in 0..2 {
            for (place, purpose) in (1..).zip(purposes) {
                let call = clients.client(purpose).describe_stream_summary().stream_name(STREAM);
                call.send().await.unwrap();
                let opened = server.connections() - before;
                assert!(opened >= place, "{purpose:?}, from a client: {from_client}");
            }
        }
        assert_eq!(server.connections() - before, 4, "from a client: {from_client}");
    }
    server.shutdown().await;
}
