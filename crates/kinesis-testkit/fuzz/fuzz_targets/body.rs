//! Any bodies of any operations in both formats: a reply each, and frames that can be read where it is a stream.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Call<'a> {
    operation: u8,
    cbor: bool,
    body: &'a [u8],
}

fuzz_target!(|calls: Vec<Call<'_>>| {
    let calls: Vec<_> = calls.iter().map(|call| (call.operation, call.cbor, call.body)).collect();
    kinesis_testkit::fuzzing::bodies(&calls);
});
