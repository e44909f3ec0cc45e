//! Any bodies of any operations in both formats: a reply each, and frames that can be read where it is a stream.
//!
//! Calls are separated by the byte 0x1e. The first byte of each is the operation, by its place in the alphabet, counted
//! from `A`; the second is `c` for CBOR; the rest is the body. So seeds can be written by hand.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let calls = bytes.split(|byte| *byte == 0x1e).filter_map(|call| {
        let (operation, rest) = call.split_first()?;
        let (format, body) = rest.split_first()?;
        Some((operation.wrapping_sub(b'A'), *format == b'c', body))
    });
    kinesis_testkit::fuzzing::bodies(&calls.collect::<Vec<_>>());
});
