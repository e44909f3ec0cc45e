//! Any bytes on a connection: HTTP/1.1, HTTP/2 or neither, and no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kinesis_testkit::fuzzing::connection(bytes));
