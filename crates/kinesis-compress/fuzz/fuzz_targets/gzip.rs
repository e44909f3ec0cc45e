#![no_main]

#[path = "common.rs"]
mod common;

use std::cell::RefCell;
use std::io::Read;

use kinesis_compress::Gzip;
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// One for all inputs: what one leaves behind must not show in the next.
    static CODEC: RefCell<Gzip> = RefCell::new(Gzip::new());
}

fuzz_target!(|data: &[u8]| {
    if let Some(plain) = CODEC.with_borrow_mut(|codec| common::decode(codec, data)) {
        let mut expected = Vec::new();
        let mut library = flate2::bufread::MultiGzDecoder::new(data);
        // The library refuses padding behind the last member, which we read.
        let complete = library.read_to_end(&mut expected).is_ok();
        assert!(plain == expected, "the library gives other bytes (complete: {complete})");
    }
});
