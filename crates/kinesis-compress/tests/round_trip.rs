//! Properties: what is encoded decodes to the same, and no input makes a decoder panic or pass its limit.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use common::{UNLIMITED, codec, decode};
use kinesis_compress::{Compression, DecompressError, Decompressor, Level};
use proptest::collection::vec;
use proptest::prelude::*;

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let noise = vec(any::<u8>(), 0..3000);
    let words = vec(prop::sample::select(vec!["alpha", "beta", "{\"k\":1}", " ", "\n", "ü"]), 0..2000)
        .prop_map(|words| words.concat().into_bytes());
    // Long enough for several blocks of each format.
    let runs = vec((any::<u8>(), 0_usize..200_000), 0..4)
        .prop_map(|runs| runs.iter().flat_map(|&(byte, count)| std::iter::repeat_n(byte, count)).collect());
    prop_oneof![noise, words, runs]
}

fn level(format: Compression) -> impl Strategy<Value = Level> {
    let exact = match format {
        Compression::Gzip => 0..=9,
        Compression::Zstd => -7..=12,
        _ => 1..=1,
    };
    prop_oneof![Just(Level::Fastest), Just(Level::Default), Just(Level::Best), exact.prop_map(Level::Exact)]
}

fn any_format() -> impl Strategy<Value = Compression> {
    prop::sample::select(Compression::ALL.to_vec())
}

fn round_trip(format: Compression, payloads: &[(Vec<u8>, Level)]) -> Result<(), TestCaseError> {
    // One codec for all: what one call leaves behind must not show in the next.
    let mut codec = codec(format);
    let (mut packed, mut plain, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (payload, level) in payloads {
        codec.encode(payload, *level, &mut packed).unwrap();
        prop_assert!(codec.recognises(&packed));
        prop_assert!(codec.confirms(&packed));
        codec.decode(&packed, payload.len(), &mut plain).unwrap();
        prop_assert!(&plain == payload, "{} bytes came out of {}", plain.len(), payload.len());
        if let Some(below) = payload.len().checked_sub(1) {
            let error = codec.decode(&packed, below, &mut plain).unwrap_err();
            prop_assert!(error.is_limit(), "{error}");
            prop_assert!(plain.is_empty());
        }
        all.extend_from_slice(&packed);
    }
    let contents: Vec<u8> = payloads.iter().flat_map(|(payload, _)| payload.clone()).collect();
    if !payloads.is_empty() {
        codec.decode(&all, contents.len(), &mut plain).unwrap();
        prop_assert!(plain == contents);
    }
    Ok(())
}

fn payloads(format: Compression) -> impl Strategy<Value = Vec<(Vec<u8>, Level)>> {
    vec((payload(), level(format)), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// S-138: gzip gives back what was put in, at any level, alone and as one of several members.
    #[test]
    fn gzip_round_trip(payloads in payloads(Compression::Gzip)) {
        round_trip(Compression::Gzip, &payloads)?;
    }

    /// S-138: zstd gives back what was put in, at any level, alone and as one of several frames.
    #[test]
    fn zstd_round_trip(payloads in payloads(Compression::Zstd)) {
        round_trip(Compression::Zstd, &payloads)?;
    }

    /// S-138: lz4 gives back what was put in, alone and as one of several frames.
    #[test]
    fn lz4_round_trip(payloads in payloads(Compression::Lz4)) {
        round_trip(Compression::Lz4, &payloads)?;
    }
}

proptest! {
    /// F-41: a frame cut short anywhere is an error, never a shorter payload.
    #[test]
    fn a_truncated_frame_is_refused(
        format in any_format(), payload in payload(), cut in any::<prop::sample::Index>(),
    ) {
        let whole = common::encode(format, &payload);
        let part = &whole[..cut.index(whole.len())];
        let error = decode(format, part, UNLIMITED).unwrap_err();
        let expected = match error {
            DecompressError::Truncated { .. } => true,
            DecompressError::NotCompressed { .. } => part.len() < 4,
            _ => false,
        };
        prop_assert!(expected, "{error}");
    }

    /// F-41: one wrong byte is refused or gives the same payload (some header bytes mean nothing), never another.
    #[test]
    fn a_damaged_frame_never_gives_another_payload(
        format in any_format(), payload in payload(), at in any::<prop::sample::Index>(), change in 1_u8..,
    ) {
        let mut frame = common::encode(format, &payload);
        let at = at.index(frame.len());
        frame[at] ^= change;
        if let Ok(plain) = decode(format, &frame, UNLIMITED) {
            prop_assert!(plain == payload, "{format}: byte {at} ^ {change}");
        }
    }

    /// F-41, S-144: random bytes behind a magic number neither panic nor pass the limit.
    #[test]
    fn random_bytes_never_panic(format in any_format(), rest in vec(any::<u8>(), 0..400), limit in 0_usize..5000) {
        let magic: &[u8] = match format {
            Compression::Gzip => &[0x1f, 0x8b, 8],
            Compression::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            _ => &[0x04, 0x22, 0x4d, 0x18],
        };
        let input = [magic, rest.as_slice()].concat();
        if let Ok(plain) = decode(format, &input, limit) {
            prop_assert!(plain.len() <= limit);
        }
        if let Ok(Some(plain)) = Decompressor::auto().try_decompress(&input, limit) {
            prop_assert!(plain.len() <= limit);
        }
    }

    /// F-41: the same for frames that are nearly right.
    #[test]
    fn damaged_frames_never_panic(
        format in any_format(),
        payload in payload(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        limit in 0_usize..100_000,
    ) {
        let mut frame = common::encode(format, &payload);
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        if let Ok(plain) = decode(format, &frame, limit) {
            prop_assert!(plain.len() <= limit);
        }
        let _ = Decompressor::auto().try_decompress(&frame, limit);
    }
}
