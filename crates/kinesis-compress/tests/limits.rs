//! Bombs: what unpacks to far more than it is, or says that it does, under a counting allocator.
//!
//! libzstd takes its memory from the same allocator in these tests (feature `with-rust-allocator`).
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::thread;

use allocation_counter::measure;
use bytes::Bytes;
use common::{codec, decode, encode, frame};
use kinesis_compress::{Compression, DEFAULT_MAX_OUTPUT, DecompressError, Decompressor, Level};

const MIB: u64 = 1024 * 1024;
/// Beyond the output: contexts (zstd's are the largest, about 160 KiB), and one block of lz4.
const CONTEXT: u64 = 256 * 1024;
const LZ4_BLOCK: u64 = 4 * MIB;

/// What decoding gives, and the most memory in bytes that it held at any moment.
fn peak(format: Compression, frame: &[u8], limit: usize) -> (Result<usize, DecompressError>, u64) {
    let mut result = None;
    let info = measure(|| result = Some(decode(format, frame, limit).map(|plain| plain.len())));
    (result.unwrap(), info.bytes_max)
}

fn assert_limit_exceeded(format: Compression, bytes: &[u8], ceiling: u64) {
    let (result, peak) = peak(format, bytes, DEFAULT_MAX_OUTPUT);
    let Err(DecompressError::DecompressedSizeLimitExceeded { format: named, limit, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!((named, limit), (format.as_str(), 10 * 1024 * 1024));
    assert!(peak <= ceiling, "{format}: {peak} bytes at the peak, {ceiling} allowed");
}

/// The counter sees libzstd's memory too: without that the ceilings below would mean little.
#[test]
fn the_counter_sees_the_memory_of_libzstd() {
    let (result, peak) = peak(Compression::Zstd, &encode(Compression::Zstd, b"x"), 1);
    assert_eq!(result, Ok(1));
    assert!(peak > 50_000, "{peak} bytes");
}

/// S-144, S-145, F-41: 64 MiB of zeros stop at the default limit; memory stays at the limit plus the context.
#[test]
fn a_bomb_of_64_mib_is_refused_within_the_memory_ceiling() {
    let limit = DEFAULT_MAX_OUTPUT as u64;
    // While a gzip output grows, the old buffer and the new one exist at the same time.
    assert_limit_exceeded(Compression::Gzip, &frame("gzip_bomb_64_mib_zeros"), 2 * limit + CONTEXT);
    // Declared sizes are checked before anything is taken.
    assert_limit_exceeded(Compression::Zstd, &frame("zstd_bomb_64_mib_zeros"), 1024);
    assert_limit_exceeded(Compression::Zstd, &frame("zstd_bomb_64_mib_zeros_no_size"), limit + CONTEXT);
    assert_limit_exceeded(Compression::Zstd, &frame("zstd_bomb_rle_64_mib_2_kb"), limit + CONTEXT);
    assert_limit_exceeded(Compression::Lz4, &frame("lz4_bomb_64_mib_zeros"), 1024);
    assert_limit_exceeded(Compression::Lz4, &frame("lz4_bomb_64_mib_zeros_no_size"), 2 * limit + LZ4_BLOCK);
}

/// S-144, S-145, F-41: a gigabyte out of a record that Kinesis accepts, twenty at the same time.
#[test]
fn twenty_bombs_of_a_gigabyte_at_once_are_refused() {
    let zeros = vec![0; 64 << 20];
    for format in [Compression::Gzip, Compression::Zstd] {
        let one = encode(format, &zeros);
        let bomb = Bytes::from(one.repeat(16));
        assert!(bomb.len() < 1024 * 1024 + 64 * 1024, "{format}: {} bytes", bomb.len());
        let decompressor = Decompressor::auto();
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut result = None;
                    let info = measure(|| result = Some(decompressor.decompress(&bomb)));
                    assert!(result.unwrap().unwrap_err().is_limit());
                    assert!(info.bytes_max <= 21 * MIB, "{format}: {} bytes", info.bytes_max);
                });
            }
        });
    }
}

/// S-145, F-41: sizes that a frame merely declares (2^60 bytes, 2^64 - 1, 4 GiB, a window of terabytes) take no memory.
#[test]
fn declared_sizes_take_no_memory() {
    for name in [
        "gzip_isize_says_4_gib",
        "zstd_content_size_says_2_60",
        "zstd_content_size_says_u64_max",
        "zstd_content_size_says_100_mib",
        "zstd_window_2_gib_no_size",
        "zstd_window_too_large_3_75_tib",
        "zstd_skippable_says_4_gib",
        "lz4_content_size_says_2_60",
        "lz4_block_says_2_gib",
    ] {
        let format: Compression = name.split('_').next().unwrap().parse().unwrap();
        let (result, peak) = peak(format, &frame(name), DEFAULT_MAX_OUTPUT);
        assert!(result.is_err(), "{name}");
        assert!(peak <= CONTEXT, "{name}: {peak} bytes");
    }
}

/// F-41: thousands of empty frames are read in one pass, without memory.
#[test]
fn many_empty_frames_take_no_memory() {
    for name in ["gzip_bomb_many_empty_members", "zstd_bomb_many_empty_frames", "lz4_bomb_many_empty_frames"]
    {
        let format: Compression = name.split('_').next().unwrap().parse().unwrap();
        let (result, peak) = peak(format, &frame(name), DEFAULT_MAX_OUTPUT);
        assert_eq!(result, Ok(0), "{name}");
        assert!(peak <= CONTEXT, "{name}: {peak} bytes");
    }
}

/// S-144: frames add up: the limit is for the payload and not for one frame of it.
#[test]
fn the_limit_is_for_all_frames_together() {
    for format in Compression::ALL {
        let frames = encode(format, &common::text(1000)).repeat(10);
        assert_eq!(decode(format, &frames, 10_000).unwrap().len(), 10_000);
        let error = decode(format, &frames, 9_999).unwrap_err();
        assert!(
            matches!(error, DecompressError::DecompressedSizeLimitExceeded { limit: 9_999, .. }),
            "{error}"
        );
    }
}

/// S-144: the limit is 10 MiB by default and can be set higher or lower.
#[test]
fn the_limit_can_be_overridden() {
    let plain = vec![b'x'; DEFAULT_MAX_OUTPUT + 1];
    for format in Compression::ALL {
        let packed = Bytes::from(encode(format, &plain));
        let decompressor = Decompressor::auto();
        assert!(decompressor.decompress(&packed).unwrap_err().is_limit());
        assert_eq!(decompressor.clone().max_output(plain.len()).decompress(&packed).unwrap(), plain);

        let exact = Bytes::from(encode(format, &plain[1..]));
        assert_eq!(decompressor.decompress(&exact).unwrap().len(), DEFAULT_MAX_OUTPUT);
        let error = decompressor.max_output(100).decompress(&exact).unwrap_err();
        assert!(
            matches!(error, DecompressError::DecompressedSizeLimitExceeded { limit: 100, .. }),
            "{error}"
        );
    }
}

/// S-144: a limit of nothing lets an empty payload through, and nothing else.
#[test]
fn a_limit_of_zero_accepts_empty_payloads() {
    for format in Compression::ALL {
        assert_eq!(decode(format, &encode(format, b""), 0), Ok(Vec::new()));
        assert!(decode(format, &encode(format, b"x"), 0).unwrap_err().is_limit());
    }
}

/// F-41: a buffer of the caller's that is larger than the limit does not raise the limit.
#[test]
fn a_large_buffer_does_not_raise_the_limit() {
    for format in Compression::ALL {
        let mut out = Vec::with_capacity(100_000);
        let packed = encode(format, &common::text(50_000));
        let error = codec(format).decode(&packed, 49_999, &mut out).unwrap_err();
        assert!(error.is_limit(), "{error}");
        assert!(out.is_empty());
    }
}

/// S-142: what counts on the wire is the compressed size: 20 MB of text fit into a record of 10 MiB.
#[test]
fn twenty_megabytes_of_text_fit_into_a_record() {
    let text = common::text(20_000_000);
    for format in Compression::ALL {
        let mut packed = Vec::new();
        codec(format).encode(&text, Level::Fastest, &mut packed).unwrap();
        assert!(packed.len() < 10 * 1024 * 1024, "{format}: {}", packed.len());
        assert!(decode(format, &packed, 20_000_000).unwrap() == text);
    }
}
