#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use kinesis_compress::{Decompressor, Lookalikes};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 160 * 1024;

static AUTO: LazyLock<Decompressor> = LazyLock::new(|| Decompressor::auto().max_output(LIMIT));
static STRICT: LazyLock<Decompressor> = LazyLock::new(|| AUTO.clone().lookalikes(Lookalikes::Fail));

fuzz_target!(|data: &[u8]| {
    let payload = Bytes::copy_from_slice(data);
    let auto = AUTO.try_decompress(&payload, LIMIT);
    let strict = STRICT.try_decompress(&payload, LIMIT);
    match (&auto, &strict) {
        // What decodes, decodes either way; what fails as a real frame, fails either way.
        (Ok(Some(_)) | Err(_), _) | (Ok(None), Ok(_)) => assert_eq!(auto, strict),
        // Only a lookalike is treated differently.
        (Ok(None), Err(_)) => assert!(AUTO.recognises(&payload)),
    }
    if let Ok(Some(plain)) = auto {
        assert!(plain.len() <= LIMIT);
    }
});
