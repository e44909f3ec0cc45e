//! The zstd and lz4 tools read what we write, and we read what they write.

mod common;

use common::tool::check_both_ways;
use kinesis_compress::Compression;

/// S-139: the zstd tool and we read each other.
#[test]
#[ignore = "needs peers"]
fn zstd_tool_both_ways() {
    check_both_ways(Compression::Zstd, &[-7, 1, 3, 12]);
}

/// S-139: the lz4 tool and we read each other.
#[test]
#[ignore = "needs peers"]
fn lz4_tool_both_ways() {
    check_both_ways(Compression::Lz4, &[1]);
}
