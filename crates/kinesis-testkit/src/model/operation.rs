//! The names of the operations.

use std::fmt;
use std::str::FromStr;

/// An operation of the service, as the test kit's counters, log and faults name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `AddTagsToStream`
    AddTagsToStream,
    /// `CreateStream`
    CreateStream,
    /// `DecreaseStreamRetentionPeriod`
    DecreaseStreamRetentionPeriod,
    /// `DeleteStream`
    DeleteStream,
    /// `DescribeStream`
    DescribeStream,
    /// `DescribeStreamSummary`
    DescribeStreamSummary,
    /// `GetRecords`
    GetRecords,
    /// `GetShardIterator`
    GetShardIterator,
    /// `IncreaseStreamRetentionPeriod`
    IncreaseStreamRetentionPeriod,
    /// `ListShards`
    ListShards,
    /// `ListStreams`
    ListStreams,
    /// `MergeShards`
    MergeShards,
    /// `PutRecord`
    PutRecord,
    /// `PutRecords`
    PutRecords,
    /// `SplitShard`
    SplitShard,
    /// `UpdateMaxRecordSize`
    UpdateMaxRecordSize,
    /// `UpdateShardCount`
    UpdateShardCount,
}

impl Operation {
    /// Every operation that the test kit knows, in alphabetical order.
    pub const ALL: [Self; 17] = [
        Self::AddTagsToStream,
        Self::CreateStream,
        Self::DecreaseStreamRetentionPeriod,
        Self::DeleteStream,
        Self::DescribeStream,
        Self::DescribeStreamSummary,
        Self::GetRecords,
        Self::GetShardIterator,
        Self::IncreaseStreamRetentionPeriod,
        Self::ListShards,
        Self::ListStreams,
        Self::MergeShards,
        Self::PutRecord,
        Self::PutRecords,
        Self::SplitShard,
        Self::UpdateMaxRecordSize,
        Self::UpdateShardCount,
    ];

    /// The operation's name as the service knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AddTagsToStream => "AddTagsToStream",
            Self::CreateStream => "CreateStream",
            Self::DecreaseStreamRetentionPeriod => "DecreaseStreamRetentionPeriod",
            Self::DeleteStream => "DeleteStream",
            Self::DescribeStream => "DescribeStream",
            Self::DescribeStreamSummary => "DescribeStreamSummary",
            Self::GetRecords => "GetRecords",
            Self::GetShardIterator => "GetShardIterator",
            Self::IncreaseStreamRetentionPeriod => "IncreaseStreamRetentionPeriod",
            Self::ListShards => "ListShards",
            Self::ListStreams => "ListStreams",
            Self::MergeShards => "MergeShards",
            Self::PutRecord => "PutRecord",
            Self::PutRecords => "PutRecords",
            Self::SplitShard => "SplitShard",
            Self::UpdateMaxRecordSize => "UpdateMaxRecordSize",
            Self::UpdateShardCount => "UpdateShardCount",
        }
    }

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
        assert!("Putrecord".parse::<Operation>().is_err());
    }
}
