//! What a warm codec allocates: its output and nothing else.
//!
//! libzstd takes its memory from the same allocator in these tests (feature `with-rust-allocator`).

mod common;

use allocation_counter::measure;
use bytes::Bytes;
use common::{codec, noise, text};
use kinesis_compress::{Compression, Compressor, Decompressor, Level};

const SIZES: [usize; 4] = [0, 100, 50_000, 1_000_000];

/// With a buffer of the right size, a warm codec of any format allocates nothing at all.
#[test]
fn a_warm_codec_allocates_nothing_into_a_buffer_that_fits() {
    for format in Compression::ALL {
        let mut codec = codec(format);
        for plain in SIZES.map(text).into_iter().chain([noise(100_000)]) {
            let (mut packed, mut out) = (Vec::new(), Vec::new());
            codec.encode(&plain, Level::Default, &mut packed).unwrap();
            codec.decode(&packed, plain.len(), &mut out).unwrap();

            let info = measure(|| codec.encode(&plain, Level::Default, &mut packed).unwrap());
            assert_eq!(info.count_total, 0, "{format} encodes {} bytes", plain.len());
            let info = measure(|| codec.decode(&packed, plain.len(), &mut out).unwrap());
            assert_eq!(info.count_total, 0, "{format} decodes {} bytes", plain.len());
            assert!(out == plain);
        }
    }
}

/// A warm decompressor makes one allocation for each payload: the output, at its exact size.
#[test]
fn a_warm_decompressor_allocates_only_the_output() {
    for format in Compression::ALL {
        let decompressor = Decompressor::auto();
        let compressor = Compressor::new(format).unwrap();
        for plain in SIZES.map(|length| Bytes::from(text(length.max(1)))) {
            let packed = compressor.compress(&plain).unwrap();
            assert_eq!(decompressor.decompress(&packed).unwrap(), plain);
            let info = measure(|| drop(decompressor.decompress(&packed).unwrap()));
            assert_eq!(info.count_total, 1, "{format}, {} bytes", plain.len());
            assert_eq!(info.bytes_total, plain.len() as u64, "{format}");
        }
    }
}

/// A warm compressor makes one allocation for each payload: the output, at its exact size (and the shared handle).
#[test]
fn a_warm_compressor_allocates_only_the_output() {
    for format in Compression::ALL {
        let compressor = Compressor::new(format).unwrap();
        let plain = Bytes::from(text(50_000));
        let packed = compressor.compress(&plain).unwrap();
        let info = measure(|| drop(compressor.compress(&plain).unwrap()));
        assert_eq!(info.count_total, 1, "{format}");
        assert_eq!(info.bytes_total, packed.len() as u64, "{format}");
    }
}

/// What is not compressed passes without an allocation and without a context.
#[test]
fn plain_payloads_pass_without_an_allocation() {
    let decompressor = Decompressor::auto();
    let plain = Bytes::from(text(1000));
    let info = measure(|| drop(decompressor.decompress(&plain).unwrap()));
    assert_eq!(info.count_total, 0);
}

/// lz4 frames that do not say their size go by way of one buffer, which is kept: made once, then only the output.
#[test]
fn lz4_frames_without_a_size_use_one_buffer_that_is_kept() {
    let frame = common::frame("lz4_rep_300k_cli");
    let mut codec = codec(Compression::Lz4);
    let mut out = Vec::new();
    let cold = measure(|| codec.decode(&frame, 300_000, &mut out).unwrap());
    assert_eq!(cold.count_total, 2, "the block's buffer and the output");
    let warm = measure(|| codec.decode(&frame, 300_000, &mut out).unwrap());
    assert_eq!(warm.count_total, 0);
}

/// The contexts take the memory that the README names, in KiB: to decode, and to encode 1 MB.
#[test]
fn contexts_take_the_memory_that_the_readme_names() {
    for (format, to_decode, to_encode) in
        [(Compression::Gzip, 46, 371), (Compression::Zstd, 93, 1280), (Compression::Lz4, 1, 17)]
    {
        let plain = text(1_000_000);
        let (mut packed, mut out) = (Vec::with_capacity(2_000_000), Vec::with_capacity(2_000_000));
        let mut fresh = codec(format);
        let info = measure(|| fresh.encode(&plain, Level::Default, &mut packed).unwrap());
        assert!(info.bytes_max <= (to_encode + 1) * 1024, "{format} encodes with {}", info.bytes_max);
        let mut fresh = codec(format);
        let info = measure(|| fresh.decode(&packed, plain.len(), &mut out).unwrap());
        assert!(info.bytes_max <= (to_decode + 1) * 1024, "{format} decodes with {}", info.bytes_max);
    }
}
