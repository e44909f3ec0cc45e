//! What is taken for compressed, and what becomes of the rest.

mod common;

use bytes::Bytes;
use common::{encode, frame, text};
use kinesis_compress::{
    Codec, Compression, Compressor, DecompressError, Decompressor, Incompressible, Level, Lookalikes, Zstd,
};
use kinesis_core::payload::{self, Decoded, PayloadDecoder, PayloadEncoder};

const SKIPPABLE: &[u8] = &[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'a', b'b', b'c'];

/// S-143: a stream that mixes plain records with those of every format comes out right.
#[test]
fn a_mixed_stream_comes_out_right() {
    let plain = Bytes::from(text(2000));
    let decompressor = Decompressor::auto();
    for format in Compression::ALL {
        let packed = Compressor::new(format).unwrap().compress(&plain).unwrap();
        for payload in [&plain, &packed, &Bytes::new(), &packed, &plain] {
            let expected = if payload.is_empty() { payload } else { &plain };
            assert_eq!(decompressor.decompress(payload).unwrap(), expected);
        }
    }
}

/// S-143: a decompressor for one format passes the other formats on as they are.
#[test]
fn one_format_passes_the_others_on() {
    for format in Compression::ALL {
        let decompressor = Decompressor::only(format).unwrap();
        assert_eq!(decompressor.name(), format.as_str());
        for other in Compression::ALL {
            let packed = Bytes::from(encode(other, b"payload"));
            let out = decompressor.decompress(&packed).unwrap();
            assert_eq!(out == packed, other != format, "{other} through {format}");
        }
    }
}

/// A payload is unpacked once, whatever comes out.
#[test]
fn what_was_compressed_twice_is_decompressed_once() {
    let inner = Bytes::from(encode(Compression::Zstd, b"payload"));
    let outer = Bytes::from(encode(Compression::Gzip, &inner));
    assert_eq!(Decompressor::auto().decompress(&outer).unwrap(), inner);
}

/// The magic numbers are exact: one bit off, or one byte short, is not the format.
#[test]
fn magic_numbers_are_exact() {
    for (format, magic) in [
        (Compression::Gzip, &[0x1f, 0x8b, 8][..]),
        (Compression::Zstd, &[0x28, 0xb5, 0x2f, 0xfd]),
        (Compression::Lz4, &[0x04, 0x22, 0x4d, 0x18]),
    ] {
        let codec = format.codec().unwrap();
        assert!(codec.recognises(magic));
        assert!(!codec.recognises(&magic[..magic.len() - 1]));
        for bit in 0..magic.len() * 8 {
            let mut other = magic.to_vec();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!codec.recognises(&other), "{format}: bit {bit}");
        }
    }
}

/// Skippable frames count only when a real frame of the format follows them.
#[test]
fn skippable_frames_count_only_before_a_real_frame() {
    for format in [Compression::Zstd, Compression::Lz4] {
        let mut payload = SKIPPABLE.repeat(2);
        let alone = Bytes::from(payload.clone());
        payload.extend_from_slice(&encode(format, b"payload"));
        assert_eq!(Decompressor::auto().decompress(&payload.into()).unwrap(), "payload");
        assert_eq!(Decompressor::auto().try_decompress(&alone, 100), Ok(None));
        assert_eq!(
            common::decode(format, &alone, 100),
            Ok(Vec::new()),
            "a forced codec reads them as nothing"
        );
    }
    let gzip = [SKIPPABLE, &encode(Compression::Gzip, b"payload")].concat();
    assert_eq!(Decompressor::auto().try_decompress(&gzip, 100), Ok(None));
}

/// F-41: a real frame that was cut short or damaged is an error, not a payload that is passed on.
#[test]
fn damaged_frames_are_errors_and_not_passed_on() {
    let plain = text(3000);
    for format in Compression::ALL {
        let whole = encode(format, &plain);
        for cut in [1, 4, 9, whole.len() / 2] {
            let part = Bytes::copy_from_slice(&whole[..whole.len() - cut]);
            let error = Decompressor::auto().decompress(&part).unwrap_err();
            assert!(matches!(error, DecompressError::Truncated { .. }), "{format} less {cut}: {error}");
        }
        let mut damaged = whole.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert!(Decompressor::auto().decompress(&damaged.into()).is_err(), "{format}");
        let garbage = Bytes::from([whole.as_slice(), b"garbage"].concat());
        let error = Decompressor::auto().decompress(&garbage).unwrap_err();
        assert!(
            matches!(error, DecompressError::TrailingData { offset, .. } if offset == whole.len()),
            "{format}: {error}"
        );
    }
    let dictionary = Bytes::from(frame("zstd_needs_dictionary_id"));
    let error = Decompressor::auto().decompress(&dictionary).unwrap_err();
    assert!(matches!(error, DecompressError::Unsupported { what: "a dictionary", .. }), "{error}");
}

/// Short payloads are damaged frames too, when their first block says so.
#[test]
fn a_short_frame_with_a_wrong_checksum_is_an_error() {
    let mut packed = encode(Compression::Gzip, b"0123456789abcdefghij");
    let at = packed.len() - 8;
    packed[at] ^= 1;
    let error = Decompressor::auto().decompress(&packed.into()).unwrap_err();
    assert!(matches!(error, DecompressError::ChecksumMismatch { part: "content", .. }), "{error}");
}

/// Bytes behind a magic number that are no frame are passed on, or refused on request.
#[test]
fn lookalikes_are_passed_on_unless_they_are_to_fail() {
    let payload = Bytes::from([&[0x28, 0xb5, 0x2f, 0xfd][..], b" is how this text begins"].concat());
    let decompressor = Decompressor::auto();
    assert_eq!(decompressor.decompress(&payload).unwrap(), payload);
    assert!(decompressor.lookalikes(Lookalikes::Fail).decompress(&payload).is_err());
}

/// S-143: of random bytes behind a magic number, fewer than one in a hundred are taken for a damaged frame.
#[test]
fn random_lookalikes_are_passed_on() {
    let decompressor = Decompressor::auto();
    let mut random = fastrand::Rng::with_seed(3);
    for magic in [&[0x1f, 0x8b, 8][..], &[0x28, 0xb5, 0x2f, 0xfd], &[0x04, 0x22, 0x4d, 0x18]] {
        let refused = (0..2000).filter(|_| {
            let rest: Vec<u8> = (0..random.usize(1..500)).map(|_| random.u8(..)).collect();
            decompressor.decompress(&[magic, &rest].concat().into()).is_err()
        });
        assert!(refused.count() < 20, "{magic:x?}");
    }
}

/// F-41: a zstd frame whose blocks go wrong after the first one is an error and not passed on.
#[test]
fn a_chain_of_blocks_that_goes_wrong_late_is_a_damaged_frame() {
    let mut frame = frame("zstd_rep_300k_no_size");
    // The size field of the second block; the first is 128 KiB in one compressed block.
    let first = usize::from(frame[6]) | usize::from(frame[7]) << 8 | usize::from(frame[8]) << 16;
    let second = 9 + (first >> 3);
    frame[second..second + 3].fill(0xff);
    let error = Decompressor::auto().decompress(&frame.into()).unwrap_err();
    assert!(matches!(error, DecompressError::Corrupt { format: "zstd", .. }), "{error}");
}

/// The window limit of zstd can be lowered; frames of one segment have no window.
#[test]
fn the_window_limit_of_zstd_applies_to_frames_with_a_window() {
    let long = frame("zstd_rep_300k_no_size");
    let mut strict = Zstd::new().max_window(64 * 1024);
    let mut out = Vec::new();
    let error = strict.decode(&long, 1 << 20, &mut out).unwrap_err();
    assert!(
        matches!(error, DecompressError::WindowLimitExceeded { limit: 65_536, window, .. } if window > 65_536),
        "{error}"
    );
    strict.decode(&encode(Compression::Zstd, &text(200_000)), 1 << 20, &mut out).unwrap();
    assert_eq!(out.len(), 200_000);
    let auto = Decompressor::with_codecs([Box::new(strict) as Box<dyn Codec>]);
    assert!(auto.decompress(&long.into()).unwrap_err().is_limit());
}

/// As the engine's decoder: unchanged, changed, too large, damaged.
#[test]
fn a_decompressor_is_a_payload_decoder() {
    let decoder: &dyn PayloadDecoder = &Decompressor::auto();
    let plain = Bytes::from(text(1000));
    let packed = Bytes::from(encode(Compression::Gzip, &plain));
    assert_eq!(decoder.decode(&plain, 1000).unwrap(), Decoded::Unchanged);
    assert_eq!(decoder.decode(&packed, 1000).unwrap(), Decoded::Changed(plain));
    let error = decoder.decode(&packed, 999).unwrap_err();
    assert!(
        matches!(error, payload::DecodeError::LimitExceeded { decoder: "gzip", limit: 999, .. }),
        "{error}"
    );
    let error = decoder.decode(&packed.slice(..100), 1000).unwrap_err();
    assert!(matches!(error, payload::DecodeError::Damaged { .. }), "{error}");
    let source = std::error::Error::source(&error).unwrap().downcast_ref::<DecompressError>();
    assert!(matches!(source, Some(DecompressError::Truncated { .. })));
}

/// S-140: as the producer's encoder.
#[test]
fn a_compressor_is_a_payload_encoder() {
    let encoder: &dyn PayloadEncoder = &Compressor::new(Compression::Lz4).unwrap();
    assert_eq!(encoder.name(), "lz4");
    let plain = Bytes::from(text(1000));
    let packed = encoder.encode(&plain).unwrap();
    assert!(packed.len() < 700);
    assert_eq!(Decompressor::auto().decompress(&packed).unwrap(), plain);
}

/// F-44: data that does not shrink goes out as it is when asked for, unless a reader would take it for compressed.
#[test]
fn incompressible_payloads_are_passed_on_when_asked_for() {
    let noise = Bytes::from(common::noise(1024 * 1024 - 10));
    for format in Compression::ALL {
        let compressor = Compressor::new(format).unwrap();
        for level in [Level::Fastest, Level::Default, Level::Best] {
            let grown = compressor.clone().level(level).unwrap().compress(&noise).unwrap();
            assert!(grown.len() > noise.len());
            assert!(grown.len() < noise.len() + 400, "{format} adds {}", grown.len() - noise.len());
            assert_eq!(Decompressor::auto().decompress(&grown).unwrap(), noise, "{format} {level:?}");
        }

        let careful = compressor.incompressible(Incompressible::PassOn);
        let sent = careful.compress(&noise).unwrap();
        assert_eq!(sent.as_ptr(), noise.as_ptr());
        assert_eq!(careful.try_compress(&noise), Ok(None));
        assert!(careful.compress(&Bytes::from(text(1000))).unwrap().len() < 1000);

        let already = Bytes::from(encode(format, &noise));
        let twice = careful.compress(&already).unwrap();
        assert_ne!(twice, already, "{format} in {format} must be wrapped");
        assert_eq!(Decompressor::auto().max_output(2 << 20).decompress(&twice).unwrap(), already);
    }
}

/// S-138: levels trade size for time, and a level that does not exist is refused when it is set.
#[test]
fn levels_are_checked_and_change_the_size() {
    let plain = Bytes::from(text(200_000));
    for format in [Compression::Gzip, Compression::Zstd] {
        let size =
            |level| Compressor::new(format).unwrap().level(level).unwrap().compress(&plain).unwrap().len();
        assert!(size(Level::Best) < size(Level::Fastest), "{format}");
    }
    for (format, level, range) in [
        (Compression::Gzip, 10, "0 to 9"),
        (Compression::Gzip, -1, "0 to 9"),
        (Compression::Zstd, 23, "-7 to 22"),
        (Compression::Lz4, 9, "1 to 1"),
    ] {
        let error = Compressor::new(format).unwrap().level(Level::Exact(level)).unwrap_err();
        assert_eq!(error.to_string(), format!("{format} has no level {level}, only {range}"));
    }
}

/// Equal payloads give equal bytes, whatever was compressed before.
#[test]
fn output_is_reproducible() {
    for format in Compression::ALL {
        let compressor = Compressor::new(format).unwrap();
        let first = compressor.compress(&Bytes::from(text(10_000))).unwrap();
        compressor.compress(&Bytes::from(text(300_000))).unwrap();
        assert!(compressor.compress(&Bytes::from(text(10_000))).unwrap() == first, "{format}");
    }
}
