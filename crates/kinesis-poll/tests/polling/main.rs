//! The source against the embedded service, in virtual time. One binary: each would link the SDK anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod bad_input;
#[cfg(feature = "fast-decode")]
mod decoding;
mod failures;
mod iterators;
mod pacing;
mod positions;
mod prefetch;
mod reader;
mod sharing;
mod sockets;
mod support;
