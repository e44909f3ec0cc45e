#![no_main]

#[path = "common.rs"]
mod common;

use std::cell::RefCell;
use std::io::Read;

use kinesis_compress::Zstd;
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// One for all inputs: what one leaves behind must not show in the next.
    /// The library's streaming decoder takes memory for the window that a frame declares, hence the limit.
    static CODEC: RefCell<Zstd> = RefCell::new(Zstd::new().max_window(1 << 23));
}

fuzz_target!(|data: &[u8]| {
    if let Some(plain) = CODEC.with_borrow_mut(|codec| common::decode(codec, data)) {
        let mut expected = Vec::new();
        let mut library = zstd::stream::Decoder::new(data).expect("a decoder");
        // The streaming decoder refuses what the one for whole frames lets pass, such as a block that decodes to a
        // little more than 128 KiB.
        if library.read_to_end(&mut expected).is_ok() {
            assert!(plain == expected, "the library gives other bytes");
        }
    }
});
