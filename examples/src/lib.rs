//! What the example programs share: an AWS configuration, a stream, and when to stop.
//!
//! Each program in `src/bin` is meant to be read from top to bottom. They need a Kinesis; the quickest is the test
//! server of this workspace, in a terminal of its own:
//!
//! ```console
//! $ cargo run -p kinesis-testkit --bin kinesis-test-server -- --port 4567
//! ```
//!
//! One variable then points every example at it; without the variable they use AWS with your usual credentials:
//!
//! ```console
//! $ export AWS_ENDPOINT_URL=http://127.0.0.1:4567
//! $ cargo run -p examples --bin producer
//! $ cargo run -p examples --bin basic-consumer
//! ```

mod aws;
mod stop;
mod stream;

pub use aws::{aws_config, direct_http_client};
pub use stop::{Tally, stop_signal, stop_signal_or};
pub use stream::{create_stream, until_active};

/// The programs of the workspace's README, compiled as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;

/// The guide to lease stores, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/lease-store.md")]
#[derive(Debug)]
pub struct LeaseStoreGuide;
