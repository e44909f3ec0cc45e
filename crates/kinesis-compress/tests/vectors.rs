//! Frames of other implementations, and bytes that only look like frames; see tests/vectors/README.md.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use bytes::Bytes;
use common::{UNLIMITED, decode, frame_of, vectors};
use kinesis_compress::{Compression, DEFAULT_MAX_OUTPUT, DecompressError, Decompressor, Lookalikes};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_original(line: &Value, bytes: &[u8]) -> bool {
    line["original_len"] == bytes.len() && line["original_sha256"] == hex(bytes)
}

/// What we make of the lines for which the formats allow more than one answer.
const OUR_RULES: &[(&str, &str)] = &[
    // Padding with zeros is what tar writes and what the gzip tool reads.
    ("gzip_trailing_zero_padding", "ok"),
    // RFC 1952 wants an error, and a checksum that is there is there to be checked.
    ("gzip_reserved_flag_bits", "error"),
    ("gzip_bad_fhcrc", "error"),
    // Frames without content are read, as by both tools.
    ("zstd_skippable_only", "ok"),
    ("lz4_skippable_only", "ok"),
    // RFC 8878: a decoder ignores the unused bit; a block has at most 128 KiB.
    ("zstd_unused_header_bit", "ok"),
    ("zstd_block_over_128_kib", "error"),
    // What was made with a dictionary cannot be trusted to come out right without it.
    ("lz4_dictionary_id_present", "error"),
    ("lz4_json_4k_cli_legacy", "not_compressed"),
];

fn our_rule(name: &str) -> &'static str {
    OUR_RULES.iter().find(|(line, _)| *line == name).unwrap_or_else(|| panic!("{name} needs a rule")).1
}

fn check(format: Compression, line: &Value) {
    let name = line["name"].as_str().unwrap();
    let frame = frame_of(line);
    assert_eq!(line["frame_len"], frame.len(), "{name}");
    assert_eq!(line["frame_sha256"], hex(&frame), "{name}");
    let expect = line["expect"].as_str().unwrap();
    let expect = if expect.ends_with("_one_rule") { our_rule(name) } else { expect };
    let result = decode(format, &frame, DEFAULT_MAX_OUTPUT);
    let auto = Decompressor::auto().try_decompress(&frame, DEFAULT_MAX_OUTPUT);
    match expect {
        "ok" => {
            let plain = result.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(is_original(line, &plain), "{name}");
            if !name.ends_with("skippable_only") {
                assert_eq!(auto.unwrap().unwrap(), plain, "{name}");
            }
        }
        "limit" => {
            assert!(result.unwrap_err().is_limit(), "{name}");
            assert!(auto.unwrap_err().is_limit(), "{name}");
            if !line["original_len"].is_null() {
                assert!(is_original(line, &decode(format, &frame, UNLIMITED).unwrap()), "{name}");
            }
        }
        "error" => assert!(!result.unwrap_err().is_limit(), "{name}"),
        "error_or_limit" => assert!(result.is_err(), "{name}"),
        "not_compressed" => {
            assert!(matches!(result.unwrap_err(), DecompressError::NotCompressed { .. }), "{name}");
            assert_eq!(auto, Ok(None), "{name}");
        }
        other => panic!("{name}: unknown expectation {other}"),
    }
}

fn check_file(format: Compression, expected: usize) {
    let lines = vectors(&format!("{format}.jsonl"));
    for line in &lines {
        check(format, line);
    }
    assert_eq!(lines.len(), expected);
}

/// S-138, S-139: gzip frames of zlib, the gzip tool and hand-made ones.
#[test]
fn gzip_vectors() {
    check_file(Compression::Gzip, 44);
}

/// S-138, S-139: zstd frames of libzstd, the zstd tool and hand-made ones.
#[test]
fn zstd_vectors() {
    check_file(Compression::Zstd, 71);
}

/// S-138, S-139: lz4 frames of liblz4, the lz4 tool and hand-made ones.
#[test]
fn lz4_vectors() {
    check_file(Compression::Lz4, 75);
}

/// S-143: what is not compressed, or only looks like it, is handed on; a codec that is forced on it refuses.
#[test]
fn not_compressed_vectors_pass_unchanged_and_are_refused_by_a_forced_codec() {
    let strict = Decompressor::auto().lookalikes(Lookalikes::Fail);
    let lines = vectors("not-compressed.jsonl");
    for line in &lines {
        let name = line["name"].as_str().unwrap();
        let payload = Bytes::from(
            base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                line["payload_base64"].as_str().unwrap(),
            )
            .unwrap(),
        );
        assert_eq!(line["payload_sha256"], hex(&payload), "{name}");
        let passed =
            Decompressor::auto().decompress(&payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(passed, payload, "{name}");
        assert_eq!(passed.as_ptr(), payload.as_ptr(), "{name}: not a copy");
        for format in Compression::ALL {
            assert!(decode(format, &payload, DEFAULT_MAX_OUTPUT).is_err(), "{name} as {format}");
        }
        let looks_like_a_frame = line["starts_like"].is_string();
        assert_eq!(strict.decompress(&payload).is_err(), looks_like_a_frame, "{name}");
    }
    assert_eq!(lines.len(), 43);
}
