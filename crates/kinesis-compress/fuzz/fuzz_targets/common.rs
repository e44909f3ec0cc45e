//! What the targets have in common.

use kinesis_compress::{Codec, Level};

/// Small, so that the fuzzer gets to it, and fast.
pub(crate) const LIMIT: usize = 160 * 1024;

/// Decodes; what comes out is within the limit and survives a round trip.
pub(crate) fn decode(codec: &mut dyn Codec, data: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let result = codec.decode(data, LIMIT, &mut plain);
    if result.is_err() {
        assert!(plain.is_empty(), "an error leaves bytes behind");
        // Detection asks this next.
        codec.confirms(data);
        return None;
    }
    assert!(plain.len() <= LIMIT);
    let (mut packed, mut again) = (Vec::new(), Vec::new());
    codec.encode(&plain, Level::Fastest, &mut packed).expect("any payload can be encoded");
    codec.decode(&packed, plain.len(), &mut again).expect("it was just encoded");
    assert!(plain == again);
    Some(plain)
}
