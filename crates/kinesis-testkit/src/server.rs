//! The HTTP front: HTTP/1.1 and HTTP/2 with prior knowledge on one plain port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::ServiceError;
use crate::format::Format;
use crate::service::Service;
use crate::streaming::FrameBody;
use crate::wire::{self, ReplyBody, WireReply, WireRequest, Withheld};

/// Most bytes of a request: the largest PutRecords in base64 (10 MiB become 13.4) with ample room for its keys.
const MAX_REQUEST_BYTES: usize = 32 * 1024 * 1024;

/// How long [`Server::shutdown`] waits for calls in flight.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// How long accepting pauses after it failed, for example because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running HTTP front. Dropping it ends every task of it at once; [`shutdown`](Self::shutdown) waits for calls in
/// flight.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    tasks: TaskTracker,
    /// No new connections, and those that are open end after the call in flight.
    drain: CancellationToken,
    /// Everything ends now.
    stop: CancellationToken,
}

impl Server {
    pub(crate) async fn start(service: Arc<Service>, addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let server = Self {
            addr: listener.local_addr()?,
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        let front = Front {
            service,
            tasks: server.tasks.clone(),
            drain: server.drain.clone(),
            stop: server.stop.clone(),
        };
        let stop = server.stop.clone();
        server.tasks.spawn(stop.run_until_cancelled_owned(front.accept(listener)));
        Ok(server)
    }

    /// The address that it listens on, with the port that was chosen.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The endpoint URL for an SDK, for example `http://127.0.0.1:4567`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops listening, waits up to [`SHUTDOWN_GRACE`] for calls in flight, then ends what is left. When it returns,
    /// no task of the server runs any more.
    pub async fn shutdown(self) {
        self.drain.cancel();
        self.tasks.close();
        if tokio::time::timeout(SHUTDOWN_GRACE, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the tasks of a server share.
#[derive(Clone)]
struct Front {
    service: Arc<Service>,
    tasks: TaskTracker,
    drain: CancellationToken,
    stop: CancellationToken,
}

impl Front {
    async fn accept(self, listener: TcpListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((connection, _)) => {
                    let stop = self.stop.clone();
                    self.tasks.spawn(stop.run_until_cancelled_owned(self.clone().serve(connection)));
                }
                Err(error) => {
                    tracing::warn!(error = %error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(self, connection: TcpStream) {
        // Replies are small and awaited: they must not wait to be sent together.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(error = %error, "nagle's algorithm stays on");
        }
        let builder = auto::Builder::new(Tracked { tasks: self.tasks.clone(), stop: self.stop.clone() });
        let retire = CancellationToken::new();
        let service = service_fn(|request| handle(Arc::clone(&self.service), request, retire.clone()));
        let connection = builder.serve_connection(TokioIo::new(connection), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = async { tokio::select! { () = self.drain.cancelled() => {}, () = retire.cancelled() => {} } } => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection ended early");
        }
    }
}

/// Runs hyper's own tasks among the server's.
#[derive(Clone)]
struct Tracked {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(future));
    }
}

async fn handle(
    service: Arc<Service>,
    request: Request<Incoming>,
    retire: CancellationToken,
) -> Result<Response<ServerBody>, Refused> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            let error = ServiceError::new(
                "RequestEntityTooLargeException",
                413,
                "The request is too large or was cut.",
            );
            return Ok(http(wire::encode(&service, Format::Json, &Err(error))));
        }
    };
    if parts.method != Method::POST {
        return Ok(http(wire::encode(&service, Format::Json, &Err(ServiceError::unknown_operation()))));
    }
    let request = WireRequest {
        target: header(&parts.headers, &HeaderName::from_static("x-amz-target")),
        content_type: header(&parts.headers, &CONTENT_TYPE),
        body: &body,
    };
    let reply = wire::answer(&service, request).await.map_err(Refused::from)?;
    if reply.retire {
        retire.cancel();
    }
    Ok(http(reply))
}

/// A reply that the script withholds: hyper closes the connection, or refuses the one stream if the source says so.
#[derive(Debug, thiserror::Error)]
#[error("{withheld}")]
struct Refused {
    withheld: Withheld,
    source: Option<h2::Error>,
}

impl From<Withheld> for Refused {
    fn from(withheld: Withheld) -> Self {
        let refused = withheld == Withheld::RefusedStream;
        Self { withheld, source: refused.then(|| h2::Reason::REFUSED_STREAM.into()) }
    }
}

type ServerBody = Either<Full<Bytes>, FrameBody>;

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn http(reply: WireReply) -> Response<ServerBody> {
    let mut response = Response::new(match reply.body {
        ReplyBody::Whole(bytes) => Either::Left(Full::new(bytes)),
        ReplyBody::Stream(stream) => Either::Right(stream),
    });
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let Ok(value) = value.try_into() {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
