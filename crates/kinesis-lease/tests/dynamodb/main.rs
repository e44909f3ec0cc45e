//! The DynamoDB store against a DynamoDB in this process.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod hints;
mod kcl;
mod lost_answers;
mod regime;
mod suite;
mod support;
mod tables;
mod throttling;
mod workers;
