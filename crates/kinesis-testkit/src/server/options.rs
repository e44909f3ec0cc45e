//! How the HTTP front behaves towards connections.

use std::time::Duration;

/// Settings of an HTTP front, for [`TestKinesis::serve_with`](crate::TestKinesis::serve_with).
///
/// ```
/// # use std::time::Duration;
/// # use kinesis_testkit::ServeOptions;
/// let options = ServeOptions::new().idle_timeout(Duration::from_secs(5)).max_concurrent_streams(10);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct ServeOptions {
    pub(super) tls: bool,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) max_concurrent_streams: Option<u32>,
}

impl ServeOptions {
    /// A plain port without limits of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Speaks TLS, with ALPN for HTTP/2 and HTTP/1.1, with a certificate for `localhost` and the loopback addresses
    /// that is made anew for each server: [`Server::certificate_pem`](crate::Server::certificate_pem). Without the
    /// feature `tls` no such server starts.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Closes connections that carried nothing for this time, with a reset. By the machine's clock. Default: never.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// The most streams that a client may have open on one HTTP/2 connection. Default: what the HTTP library sets.
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.max_concurrent_streams = Some(streams);
        self
    }
}
