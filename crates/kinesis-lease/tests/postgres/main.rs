//! The PostgreSQL store on real servers.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(test)]
mod bad_input;
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod lost_replies;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod password;
#[cfg(test)]
mod pooler;
#[cfg(test)]
mod server;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod table;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod workers;
