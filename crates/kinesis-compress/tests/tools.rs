//! The gzip tool reads what we write, and we read what it writes.

mod common;

use common::tool::check_both_ways;
use kinesis_compress::Compression;

/// S-139: the gzip tool and we read each other.
#[test]
fn gzip_tool_both_ways() {
    check_both_ways(Compression::Gzip, &[0, 1, 6, 9]);
}
