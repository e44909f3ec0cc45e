//! What the fuzz targets call: the parsers behind both fronts, fed with any bytes. Not part of the public API.

use std::time::{Duration, UNIX_EPOCH};

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use crate::clock::TestClock;
use crate::format::Format;
use crate::frames;
use crate::handle::TestKinesis;
use crate::model::Operation;
use crate::server;
use crate::streaming::FrameBody;
use crate::wire::{self, ReplyBody, WireRequest};

/// Bytes that the in-memory connection holds in each direction.
const PIPE: usize = 64 * 1024;

fn service() -> (Runtime, TestKinesis) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime without I/O");
    let kinesis = TestKinesis::builder().clock(TestClock::manual(UNIX_EPOCH)).build();
    kinesis.create_stream("s", 2).expect("a new stream");
    kinesis.put("s", "k", "a record").expect("an active stream");
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
        match reply.body {
            ReplyBody::Whole(body) if body.is_empty() => {}
            ReplyBody::Whole(body) if *cbor => {
                ciborium::from_reader::<ciborium::Value, _>(&body[..]).expect("a reply in CBOR");
            }
            ReplyBody::Whole(body) => {
                serde_json::from_slice::<serde_json::Value>(&body).expect("a reply in JSON");
            }
            ReplyBody::Stream(stream) => {
                assert!(!messages(&runtime.block_on(ready(stream)), usize::MAX).is_empty(), "no first frame");
            }
        }
    }
}

/// What a stream sends without a wait.
async fn ready(mut stream: FrameBody) -> Vec<u8> {
    let mut sent = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::ZERO, stream.frame()).await {
        sent.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    sent
}

/// The messages in the bytes of a stream, which come in pieces.
fn messages(bytes: &[u8], piece: usize) -> Vec<Message> {
    let mut decoder = MessageFrameDecoder::new();
    let (mut buffer, mut messages) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        while let DecodedFrame::Complete(message) = decoder.decode_frame(&mut buffer).expect("a whole frame")
        {
            messages.push(message);
        }
    }
    assert!(buffer.is_empty(), "{} bytes belong to no frame", buffer.len());
    messages
}

/// Writes frames and reads them back, cut into pieces: each is its kind's number, a text and a payload.
///
/// # Panics
/// If another reader does not find what was written.
pub fn frames(written: &[(u8, &str, &[u8])], piece: usize) {
    let mut bytes = Vec::new();
    for (kind, text, payload) in written {
        let payload = Bytes::copy_from_slice(payload);
        let frame = match kind % 3 {
            0 => frames::event(text, "application/json", payload),
            1 => frames::exception(text, "application/json", payload),
            _ => frames::error(text, text),
        };
        let corrupt = frames::corrupt(&frame);
        assert!(aws_smithy_eventstream::frame::read_message_from(corrupt).is_err());
        bytes.extend_from_slice(&frame);
    }
    let read = messages(&bytes, piece);
    assert_eq!(read.len(), written.len());
    for (message, (kind, _, payload)) in read.iter().zip(written) {
        let wanted: &[u8] = if kind % 3 == 2 { &[] } else { payload };
        assert_eq!(message.payload(), wanted);
        assert_eq!(message.headers().len(), 3);
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
        fn any_frames_are_read_back(
            written in prop::collection::vec((any::<u8>(), ".{0,40}", prop::collection::vec(any::<u8>(), 0..60)), 0..8),
            piece in 1_usize..50,
        ) {
            let written: Vec<_> =
                written.iter().map(|(kind, text, payload)| (*kind, &text[..], &payload[..])).collect();
            frames(&written, piece);
        }

        #[test]
        fn any_bodies_are_answered(
            calls in prop::collection::vec((any::<u8>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..8),
        ) {
            let calls: Vec<_> = calls.iter().map(|(number, cbor, body)| (*number, *cbor, &body[..])).collect();
            bodies(&calls);
        }
    }

    #[test]
    fn a_subscription_is_read_frame_by_frame() {
        let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:0";
        let subscribe = Operation::ALL.iter().position(|name| *name == Operation::SubscribeToShard).unwrap();
        let body = format!(
            r#"{{"ConsumerARN":"{arn}","ShardId":"shardId-000000000001","StartingPosition":{{"Type":"TRIM_HORIZON"}}}}"#
        );
        let (runtime, kinesis) = service();
        let request = WireRequest {
            method: "POST",
            path: "/",
            target: Some("Kinesis_20131202.SubscribeToShard"),
            content_type: None,
            body: body.as_bytes(),
        };
        let reply = runtime.block_on(wire::answer(kinesis.service(), request)).unwrap();
        let ReplyBody::Stream(stream) = reply.body else { panic!("{}", reply.status) };
        assert!(!messages(&runtime.block_on(ready(stream)), 5).is_empty());
        bodies(&[(subscribe as u8, false, body.as_bytes())]);
    }
}
