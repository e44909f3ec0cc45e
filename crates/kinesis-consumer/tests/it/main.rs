//! Tests of the whole consumer against a Kinesis in this process, most of them in virtual time.

#[cfg(test)]
mod common;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod failure;
#[cfg(test)]
mod lifecycle;
