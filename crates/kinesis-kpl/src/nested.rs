//! Aggregates inside aggregates, for those who nest on purpose.

use bytes::Bytes;

use crate::{Aggregate, UserRecord};

/// A user record from a nest of aggregates.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nested {
    /// The record, with its place in the innermost aggregate.
    pub record: UserRecord,
    /// The place in each aggregate from the outermost on. Only the first of them is a sub-sequence number that
    /// other readers know.
    pub path: Vec<u64>,
}

/// Splits the records of an aggregate that are aggregates themselves, down to `levels` below the first.
///
/// Splitting goes one level deep everywhere else, as in all other readers: a payload that merely looks like an
/// aggregate is data. Call this only where the writer nests on purpose. What is not a good aggregate stays as it is.
/// The work is bounded: an inner aggregate is smaller than the record that holds it, so each level costs at most
/// one more walk of the bytes.
#[must_use]
pub fn unnest(aggregate: Aggregate<Bytes>, levels: usize) -> Vec<Nested> {
    let mut out = Vec::with_capacity(aggregate.len());
    push_all(aggregate, levels.min(crate::MAX_NESTING), &mut Vec::new(), &mut out);
    out
}

fn push_all(aggregate: Aggregate<Bytes>, levels: usize, path: &mut Vec<u64>, out: &mut Vec<Nested>) {
    for record in aggregate {
        path.push(record.sub_sequence);
        let inner = if levels > 0 && crate::is_aggregated(&record.data) {
            Aggregate::parse(record.data.clone()).ok()
        } else {
            None
        };
        match inner {
            Some(inner) => push_all(inner, levels - 1, path, out),
            None => out.push(Nested { record, path: path.clone() }),
        }
        path.pop();
    }
}
