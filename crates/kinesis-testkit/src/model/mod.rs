//! The service's operations as values: what a request says and what a reply carries, apart from any wire format.

mod blob;
mod operation;
mod request;
mod response;
mod sequence_text;

pub(crate) use blob::{Blob, Timestamp};
pub use operation::{Operation, UnknownOperation};
pub(crate) use request::*;
pub(crate) use response::*;
pub(crate) use sequence_text::SequenceText;
