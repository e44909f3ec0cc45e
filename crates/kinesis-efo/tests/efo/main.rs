//! The source against the embedded service: in virtual time, and over TLS where HTTP/2 matters. One binary: each would
//! link the SDK anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod bad_input;
mod contention;
mod ends;
mod failures;
mod http2;
mod positions;
mod pressure;
mod registration;
mod settings;
mod silence;
mod support;
