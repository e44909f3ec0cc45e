//! What fuzzing found; the inputs lie in tests/findings.

mod common;

use std::fs;
use std::path::Path;

use common::decode;
use kinesis_compress::{Compression, DecompressError, Decompressor};

fn finding(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings").join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A compressed block that decodes to two bytes more than 128 KiB. libzstd's decoder for whole frames lets it pass,
/// its streaming one does not; nothing but the content's checksum could tell that the frame is damaged, and it has
/// none. The limit holds.
#[test]
fn a_block_that_decodes_to_more_than_128_kib_is_read_within_the_limit() {
    let frame = finding("block_of_131074_bytes.zst");
    assert_eq!(decode(Compression::Zstd, &frame, 300_002).unwrap().len(), 300_002);
    let error = decode(Compression::Zstd, &frame, 300_001).unwrap_err();
    assert!(matches!(error, DecompressError::DecompressedSizeLimitExceeded { .. }), "{error}");
}

/// Empty blocks in a row are legal, although no encoder begins with one: they decode to nothing.
#[test]
fn a_frame_of_empty_blocks_is_empty() {
    let frame = finding("empty_blocks.zst");
    assert_eq!(decode(Compression::Zstd, &frame, 0).unwrap(), b"");
    assert_eq!(Decompressor::auto().decompress(&frame.into()).unwrap(), "");
}
