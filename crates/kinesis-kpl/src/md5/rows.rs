//! Several messages side by side in plain arrays: the optimiser makes of them what the target has.

use std::array::from_fn;

use super::word::{CONSTANTS, Word, compress};
use super::{BLOCK, block_words};

/// How many messages [`digest_many`](super::digest_many) takes side by side.
///
/// Eight with the feature `simd`, or where the target is known to have vectors of eight words
/// (`-C target-cpu=x86-64-v3` or `native`); four otherwise.
pub const LANES: usize = if cfg!(target_feature = "avx2") { 8 } else { 4 };

/// With fewer messages left than this, one after the other is faster.
pub(super) const FEWEST: usize = 3;

impl<const N: usize> Word for [u32; N] {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        from_fn(|i| self[i].wrapping_add(other[i]))
    }

    #[inline(always)]
    fn add_constant(self, constant: u32) -> Self {
        self.map(|word| word.wrapping_add(constant))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        from_fn(|i| self[i] & other[i])
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        from_fn(|i| self[i] | other[i])
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        from_fn(|i| self[i] ^ other[i])
    }

    #[inline(always)]
    fn not(self) -> Self {
        self.map(|word| !word)
    }

    #[inline(always)]
    fn rotate(self, bits: u32) -> Self {
        self.map(|word| word.rotate_left(bits))
    }
}

/// Mixes `count` blocks of each part into its lane of the state.
pub(super) fn absorb(state: &mut [[u32; LANES]; 4], parts: &[&[[u8; BLOCK]]; LANES], count: usize) {
    for at in 0..count {
        let mut block = [[0; LANES]; 16];
        for (lane, part) in parts.iter().enumerate() {
            for (row, word) in block.iter_mut().zip(block_words(&part[at])) {
                row[lane] = word;
            }
        }
        *state = compress(*state, &block, &CONSTANTS);
    }
}
