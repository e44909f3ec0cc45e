//! Calls per second of the control plane.

use std::collections::BTreeMap;

use super::Kinesis;
use super::bucket::TokenBucket;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::model::Operation;
use crate::rule::Rule;

/// What shares one quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Account,
    Stream,
}

/// The quota of an operation, from its page of the API reference; none for the data plane, whose quotas are the
/// shard's.
fn quota(operation: Operation) -> Option<(u64, Scope)> {
    Some(match operation {
        Operation::DescribeStream => (10, Scope::Account),
        Operation::DescribeStreamSummary => (20, Scope::Account),
        Operation::DescribeStreamConsumer => (20, Scope::Stream),
        Operation::DescribeLimits => (1, Scope::Account),
        Operation::DeregisterStreamConsumer | Operation::ListStreamConsumers => (5, Scope::Stream),
        Operation::ListShards => (1_000, Scope::Stream),
        Operation::GetRecords
        | Operation::GetShardIterator
        | Operation::PutRecord
        | Operation::PutRecords
        | Operation::SubscribeToShard => return None,
        _ => (5, Scope::Account),
    })
}

/// The buckets in use: one per operation, and one per operation and existing stream.
#[derive(Debug, Default)]
pub(super) struct CallRates(BTreeMap<(Operation, Option<String>), TokenBucket>);

impl CallRates {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the buckets of a stream that is gone.
    pub(super) fn forget(&mut self, stream: &str) {
        self.0.retain(|(_, of), _| of.as_deref() != Some(stream));
    }
}

impl Kinesis {
    /// Counts a call against its quota, or refuses it.
    pub(crate) fn admit(
        &mut self,
        now: Moment,
        operation: Operation,
        stream: Option<&str>,
    ) -> Result<(), ServiceError> {
        let Some((rate, scope)) = quota(operation).filter(|_| self.enforces(Rule::ControlCallRate)) else {
            return Ok(());
        };
        // Names of streams that do not exist share a bucket: the caller decides how many such names there are.
        let stream = stream.filter(|name| scope == Scope::Stream && self.streams.contains_key(*name));
        let key = (operation, stream.map(str::to_owned));
        let bucket = self.call_rates.0.entry(key).or_insert_with(|| TokenBucket::new(rate, now));
        if bucket.holds(now, 1) {
            bucket.take(now, 1);
            return Ok(());
        }
        Err(ServiceError::limit_exceeded(format!(
            "Rate exceeded for {operation} under account {}: {rate} calls per second.",
            self.settings.account
        )))
    }
}
