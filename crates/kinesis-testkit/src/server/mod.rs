//! The HTTP front: HTTP/1.1 and HTTP/2 on one port, plain with prior knowledge or over TLS with ALPN.

mod answer;
mod options;
#[cfg(feature = "tls")]
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
pub use options::ServeOptions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::service::Service;
use answer::{Connection, answer};

/// How long [`Server::shutdown`] waits for calls in flight.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// How long accepting pauses after it failed, for example because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a TLS handshake may take.
#[cfg(feature = "tls")]
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// A running HTTP front. Dropping it ends every task of it at once; [`shutdown`](Self::shutdown) waits for calls in
/// flight.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    certificate_pem: Option<String>,
    /// Accepted so far.
    connections: Arc<AtomicUsize>,
    tasks: TaskTracker,
    /// No new connections, and those that are open end after the call in flight.
    drain: CancellationToken,
    /// Everything ends now.
    stop: CancellationToken,
}

impl Server {
    pub(crate) async fn start(
        service: Arc<Service>,
        addr: SocketAddr,
        options: ServeOptions,
    ) -> io::Result<Self> {
        let transport = Transport::new(options.tls)?;
        let listener = TcpListener::bind(addr).await?;
        let server = Self {
            addr: listener.local_addr()?,
            certificate_pem: transport.certificate_pem(),
            connections: Arc::default(),
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        let front = Front {
            service,
            options,
            transport,
            connections: Arc::clone(&server.connections),
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
        let scheme = if self.certificate_pem.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// The certificate that clients must trust, if the front speaks TLS.
    pub fn certificate_pem(&self) -> Option<&str> {
        self.certificate_pem.as_deref()
    }

    /// How many connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Stops listening, waits up to [`SHUTDOWN_GRACE`] for calls in flight, then ends what is left; subscriptions
    /// are calls in flight. When it returns, no task of the server runs any more.
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

/// Serves one connection until it ends.
#[cfg(any(feature = "fuzzing", test))]
pub(crate) async fn serve_connection<C>(service: Arc<Service>, connection: C)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let front = Front {
        service,
        options: ServeOptions::new(),
        transport: Transport::Plain,
        connections: Arc::default(),
        tasks: TaskTracker::new(),
        drain: CancellationToken::new(),
        stop: CancellationToken::new(),
    };
    front.serve(connection).await;
}

/// What lies between a connection and HTTP.
#[derive(Clone)]
enum Transport {
    Plain,
    #[cfg(feature = "tls")]
    Tls(Box<tls::Tls>),
}

impl Transport {
    fn new(tls: bool) -> io::Result<Self> {
        if !tls {
            return Ok(Self::Plain);
        }
        #[allow(unused_mut)] // without the feature nothing is put in
        let mut made = None;
        #[cfg(feature = "tls")]
        made.replace(Self::Tls(Box::new(tls::Tls::new()?)));
        made.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the test kit was built without the feature `tls`")
        })
    }

    fn certificate_pem(&self) -> Option<String> {
        match self {
            Self::Plain => None,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Some(tls.certificate_pem.clone()),
        }
    }
}

/// What the tasks of a server share.
#[derive(Clone)]
struct Front {
    service: Arc<Service>,
    options: ServeOptions,
    transport: Transport,
    connections: Arc<AtomicUsize>,
    tasks: TaskTracker,
    drain: CancellationToken,
    stop: CancellationToken,
}

impl Front {
    async fn accept(self, listener: TcpListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((connection, peer)) => {
                    tracing::debug!(%peer, "a connection opens");
                    self.connections.fetch_add(1, Ordering::SeqCst);
                    let stop = self.stop.clone();
                    self.tasks.spawn(stop.run_until_cancelled_owned(self.clone().open(connection)));
                }
                Err(error) => {
                    tracing::warn!(error = %error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn open(self, connection: TcpStream) {
        // Replies are small and awaited: they must not wait to be sent together.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(error = %error, "nagle's algorithm stays on");
        }
        if self.options.idle_timeout.is_some()
            && let Err(error) = connection.set_zero_linger()
        {
            tracing::debug!(error = %error, "idle connections will be closed in order");
        }
        match self.transport.clone() {
            Transport::Plain => self.serve(connection).await,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => {
                match tokio::time::timeout(HANDSHAKE_LIMIT, tls.acceptor.accept(connection)).await {
                    Ok(Ok(connection)) => self.serve(connection).await,
                    Ok(Err(error)) => tracing::debug!(error = %error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            }
        }
    }

    async fn serve<C>(self, connection: C)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(Tracked { tasks: self.tasks.clone(), stop: self.stop.clone() });
        builder.http1().timer(TokioTimer::new());
        if let Some(streams) = self.options.max_concurrent_streams {
            builder.http2().max_concurrent_streams(streams);
        }
        let shared = Connection::new();
        let service = service_fn(|request| answer(Arc::clone(&self.service), request, shared.clone()));
        let connection = builder.serve_connection(TokioIo::new(connection), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.is_idle(&shared) => return,
            () = self.is_to_drain(&shared) => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection ended early");
        }
    }

    async fn is_to_drain(&self, connection: &Connection) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = connection.retire.cancelled() => {}
        }
    }

    /// Waits until the connection has carried nothing for the idle timeout.
    async fn is_idle(&self, connection: &Connection) {
        let Some(timeout) = self.options.idle_timeout else { return std::future::pending().await };
        let mut in_flight = connection.in_flight.subscribe();
        loop {
            // The sender lives in `connection`.
            let _ = in_flight.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(timeout, in_flight.changed()).await.is_err() {
                return;
            }
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
