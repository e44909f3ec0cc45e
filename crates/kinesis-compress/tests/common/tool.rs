//! The command line tools of the formats.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::process::{Command, Stdio};

use kinesis_compress::{Compression, Level};

use super::{UNLIMITED, codec, decode, noise, text};

/// Runs a tool from file to file; its name is the name of the format.
fn run_tool(format: Compression, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    fs::write(&path, input).unwrap();
    let output = Command::new(format.as_str())
        .args(arguments)
        .stdin(fs::File::open(&path).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("the {format} tool has to be installed: {error}"));
    assert!(output.status.success(), "{format} {arguments:?}: {}", output.status);
    output.stdout
}

/// The tool reads what we write at these levels, and we read what it writes.
pub(crate) fn check_both_ways(format: Compression, levels: &[i32]) {
    for plain in [Vec::new(), b"x".to_vec(), text(5_000_000), noise(100_000)] {
        for &level in levels {
            let mut packed = Vec::new();
            codec(format).encode(&plain, Level::Exact(level), &mut packed).unwrap();
            assert!(
                run_tool(format, &["-d", "-c"], &packed) == plain,
                "{} bytes, level {level}",
                plain.len()
            );
        }
        for level in ["-1", "-6"] {
            let packed = run_tool(format, &[level, "-c"], &plain);
            assert!(decode(format, &packed, UNLIMITED).unwrap() == plain, "{} bytes, {level}", plain.len());
        }
    }
}
