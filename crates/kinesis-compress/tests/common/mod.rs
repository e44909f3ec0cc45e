//! What several tests need.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

pub(crate) mod tool;

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kinesis_compress::{Codec, Compression, DecompressError, Gzip};
use serde_json::Value;

pub(crate) const UNLIMITED: usize = 1 << 30;

/// The lines of a file of tests/vectors.
pub(crate) fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line of this name in tests/vectors.
pub(crate) fn frame(name: &str) -> Vec<u8> {
    let file = format!("{}.jsonl", name.split('_').next().unwrap());
    frame_of(vectors(&file).iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}")))
}

/// The frame of a line, which may be packed once more.
pub(crate) fn frame_of(line: &Value) -> Vec<u8> {
    let bytes = |field: &str| line[field].as_str().map(|text| STANDARD.decode(text).unwrap());
    bytes("frame_base64").unwrap_or_else(|| {
        let packed = bytes("frame_gzip_base64").unwrap();
        let mut out = Vec::new();
        Gzip::new().decode(&packed, UNLIMITED, &mut out).unwrap();
        out
    })
}

pub(crate) fn codec(format: Compression) -> Box<dyn Codec> {
    format.codec().unwrap()
}

/// Decodes with a codec of its own.
pub(crate) fn decode(format: Compression, input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    codec(format).decode(input, limit, &mut out).map(|()| out)
}

/// Encodes with a codec of its own, at the default level.
pub(crate) fn encode(format: Compression, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec(format).encode(input, kinesis_compress::Level::Default, &mut out).unwrap();
    out
}

/// About 700 bytes of JSON a line, the same on every run.
pub(crate) fn text(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut out = Vec::with_capacity(length + 100);
    while out.len() < length {
        let line = format!(
            "{{\"magnitude\":{:.1},\"place\":\"{} km from {}\",\"time\":{}}}\n",
            random.f32() * 9.0,
            random.u8(..),
            ["Quito", "Reykjavík", "Kōbe", "Valdivia"][random.usize(..4)],
            random.u32(..),
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(length);
    out
}

/// Bytes that do not shrink, the same on every run.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    fastrand::Rng::with_seed(11).fill(&mut out);
    out
}
