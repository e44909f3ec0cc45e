//! The body of an answer, its records taken out.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_smithy_types::body::SdkBody;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use kinesis_core::BoxError;

use super::{FastDecode, answer};

/// Reads a body to its end, keeps its records, and then gives out the rest.
pub(super) struct Tap {
    /// None once it is read.
    inner: Option<Pin<Box<SdkBody>>>,
    chunks: Vec<Bytes>,
    records: FastDecode,
}

impl Tap {
    pub(super) fn new(inner: SdkBody, records: FastDecode) -> Self {
        Self { inner: Some(Box::pin(inner)), chunks: Vec::new(), records }
    }

    fn rest(&mut self) -> Bytes {
        let whole = match self.chunks.len() {
            1 => self.chunks.remove(0),
            _ => {
                let mut whole = BytesMut::with_capacity(self.chunks.iter().map(Bytes::len).sum());
                self.chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
                whole.freeze()
            }
        };
        match answer::decode(&whole) {
            Some((records, rest)) => {
                self.records.put(records);
                rest
            }
            None => whole,
        }
    }
}

impl Body for Tap {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while let Some(inner) = &mut self.inner {
            match ready!(inner.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers mean nothing here.
                    if let Ok(chunk) = frame.into_data() {
                        self.chunks.push(chunk);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.inner = None;
                    return Poll::Ready(Some(Ok(Frame::data(self.rest()))));
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out chunks one by one.
    struct Chunks(Vec<&'static [u8]>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            let chunk = self.0.remove(0);
            Poll::Ready(Some(match chunk {
                b"cut" => Err("the connection broke".into()),
                chunk => Ok(Frame::data(Bytes::from_static(chunk))),
            }))
        }
    }

    fn read(chunks: &[&'static [u8]]) -> (Result<Vec<u8>, String>, Option<usize>) {
        let records = FastDecode::default();
        let mut tap = Tap::new(SdkBody::from_body_1_x(Chunks(chunks.to_vec())), records.clone());
        let mut out = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let end = loop {
            match Pin::new(&mut tap).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => out.extend(frame.into_data().unwrap()),
                Poll::Ready(Some(Err(error))) => break Err(error.to_string()),
                Poll::Ready(None) => break Ok(out),
                Poll::Pending => panic!("chunks are always there"),
            }
        };
        (end, records.take().map(|records| records.len()))
    }

    #[test]
    fn an_answer_may_come_in_pieces() {
        let pieces: [&[u8]; 3] =
            [br#"{"Records":[{"Sequen"#, br#"ceNumber":"1","Data":"aA=="}],"Millis"#, br#"BehindLatest":3}"#];
        let (rest, records) = read(&pieces);
        assert_eq!(rest.unwrap(), br#"{"Records":[],"MillisBehindLatest":3}"#);
        assert_eq!(records, Some(1));
    }

    #[test]
    fn what_is_not_understood_passes_through_and_a_broken_answer_stays_broken() {
        assert_eq!(read(&[b"{\"x\":", b"1}"]), (Ok(b"{\"x\":1}".to_vec()), None));
        assert_eq!(read(&[]), (Ok(Vec::new()), None));
        let (end, records) = read(&[br#"{"Records":["#, b"cut"]);
        assert!(end.is_err() && records.is_none());
    }
}
