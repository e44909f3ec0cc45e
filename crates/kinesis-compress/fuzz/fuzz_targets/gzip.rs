#![no_main]

#[path = "common.rs"]
mod common;

use std::io::Read;

use kinesis_compress::Gzip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(plain) = common::decode(&mut Gzip::new(), data) {
        let mut expected = Vec::new();
        let mut library = flate2::bufread::MultiGzDecoder::new(data);
        // The library refuses padding behind the last member, which we read.
        let complete = library.read_to_end(&mut expected).is_ok();
        assert!(plain == expected, "the library gives other bytes (complete: {complete})");
    }
});
