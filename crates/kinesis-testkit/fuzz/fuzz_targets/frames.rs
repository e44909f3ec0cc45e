//! Frames with any text and payload, read back by another reader in pieces of any size.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    piece: u8,
    frames: Vec<(u8, &'a str, &'a [u8])>,
}

fuzz_target!(|input: Input<'_>| {
    kinesis_testkit::fuzzing::frames(&input.frames, usize::from(input.piece));
});
