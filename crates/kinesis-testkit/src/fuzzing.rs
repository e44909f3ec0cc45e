//! What the fuzz targets call: the parsers behind both fronts, fed with any bytes. Not part of the public API.

use std::time::UNIX_EPOCH;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use crate::clock::TestClock;
use crate::format::Format;
use crate::handle::TestKinesis;
use crate::model::Operation;
use crate::server;
use crate::wire::{self, ReplyBody, WireRequest};

/// Bytes that the in-memory connection holds in each direction.
const PIPE: usize = 64 * 1024;

fn service() -> (Runtime, TestKinesis) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime without I/O");
    let kinesis = TestKinesis::builder().clock(TestClock::manual(UNIX_EPOCH)).build();
    kinesis.create_stream("s", 2).expect("a new stream");
    kinesis.register_consumer("s", "c").expect("a new consumer");
    (runtime, kinesis)
}

/// Sends `bytes` over a connection and reads until the server has nothing more to say.
pub fn connection(bytes: &[u8]) {
    let (runtime, kinesis) = service();
    runtime.block_on(async {
        let (mut client, served) = tokio::io::duplex(PIPE);
        let serving = server::serve_connection(kinesis.service().clone(), served);
        let talking = async {
            // The server may hang up before it has read everything.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let _ = client.read_to_end(&mut Vec::new()).await;
        };
        tokio::select! {
            () = serving => {}
            () = talking => {}
        }
    });
}

/// Answers calls: each is the number of an operation, whether its body is CBOR, and the body.
///
/// # Panics
/// If a reply is none of the service's.
pub fn bodies(calls: &[(u8, bool, &[u8])]) {
    let (runtime, kinesis) = service();
    for (operation, cbor, body) in calls {
        let operation = Operation::ALL[usize::from(*operation) % Operation::ALL.len()];
        let target = format!("Kinesis_20131202.{operation}");
        let format = if *cbor { Format::Cbor } else { Format::Json };
        let request = WireRequest {
            method: "POST",
            path: "/",
            target: Some(&target),
            content_type: Some(format.content_type()),
            body,
        };
        let reply = runtime.block_on(wire::answer(kinesis.service(), request)).expect("no fault is scripted");
        assert!([200, 400].contains(&reply.status), "{operation}: {}", reply.status);
        if let ReplyBody::Whole(body) = reply.body
            && format == Format::Json
            && !body.is_empty()
        {
            serde_json::from_slice::<serde_json::Value>(&body).expect("a reply in JSON");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The start of a conversation that the parsers take further than random bytes.
    fn start() -> impl Strategy<Value = &'static [u8]> {
        prop::sample::select(vec![
            &b""[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nx-amz-target: Kinesis_20131202.ListStreams\r\ncontent-length: 2\r\n\r\n{}",
        ])
    }

    proptest! {
        #[test]
        fn any_bytes_on_a_connection_are_survived(
            start in start(),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            connection(&[start, &rest[..]].concat());
        }

        #[test]
        fn any_bodies_are_answered(
            calls in prop::collection::vec((any::<u8>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..8),
        ) {
            let calls: Vec<_> = calls.iter().map(|(number, cbor, body)| (*number, *cbor, &body[..])).collect();
            bodies(&calls);
        }
    }
}
