//! Vectors for `kinesis-compress`: frames with what a decoder should make of them, and payloads that are none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kinesis_compress::{
    Codec, Compression, DEFAULT_MAX_OUTPUT, DecompressError, Decompressor, Gzip, Lookalikes, Zstd,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What `_one_rule` ends: peers differ, and either answer is right.
const EITHER: &str = "_one_rule";

/// How a forced decoder ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    Error,
    Limit,
    NotCompressed,
}

/// Checks a line. `strict` wants the exact kind of refusal, and looks at detection too where the line leaves it
/// open.
pub(super) fn check(line: &Value, strict: bool) -> Result<(), String> {
    if line.get("payload_base64").is_some() { check_payload(line, strict) } else { check_frame(line, strict) }
}

fn check_frame(line: &Value, strict: bool) -> Result<(), String> {
    let format: Compression = text(line, "codec")?.parse().map_err(|_| "unknown codec".to_owned())?;
    let frame = frame(line)?;
    same(line, "frame", &frame)?;
    let expected = Expectation::parse(text(line, "expect")?)?;
    let decoded = decode(codec(format)?, &frame, DEFAULT_MAX_OUTPUT);
    let outcome = outcome(&decoded);
    if !expected.allows(outcome, strict) {
        return Err(match decoded {
            Ok(plain) => format!("decoded to {} bytes, expected {}", plain.len(), expected.0.join(" or ")),
            Err(error) => format!("{error}; expected {}", expected.0.join(" or ")),
        });
    }
    if let Ok(plain) = &decoded {
        same(line, "original", plain)?;
    }
    if outcome == Outcome::Limit && line.get("original_len").is_some() {
        let plain = decode(unlimited(format)?, &frame, usize::MAX)
            .map_err(|error| format!("with the limit raised: {error}"))?;
        same(line, "original", &plain)?;
    }
    check_detection(&frame, outcome, &decoded, strict)
}

/// Detection has to agree with the forced codec, except that it may hand on what does not decode.
fn check_detection(
    frame: &[u8],
    outcome: Outcome,
    decoded: &Result<Vec<u8>, DecompressError>,
    strict: bool,
) -> Result<(), String> {
    let detected = Decompressor::auto().try_decompress(frame, DEFAULT_MAX_OUTPUT);
    match (outcome, &detected) {
        (Outcome::NotCompressed, Ok(None)) | (Outcome::Error | Outcome::Limit, Err(_)) => Ok(()),
        (Outcome::NotCompressed, _) => Err("detection takes it for compressed".to_owned()),
        (Outcome::Error | Outcome::Limit, Ok(Some(_))) => Err("detection gives a payload".to_owned()),
        (Outcome::Limit, Ok(None)) if strict => Err("detection hands on what is over the limit".to_owned()),
        (Outcome::Error | Outcome::Limit, Ok(None)) => Ok(()),
        (Outcome::Ok, Ok(Some(plain))) if decoded.as_ref().is_ok_and(|expected| expected == plain) => Ok(()),
        // Skippable frames alone do not say which format they are.
        (Outcome::Ok, Ok(None)) if decoded.as_ref().is_ok_and(Vec::is_empty) => Ok(()),
        (Outcome::Ok, _) => Err("detection does not give what the codec gives".to_owned()),
    }
}

fn check_payload(line: &Value, strict: bool) -> Result<(), String> {
    let payload = Bytes::from(bytes(line, "payload_base64").ok_or("payload_base64 is not base64")?);
    same(line, "payload", &payload)?;
    match Decompressor::auto().decompress(&payload) {
        Ok(passed) if passed == payload => {}
        Ok(_) => return Err("detection changed it".to_owned()),
        Err(error) => return Err(format!("detection refused it: {error}")),
    }
    for format in Compression::ALL {
        if decode(codec(format)?, &payload, DEFAULT_MAX_OUTPUT).is_ok() {
            return Err(format!("a forced {format} codec accepts it"));
        }
    }
    let looks_like = line["starts_like"].is_string();
    let refused = Decompressor::auto().lookalikes(Lookalikes::Fail).decompress(&payload).is_err();
    if strict && looks_like != refused {
        return Err(format!(
            "with lookalikes failing it is {}",
            if refused { "refused" } else { "passed on" }
        ));
    }
    Ok(())
}

/// The outcomes that a line accepts.
#[derive(Debug)]
struct Expectation<'a>(Vec<&'a str>);

impl<'a> Expectation<'a> {
    fn parse(expect: &'a str) -> Result<Self, String> {
        let outcomes: Vec<_> = expect.strip_suffix(EITHER).unwrap_or(expect).split("_or_").collect();
        let unknown =
            outcomes.iter().find(|outcome| !["ok", "error", "limit", "not_compressed"].contains(outcome));
        match unknown {
            None => Ok(Self(outcomes)),
            Some(unknown) => Err(format!("unknown expectation `{unknown}`")),
        }
    }

    fn allows(&self, outcome: Outcome, strict: bool) -> bool {
        self.0.iter().any(|expected| match outcome {
            Outcome::Ok => *expected == "ok",
            Outcome::Limit => *expected == "limit" || (*expected == "error" && !strict),
            Outcome::NotCompressed => *expected == "not_compressed" || *expected == "error",
            Outcome::Error => *expected == "error",
        })
    }
}

const fn outcome(result: &Result<Vec<u8>, DecompressError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(error) if error.is_limit() => Outcome::Limit,
        Err(DecompressError::NotCompressed { .. }) => Outcome::NotCompressed,
        Err(_) => Outcome::Error,
    }
}

fn codec(format: Compression) -> Result<Box<dyn Codec>, String> {
    format.codec().ok_or_else(|| format!("{format} is not compiled in"))
}

fn unlimited(format: Compression) -> Result<Box<dyn Codec>, String> {
    if format == Compression::Zstd { Ok(Box::new(Zstd::new().max_window(u64::MAX))) } else { codec(format) }
}

fn decode(mut codec: Box<dyn Codec>, input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    codec.decode(input, limit, &mut out).map(|()| out)
}

fn frame(line: &Value) -> Result<Vec<u8>, String> {
    if let Some(frame) = bytes(line, "frame_base64") {
        return Ok(frame);
    }
    let packed = bytes(line, "frame_gzip_base64").ok_or("there is no frame")?;
    decode(Box::new(Gzip::new()), &packed, usize::MAX)
        .map_err(|error| format!("unpacking the frame: {error}"))
}

fn text<'a>(line: &'a Value, field: &str) -> Result<&'a str, String> {
    line[field].as_str().ok_or_else(|| format!("there is no {field}"))
}

fn bytes(line: &Value, field: &str) -> Option<Vec<u8>> {
    STANDARD.decode(line[field].as_str()?).ok()
}

/// Compares length and digest with the fields that begin with `prefix`, where they are given.
fn same(line: &Value, prefix: &str, bytes: &[u8]) -> Result<(), String> {
    let length = &line[format!("{prefix}_len")];
    if length.as_u64().is_some_and(|length| length != bytes.len() as u64) {
        return Err(format!("{prefix} has {} bytes and not {length}", bytes.len()));
    }
    let digest = line[format!("{prefix}_sha256")].as_str();
    if digest.is_some_and(|digest| digest != hex(&Sha256::digest(bytes))) {
        return Err(format!("{prefix} has other bytes than expected"));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `hello` by gzip, with a digest of the original.
    fn line(expect: &str) -> Value {
        json!({
            "name": "hello", "codec": "gzip", "expect": expect, "original_len": 5,
            "original_sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "frame_base64": "H4sIAAAAAAACA8tIzcnJBwCGphA2BQAAAA==",
        })
    }

    #[test]
    fn a_right_expectation_agrees_and_a_wrong_one_does_not() {
        for expect in ["ok", "ok_or_error_one_rule", "error_or_ok_one_rule", "not_compressed_or_ok_one_rule"]
        {
            assert_eq!(check(&line(expect), true), Ok(()), "{expect}");
        }
        assert_eq!(check(&line("error"), false).unwrap_err(), "decoded to 5 bytes, expected error");
        assert!(check(&line("not_compressed"), false).is_err());
        assert_eq!(check(&line("perhaps"), false).unwrap_err(), "unknown expectation `perhaps`");
    }

    #[test]
    fn the_original_is_compared_by_length_and_digest() {
        let mut other = line("ok");
        other["original_len"] = json!(6);
        assert_eq!(check(&other, false).unwrap_err(), "original has 5 bytes and not 6");
        let mut other = line("ok");
        other["original_sha256"] = json!("00");
        assert_eq!(check(&other, false).unwrap_err(), "original has other bytes than expected");
    }

    #[test]
    fn a_limit_counts_as_an_error_unless_strict() {
        let error = Expectation::parse("error").unwrap();
        assert!(error.allows(Outcome::Limit, false) && !error.allows(Outcome::Limit, true));
        let limit = Expectation::parse("error_or_limit").unwrap();
        assert!(limit.allows(Outcome::Limit, true) && limit.allows(Outcome::Error, true));
        assert!(!limit.allows(Outcome::Ok, false));
    }

    #[test]
    fn a_payload_that_is_a_frame_is_a_mismatch() {
        let frame = line("ok")["frame_base64"].clone();
        let error = check(&json!({"name": "x", "payload_base64": frame}), false).unwrap_err();
        assert_eq!(error, "detection changed it");
    }
}
