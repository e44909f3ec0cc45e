//! Errors: their kinds, words and what they keep to themselves.

mod common;

use std::error::Error;

use bytes::Bytes;
use common::{decode, encode};
use kinesis_compress::{
    CompressError, Compression, Compressor, DecompressError, Decompressor, Level, RecordDecompressError,
};
use kinesis_core::Record;

/// S-203: every kind can be matched, and none is retryable.
#[test]
fn errors_are_kinds_and_none_is_retryable() {
    let kind = |error: &DecompressError| match error {
        DecompressError::DecompressedSizeLimitExceeded { .. } => "size",
        DecompressError::WindowLimitExceeded { .. } => "window",
        DecompressError::NotCompressed { .. } => "not compressed",
        DecompressError::Truncated { .. } => "truncated",
        DecompressError::TrailingData { .. } => "trailing",
        DecompressError::ChecksumMismatch { .. } => "checksum",
        DecompressError::Corrupt { .. } => "corrupt",
        DecompressError::Unsupported { .. } => "unsupported",
        DecompressError::NotEnabled { .. } => "not enabled",
        _ => "unknown",
    };
    for (name, expected, text) in [
        ("gzip_bomb_64_mib_zeros", "size", "decompressed gzip payload exceeds the limit of 1000 bytes"),
        (
            "zstd_window_2_gib_no_size",
            "window",
            "zstd frame needs a window of 2147483648 bytes, the limit is 134217728",
        ),
        ("zstd_magicless", "not compressed", "payload is not zstd"),
        ("lz4_truncated_4", "truncated", "lz4 payload is truncated"),
        ("gzip_trailing_garbage", "trailing", "gzip payload has other bytes after its end, at offset 102"),
        ("gzip_bad_fhcrc", "checksum", "gzip header checksum does not match"),
        ("lz4_bad_block_checksum", "checksum", "lz4 block checksum does not match"),
        ("zstd_bad_checksum", "checksum", "zstd content checksum does not match"),
        ("zstd_reserved_block_type", "corrupt", "zstd payload is corrupt: reserved block type"),
        ("lz4_dictionary_id_present", "unsupported", "lz4 payload uses a dictionary, which is not supported"),
    ] {
        let format: Compression = name.split('_').next().unwrap().parse().unwrap();
        let error = decode(format, &common::frame(name), 1000).unwrap_err();
        assert_eq!(kind(&error), expected, "{name}");
        assert_eq!(error.to_string(), text, "{name}");
        assert!(!error.is_retryable());
        assert_eq!(error.is_limit(), matches!(expected, "size" | "window"));
    }
}

/// S-146, S-205: too large a payload is the error of that name, and it says the limit.
#[test]
fn decompressed_size_limit_exceeded_exists_under_that_name() {
    let packed = Bytes::from(encode(Compression::Zstd, &[0; 200]));
    let error = Decompressor::auto().max_output(199).decompress(&packed).unwrap_err();
    let DecompressError::DecompressedSizeLimitExceeded { limit, format, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((limit, format), (199, "zstd"));
}

/// S-204, F-42: the error of a record names shard, position and length, and shows neither key nor payload.
#[test]
fn the_error_of_a_record_names_it_and_hides_its_contents() {
    let mut data = encode(Compression::Gzip, b"secret-payload");
    data.truncate(data.len() - 1);
    let record = Record::for_test(42, "secret-key", data);
    let source = Decompressor::auto().decompress(record.data()).unwrap_err();
    let error = RecordDecompressError::new(&record, source.clone());
    assert_eq!(error.to_string(), "record 42 of test/shardId-000000000000 (33 bytes) was not decompressed");
    assert_eq!(error.position(), record.position());
    assert_eq!(error.shard(), record.source());
    assert_eq!(error.payload_len(), 33);
    assert_eq!(error.reason(), &source);
    assert!(!error.is_retryable());
    assert_eq!(error.source().unwrap().to_string(), "gzip payload is truncated");
    assert!(!format!("{error:?} {error}").contains("secret"));
}

/// S-206, F-42: what codecs and buffers hold does not show in debug output.
#[test]
fn debug_output_shows_settings_and_no_data() {
    let secret = Bytes::from("secret ".repeat(100));
    for format in Compression::ALL {
        let compressor = Compressor::new(format).unwrap();
        let decompressor = Decompressor::auto();
        let packed = compressor.compress(&secret).unwrap();
        decompressor.decompress(&packed).unwrap();
        let text = format!("{compressor:?} {decompressor:?}");
        assert!(!text.contains("secret") && text.len() < 600, "{text}");
        assert!(text.contains("max_output: 10485760"), "{text}");
    }
}

/// S-203: errors of the encoding side are kinds too.
#[test]
fn an_unknown_level_is_a_kind() {
    let error = Compressor::new(Compression::Gzip).unwrap().level(Level::Exact(99)).unwrap_err();
    assert!(matches!(error, CompressError::UnknownLevel { level: 99, min: 0, max: 9, .. }), "{error}");
    assert!(!error.is_retryable());
}

/// S-138: formats are named as in configuration files.
#[test]
fn formats_have_names() {
    for format in Compression::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    let error = "GZIP".parse::<Compression>().unwrap_err();
    assert_eq!(error.to_string(), "unknown compression format, expected gzip, zstd or lz4");
}

/// Settings are written as in configuration files.
#[cfg(feature = "serde")]
#[test]
fn settings_are_read_from_json() {
    use kinesis_compress::{Incompressible, Lookalikes};
    assert_eq!(serde_json::from_str::<Compression>("\"zstd\"").unwrap(), Compression::Zstd);
    assert_eq!(serde_json::from_str::<Level>("{\"exact\":4}").unwrap(), Level::Exact(4));
    assert_eq!(serde_json::from_str::<Lookalikes>("\"pass_on\"").unwrap(), Lookalikes::PassOn);
    assert_eq!(serde_json::to_string(&Incompressible::PassOn).unwrap(), "\"pass_on\"");
}
