//! Which stream leases belong to: a stream that was deleted and made anew, or one of the same name elsewhere, must not
//! go on from the positions of another.

use std::fmt;

use kinesis_core::directory::StreamDescription;
use kinesis_core::lease::{Lease, PrivateValue};
use kinesis_core::{StreamRef, Timestamp};

/// The private attributes that name the stream in each lease.
const ARN: &str = "stream_arn";
const CREATED: &str = "stream_created_ms";

/// ARN and creation time of a stream, as far as the service tells them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StreamIdentity {
    arn: Option<String>,
    created_at: Option<Timestamp>,
}

impl StreamIdentity {
    pub(crate) fn of(stream: &StreamRef, description: &StreamDescription) -> Self {
        let arn = description.arn.clone().or_else(|| stream.arn().map(str::to_owned));
        Self { arn, created_at: description.created_at }
    }

    /// The stream that a lease was made for, if its maker wrote that down.
    fn of_lease(lease: &Lease) -> Self {
        let arn = match lease.private.get(ARN) {
            Some(PrivateValue::Text(arn)) => Some(arn.clone()),
            _ => None,
        };
        let created_at = match lease.private.get(CREATED) {
            Some(PrivateValue::Number(millis)) => Some(Timestamp::from_millis(*millis)),
            _ => None,
        };
        Self { arn, created_at }
    }

    /// Writes the identity into a lease that is to be made.
    pub(crate) fn mark(&self, lease: &mut Lease) {
        if let Some(arn) = &self.arn {
            lease.private.insert(ARN.to_owned(), PrivateValue::Text(arn.clone()));
        }
        if let Some(created_at) = self.created_at {
            lease.private.insert(CREATED.to_owned(), PrivateValue::Number(created_at.as_millis()));
        }
    }

    /// The identity in one of the leases that contradicts this one; what either does not know contradicts nothing.
    pub(crate) fn contradicted_by<'a>(&self, leases: impl IntoIterator<Item = &'a Lease>) -> Option<Self> {
        leases.into_iter().map(Self::of_lease).find(|theirs| {
            let other_arn = self.arn.is_some() && theirs.arn.is_some() && self.arn != theirs.arn;
            let other_time = self.created_at.is_some()
                && theirs.created_at.is_some()
                && self.created_at != theirs.created_at;
            other_arn || other_time
        })
    }
}

/// A new lease belongs to the same stream as the one that it follows.
pub(crate) fn inherit(from: &Lease, to: &mut Lease) {
    for name in [ARN, CREATED] {
        if let Some(value) = from.private.get(name) {
            to.private.insert(name.to_owned(), value.clone());
        }
    }
}

impl fmt::Display for StreamIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.arn.as_deref().unwrap_or("a stream of unknown ARN"))?;
        match self.created_at {
            Some(created_at) => write!(f, " (created at {} ms)", created_at.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kinesis_core::Checkpoint;

    use super::*;

    fn identity(arn: &str, created: i64) -> StreamIdentity {
        StreamIdentity { arn: Some(arn.to_owned()), created_at: Some(Timestamp::from_millis(created)) }
    }

    fn lease() -> Lease {
        Lease::new(crate::sim::key(0), Checkpoint::TrimHorizon)
    }

    /// F-43: another ARN or another creation time is another stream; what is not known is no contradiction.
    #[test]
    fn another_arn_or_another_creation_time_contradicts() {
        let ours = identity("arn:a", 5);
        let mut marked = lease();
        ours.mark(&mut marked);
        assert_eq!(ours.contradicted_by([&lease(), &marked]), None);
        assert_eq!(identity("arn:b", 5).contradicted_by([&lease(), &marked]), Some(ours.clone()));
        assert_eq!(identity("arn:a", 6).contradicted_by([&marked]), Some(ours.clone()));
        assert_eq!(StreamIdentity::default().contradicted_by([&marked]), None);
        let mut child = lease();
        inherit(&marked, &mut child);
        assert_eq!(child.private, marked.private);
    }
}
