#![no_main]

#[path = "common.rs"]
mod common;

use std::io::Read;

use kinesis_compress::Zstd;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The library's streaming decoder takes memory for the window that a frame declares.
    if let Some(plain) = common::decode(&mut Zstd::new().max_window(1 << 23), data) {
        let mut expected = Vec::new();
        let mut library = zstd::stream::Decoder::new(data).expect("a decoder");
        library.read_to_end(&mut expected).expect("the library reads what we read");
        assert!(plain == expected, "the library gives other bytes");
    }
});
