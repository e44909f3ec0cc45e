//! How many connections the clients of a configuration open, over sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_kinesis::Client;
use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_testkit::{Server, TestClock, TestKinesis};
use tokio::net::{TcpListener, TcpStream};

use crate::common::STREAM;

/// A way to the server that counts connections.
async fn counting(server: &Server) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (count, behind) = (Arc::new(AtomicUsize::new(0)), server.addr());
    let accepted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            accepted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut far = TcpStream::connect(behind).await.unwrap();
                // It ends as either side likes.
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (url, count)
}

/// F-07: the clients of a configuration, or made after a client, that has no `http_client` have connections of their
/// own: one for control calls, one for reads, one for each group of subscriptions. Each keeps its own.
#[tokio::test]
async fn each_purpose_has_a_connection_of_its_own() {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    kinesis.create_stream(STREAM, 1).unwrap();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    for from_client in [false, true] {
        let (url, connections) = counting(&server).await;
        let mut builder = kinesis.sdk_config().into_builder().endpoint_url(url);
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
                assert!(
                    connections.load(Ordering::SeqCst) >= place,
                    "{purpose:?}, from a client: {from_client}"
                );
            }
        }
        assert_eq!(connections.load(Ordering::SeqCst), 4, "from a client: {from_client}");
    }
    server.shutdown().await;
}
