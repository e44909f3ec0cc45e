//! Several messages side by side in vectors: the widest that the machine has, chosen when the program runs.

use fearless_simd::{Level, Simd, SimdInto as _, dispatch, u32x8};

use super::word::{CONSTANTS, Word, compress};
use super::{BLOCK, block_words};

/// How many messages [`digest_many`](super::digest_many) takes side by side.
pub const LANES: usize = 8;

/// With fewer messages left than this, one after the other is faster.
pub(super) const FEWEST: usize = 3;

impl<S: Simd> Word for u32x8<S> {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn add_constant(self, constant: u32) -> Self {
        self + constant
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self | other
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn not(self) -> Self {
        !self
    }

    #[inline(always)]
    fn rotate(self, bits: u32) -> Self {
        (self << bits) | (self >> (32 - bits))
    }
}

/// Mixes `count` blocks of each part into its lane of the state.
pub(super) fn absorb(state: &mut [[u32; LANES]; 4], parts: &[&[[u8; BLOCK]]; LANES], count: usize) {
    dispatch!(Level::new(), simd => absorb_with(simd, state, parts, count));
}

#[inline(always)]
fn absorb_with<S: Simd>(
    simd: S,
    state: &mut [[u32; LANES]; 4],
    parts: &[&[[u8; BLOCK]]; LANES],
    count: usize,
) {
    let mut rows: [u32x8<S>; 4] = state.map(|row| row.simd_into(simd));
    for at in 0..count {
        let mut words = [[0; LANES]; 16];
        for (lane, part) in parts.iter().enumerate() {
            for (row, word) in words.iter_mut().zip(block_words(&part[at])) {
                row[lane] = word;
            }
        }
        let block: [u32x8<S>; 16] = words.map(|row| row.simd_into(simd));
        rows = compress(rows, &block, &CONSTANTS);
    }
    *state = rows.map(Into::into);
}
