//! From an HTTP request to the HTTP reply.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Request, Response, StatusCode};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::ServiceError;
use crate::format::Format;
use crate::service::Service;
use crate::streaming::{Cut, FrameBody};
use crate::wire::{self, ReplyBody, WireReply, WireRequest, Withheld};

/// Most bytes of a request: the largest PutRecords in base64 (10 MiB become 13.4) with ample room for its keys.
const MAX_REQUEST_BYTES: usize = 32 * 1024 * 1024;

/// What the requests of one connection share.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// No further request: the connection ends after those in flight.
    pub(super) retire: CancellationToken,
    /// Requests whose reply is not complete.
    pub(super) in_flight: watch::Sender<usize>,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self { retire: CancellationToken::new(), in_flight: watch::Sender::new(0) }
    }

    fn begin(&self) -> InFlight {
        self.in_flight.send_modify(|count| *count += 1);
        InFlight(self.in_flight.clone())
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight(watch::Sender<usize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// A reply that the script withholds: hyper closes the connection, or refuses the one stream if the source says so.
#[derive(Debug, thiserror::Error)]
#[error("{withheld}")]
pub(super) struct Refused {
    withheld: Withheld,
    source: Option<h2::Error>,
}

impl From<Withheld> for Refused {
    fn from(withheld: Withheld) -> Self {
        let refused = withheld == Withheld::RefusedStream;
        Self { withheld, source: refused.then(|| h2::Reason::REFUSED_STREAM.into()) }
    }
}

/// Answers one request.
pub(super) async fn answer(
    service: Arc<Service>,
    request: Request<Incoming>,
    connection: Connection,
) -> Result<Response<ServerBody>, Refused> {
    let in_flight = connection.begin();
    let (parts, body) = request.into_parts();
    let reply = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => {
            let request = WireRequest {
                method: parts.method.as_str(),
                path: parts.uri.path(),
                target: header(&parts.headers, "x-amz-target"),
                content_type: header(&parts.headers, "content-type"),
                body: &body.to_bytes(),
            };
            wire::answer(&service, request).await.map_err(Refused::from)?
        }
        Err(_) => {
            let error = ServiceError::new(
                "RequestEntityTooLargeException",
                413,
                "The request is too large or was cut.",
            );
            wire::encode(&service, Format::Json, &Err(error))
        }
    };
    if reply.retire {
        connection.retire.cancel();
    }
    Ok(http(reply, in_flight))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn http(reply: WireReply, in_flight: InFlight) -> Response<ServerBody> {
    let content = match reply.body {
        ReplyBody::Whole(bytes) => Content::Whole(Full::new(bytes)),
        ReplyBody::Stream(stream) => Content::Stream(stream),
    };
    let mut response = Response::new(ServerBody { content, _in_flight: in_flight });
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let Ok(value) = value.try_into() {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// The body of a reply, which counts as in flight until it is dropped.
#[derive(Debug)]
pub(super) struct ServerBody {
    content: Content,
    _in_flight: InFlight,
}

#[derive(Debug)]
enum Content {
    Whole(Full<Bytes>),
    Stream(FrameBody),
}

impl Body for ServerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.content {
            Content::Whole(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
            Content::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(body) => body.is_end_stream(),
            Content::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(body) => body.size_hint(),
            Content::Stream(body) => body.size_hint(),
        }
    }
}
