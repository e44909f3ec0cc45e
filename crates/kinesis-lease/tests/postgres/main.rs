//! The PostgreSQL store on a real server.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
#[cfg(test)]
mod common;
#[cfg(test)]
mod server;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod table;
