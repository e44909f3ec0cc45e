//! The machine alone: scripted answers, virtual time.

mod model;
mod properties;
mod scripted;
mod sharing;
