//! Event stream frames: the messages of a subscription on the wire.
//!
//! The format is Amazon's `vnd.amazon.eventstream`: a prelude with two lengths and a checksum, headers, a payload, and
//! a checksum of it all.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::{Bytes, BytesMut};

/// The content type of a reply that is an event stream.
pub(crate) const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// What the headers of a frame need apart from the payload, roughly.
const OVERHEAD: usize = 256;

/// A frame with text headers, in their order.
fn frame(headers: &[(&'static str, &str)], payload: Bytes) -> Bytes {
    let mut buffer = BytesMut::with_capacity(payload.len() + OVERHEAD);
    let message = headers.iter().fold(Message::new(payload), |message, (name, value)| {
        message.add_header(Header::new(*name, HeaderValue::String((*value).to_owned().into())))
    });
    // It fails for headers that are too long: those of scripted errors are cut before.
    write_message_to(&message, &mut buffer).expect("short headers and a payload below 2 GiB");
    buffer.freeze()
}

/// An event.
pub(crate) fn event(kind: &str, content_type: &str, payload: Bytes) -> Bytes {
    let headers = [(":message-type", "event"), (":event-type", cut(kind)), (":content-type", content_type)];
    frame(&headers, payload)
}

/// An exception, which the service's model may know or not. It is the last frame of a stream.
pub(crate) fn exception(code: &str, content_type: &str, payload: Bytes) -> Bytes {
    let headers =
        [(":message-type", "exception"), (":exception-type", cut(code)), (":content-type", content_type)];
    frame(&headers, payload)
}

/// An error that no model knows, in headers alone. It is the last frame of a stream.
pub(crate) fn error(code: &str, message: &str) -> Bytes {
    let headers = [(":message-type", "error"), (":error-code", cut(code)), (":error-message", cut(message))];
    frame(&headers, Bytes::new())
}

/// The frame with a checksum that is not its own.
pub(crate) fn corrupt(frame: &Bytes) -> Bytes {
    let mut bytes = BytesMut::from(&frame[..]);
    if let Some(last) = bytes.last_mut() {
        *last ^= 0xff;
    }
    bytes.freeze()
}

/// A text that fits into a header.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(1_024)]
}

#[cfg(test)]
mod tests {
    use aws_smithy_eventstream::frame::read_message_from;

    use super::*;

    fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
        let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
        header.value().as_string().ok().map(|text| text.as_str())
    }

    #[test]
    fn frames_are_read_back() {
        let message =
            read_message_from(event("Some", "application/json", Bytes::from_static(b"{}"))).unwrap();
        assert_eq!(header(&message, ":message-type"), Some("event"));
        assert_eq!(header(&message, ":event-type"), Some("Some"));
        assert_eq!(message.payload().as_ref(), b"{}");
        let message = read_message_from(exception("X", "application/json", Bytes::new())).unwrap();
        assert_eq!(header(&message, ":exception-type"), Some("X"));
        let message = read_message_from(error("Y", &"ä".repeat(3_000))).unwrap();
        assert_eq!(header(&message, ":error-code"), Some("Y"));
        assert_eq!(header(&message, ":error-message").map(str::len), Some(1_024));
    }

    #[test]
    fn a_corrupt_frame_is_found_out() {
        assert!(read_message_from(corrupt(&event("E", "t", Bytes::new()))).is_err());
    }
}
