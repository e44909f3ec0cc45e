//! Where the other servers answer otherwise, and who is right by the documentation.

use crate::side::Deviation;

const fn deviation(
    step: &'static str,
    field: &'static str,
    theirs: &'static str,
    ours: &'static str,
    right: &'static str,
) -> Deviation {
    Deviation { step, field, theirs, ours, right }
}

/// Of kinesis-local.
pub const KINESIS_LOCAL: [Deviation; 17] = [
    deviation(
        "put-badly",
        "error",
        "InvalidArgumentException",
        "ValidationException",
        "ours: the documented pattern of a hash key and length of a partition key are constraints of the model",
    ),
    deviation(
        "put-badly",
        "error",
        "InvalidArgumentException",
        "-",
        "ours: a partition key has 256 Unicode characters, it counts code units of UTF-16",
    ),
    deviation(
        "summary",
        "record size",
        "None",
        "*",
        "ours: DescribeStreamSummary documents MaxRecordSizeInKiB",
    ),
    deviation(
        "list-after",
        "shards",
        "*",
        "",
        "ours: a list starts with the id that follows the given one, and after an id that is not there yet is nothing",
    ),
    deviation("list-after-shard-id", "shards", "*", "", "ours: the same as for the exclusive start"),
    deviation("list-after-shard-id", "pages", "*", "[0]", "ours: the same as for the exclusive start"),
    deviation(
        "list-at-trim-horizon",
        "shards",
        "*",
        "*",
        "ours: AT_TRIM_HORIZON has the shards that were open at that time, it adds their descendants at times",
    ),
    deviation("list-at-trim-horizon", "pages", "*", "*", "ours: the same"),
    deviation(
        "scale",
        "error",
        "InvalidArgumentException",
        "LimitExceededException",
        "either: both are documented for UpdateShardCount, and which of them for more than double is not",
    ),
    deviation(
        "scale",
        "open",
        "*",
        "*",
        "ours: UNIFORM_SCALING makes shards of equal size, it halves the largest ones and is off by one key",
    ),
    deviation(
        "start-in-the-future",
        "error",
        "-",
        "InvalidArgumentException",
        "ours: a timestamp names a record that was written, and the service refuses one ahead of its clock",
    ),
    deviation(
        "read-nonsense",
        "error",
        "no reply",
        "InvalidArgumentException",
        "ours: GetRecords documents InvalidArgumentException for an iterator that is not valid, it answers 500",
    ),
    deviation(
        "merge",
        "error",
        "ResourceNotFoundException",
        "InvalidArgumentException",
        "ours: a closed shard exists, so it is an argument that is not eligible",
    ),
    deviation(
        "merge",
        "error",
        "ResourceInUseException",
        "ResourceNotFoundException",
        "ours: a shard that does not exist is a resource that is not found, and the stream is ACTIVE",
    ),
    deviation(
        "split",
        "error",
        "ResourceInUseException",
        "InvalidArgumentException",
        "ours: SplitShard documents ResourceInUseException for a stream that is not ACTIVE, and this one is",
    ),
    deviation(
        "start-at-no-number",
        "error",
        "InvalidArgumentException",
        "ValidationException",
        "ours: the documented pattern of a sequence number is checked before anything else of it",
    ),
    deviation(
        "start-at-no-number",
        "error",
        "InvalidArgumentException",
        "ResourceNotFoundException",
        "either: the shard is missing too, and the order of the checks is not documented",
    ),
];

/// Of ministack.
pub const MINISTACK: [Deviation; 2] = [
    deviation(
        "bad-start",
        "error",
        "InvalidArgumentException for a type",
        "ValidationException for a type",
        "ours: the types are an enumeration of the model, whose constraints are checked first",
    ),
    deviation(
        "bad-start",
        "error",
        "-",
        "ValidationException for no digits",
        "ours: a sequence number has a documented pattern, it takes any text",
    ),
];
