//! Fleets and single machines.

mod beat;
mod bench;
mod ending;
mod fleet;
mod holding;
mod kcl;
mod mixed;
mod sharing;
mod weigh;
