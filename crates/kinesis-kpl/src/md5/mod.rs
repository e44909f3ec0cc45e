//! MD5 in safe code, for one message and for several side by side.
//!
//! Checking an aggregate is computing the MD5 of its message; nearly all the time goes there. This is not for
//! secrets: MD5 is the format's checksum and the service's hash of partition keys, and resists no attacker.

mod many;
#[cfg_attr(feature = "simd", path = "rows_simd.rs")]
mod rows;
mod word;

pub use many::digest_many;
pub use rows::LANES;
use word::{CONSTANTS, compress};

const BLOCK: usize = 64;
const INITIAL: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

/// The MD5 of one message.
///
/// ```
/// assert_eq!(kinesis_kpl::md5::digest(b"a")[..4], [0x0C, 0xC1, 0x75, 0xB9]);
/// ```
#[must_use]
pub fn digest(message: &[u8]) -> [u8; 16] {
    let mut state = INITIAL;
    let (blocks, rest) = message.as_chunks();
    absorb(&mut state, blocks);
    let (tail, len) = padded(rest, message.len());
    absorb(&mut state, &tail[..len]);
    to_bytes(state)
}

fn absorb(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
    for block in blocks {
        // An optimiser that sees the constants moves their additions behind the round function, where they delay
        // every step: the speed is that of one dependency chain. Hidden, they are added before: a quarter faster.
        let constants = std::hint::black_box(&CONSTANTS);
        *state = compress(*state, &block_words(block), constants);
    }
}

fn block_words(block: &[u8; BLOCK]) -> [u32; 16] {
    let (words, _) = block.as_chunks();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// The last blocks of a message of `total` bytes, of which `rest` is left: one or two.
fn padded(rest: &[u8], total: usize) -> ([[u8; BLOCK]; 2], usize) {
    let mut tail = [0; 2 * BLOCK];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let count = if rest.len() + 1 + 8 <= BLOCK { 1 } else { 2 };
    let bits = (total as u64).wrapping_mul(8);
    tail[count * BLOCK - 8..count * BLOCK].copy_from_slice(&bits.to_le_bytes());
    let (blocks, _) = tail.as_chunks();
    ([blocks[0], blocks[1]], count)
}

fn to_bytes(state: [u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::{Digest as _, Md5};

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
    }

    /// The crate `md-5` is the judge: every length around the padding's edges, and long ones.
    #[test]
    fn digests_are_those_of_another_implementation() {
        for len in (0..=520).chain([1_000, 4_095, 4_096, 51_200, 1 << 20, 3_000_001]) {
            let message = message(len);
            assert_eq!(digest(&message), <[u8; 16]>::from(Md5::digest(&message)), "{len} bytes");
        }
    }

    #[test]
    fn digests_side_by_side_are_those_of_each_alone() {
        let lens =
            [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1_000, 50_000, 7, 333, 64 * 40, 0, 51_200, 200_000];
        let messages: Vec<Vec<u8>> = lens.iter().map(|len| message(*len)).collect();
        for count in 0..=messages.len() {
            for start in [0, messages.len() - count] {
                let inputs: Vec<&[u8]> = messages[start..start + count].iter().map(Vec::as_slice).collect();
                let expected: Vec<[u8; 16]> = inputs.iter().map(|input| digest(input)).collect();
                assert_eq!(digest_many(&inputs), expected, "{count} from {start}");
            }
        }
    }
}
