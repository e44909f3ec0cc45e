//! Consumers whose handlers move the checkpoint in their own transactions, on a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(test)]
mod chaos;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod world;
