//! The names of the operations.

use std::fmt;
use std::str::FromStr;

/// Declares the operations; they must be in alphabetical order.
macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// An operation of the service, as the test kit's counters, log and faults name it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                $name,
            )*
        }

        impl Operation {
            /// Every operation that the test kit knows, in alphabetical order.
            pub const ALL: [Self; operations!(@count $($name)*)] = [$(Self::$name),*];

            /// The operation's name as the service knows it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }
        }
    };
    (@count) => { 0 };
    (@count $head:ident $($tail:ident)*) => { 1 + operations!(@count $($tail)*) };
}

operations! {
    AddTagsToStream,
    CreateStream,
    DecreaseStreamRetentionPeriod,
    DeleteStream,
    DeregisterStreamConsumer,
    DescribeLimits,
    DescribeStream,
    DescribeStreamConsumer,
    DescribeStreamSummary,
    GetRecords,
    GetShardIterator,
    IncreaseStreamRetentionPeriod,
    ListShards,
    ListStreamConsumers,
    ListStreams,
    MergeShards,
    PutRecord,
    PutRecords,
    RegisterStreamConsumer,
    SplitShard,
    StartStreamEncryption,
    StopStreamEncryption,
    SubscribeToShard,
    UpdateMaxRecordSize,
    UpdateShardCount,
    UpdateStreamMode,
    UpdateStreamRecordDistributionStrategy,
}

impl Operation {
    /// Whether the service throttles it per shard (`ProvisionedThroughputExceededException`), not per account
    /// (`LimitExceededException`).
    pub(crate) fn is_data_plane(self) -> bool {
        matches!(self, Self::GetRecords | Self::GetShardIterator | Self::PutRecord | Self::PutRecords)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no known operation's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no operation has the name `{0}`")]
pub struct UnknownOperation(String);

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(name: &str) -> Result<Self, UnknownOperation> {
        match Self::ALL.binary_search_by(|operation| operation.name().cmp(name)) {
            Ok(found) => Ok(Self::ALL[found]),
            Err(_) => Err(UnknownOperation(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_name() {
        for operation in Operation::ALL {
            assert_eq!(operation.name().parse(), Ok(operation));
        }
        assert!(Operation::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        assert!("Putrecord".parse::<Operation>().is_err());
    }
}
