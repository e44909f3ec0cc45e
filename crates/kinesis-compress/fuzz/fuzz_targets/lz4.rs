#![no_main]

#[path = "common.rs"]
mod common;

use std::io::Read;

use kinesis_compress::Lz4;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(plain) = common::decode(&mut Lz4::new(), data) {
        let mut expected = Vec::new();
        let mut library = lz4_flex::frame::FrameDecoder::new(data);
        // It reads the first frame and knows no skippable ones.
        if library.read_to_end(&mut expected).is_ok() {
            assert!(plain.starts_with(&expected), "the library gives other bytes");
        }
    }
});
