//! Several messages side by side: one MD5 is one chain of dependent steps, several fill the machine.

use super::word::{CONSTANTS, compress};
use super::{BLOCK, INITIAL, absorb, padded, to_bytes};

/// How many messages [`digest_many`] takes side by side.
///
/// Eight where the target has vectors of eight words (`-C target-cpu=x86-64-v3` or `native`), which then do most of
/// the work; four in plain registers otherwise.
pub const LANES: usize = if cfg!(target_feature = "avx2") { 8 } else { 4 };

/// With fewer messages left than this, one after the other is faster.
const FEWEST: usize = 3;

/// The MD5 of each message, in order. Messages of about the same length gain most.
#[must_use]
pub fn digest_many(messages: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut digests = vec![[0; 16]; messages.len()];
    let mut queue = messages.iter().enumerate();
    let mut lanes: [Lane<'_>; LANES] = std::array::from_fn(|_| Lane::take(&mut queue));
    let mut state: [[u32; LANES]; 4] = INITIAL.map(|word| [word; LANES]);
    loop {
        for i in 0..LANES {
            while lanes[i].is_done() {
                let Some(place) = lanes[i].place else { break };
                digests[place] = to_bytes(state.map(|row| row[i]));
                lanes[i] = Lane::take(&mut queue);
                for (row, initial) in state.iter_mut().zip(INITIAL) {
                    row[i] = initial;
                }
            }
        }
        let active = lanes.iter().filter(|lane| lane.place.is_some()).count();
        if active < FEWEST {
            for (i, lane) in lanes.iter().enumerate() {
                if let Some(place) = lane.place {
                    digests[place] = lane.finish_alone(state.map(|row| row[i]));
                }
            }
            return digests;
        }
        // As many blocks as every busy lane has left in the part it is in.
        let count = lanes.iter().filter(|lane| lane.place.is_some()).map(Lane::left).min().unwrap_or(0);
        for _ in 0..count {
            let mut block = [[0; LANES]; 16];
            for (i, lane) in lanes.iter_mut().enumerate() {
                for (row, word) in block.iter_mut().zip(super::block_words(lane.next_block())) {
                    row[i] = word;
                }
            }
            state = compress(state, &block, &CONSTANTS);
        }
    }
}

/// What an idle lane computes on.
static IDLE: [u8; BLOCK] = [0; BLOCK];

/// A message on its way: first its whole blocks, then its padded tail.
struct Lane<'a> {
    /// Its place among the messages; `None` when idle.
    place: Option<usize>,
    blocks: &'a [[u8; BLOCK]],
    tail: [[u8; BLOCK]; 2],
    /// Which of the tail's blocks are left.
    tail_left: std::ops::Range<usize>,
}

impl<'a> Lane<'a> {
    fn take<'m: 'a>(queue: &mut impl Iterator<Item = (usize, &'m &'m [u8])>) -> Self {
        match queue.next() {
            Some((place, message)) => {
                let (blocks, rest) = message.as_chunks();
                let (tail, count) = padded(rest, message.len());
                Self { place: Some(place), blocks, tail, tail_left: 0..count }
            }
            None => Self { place: None, blocks: &[], tail: [IDLE; 2], tail_left: 0..0 },
        }
    }

    fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.tail_left.is_empty()
    }

    /// How many blocks follow before the lane must be looked at again.
    fn left(&self) -> usize {
        if self.blocks.is_empty() { self.tail_left.len() } else { self.blocks.len() }
    }

    #[inline(always)]
    fn next_block(&mut self) -> &[u8; BLOCK] {
        if let Some((block, rest)) = self.blocks.split_first() {
            self.blocks = rest;
            return block;
        }
        self.tail_left.next().map_or(&IDLE, |at| &self.tail[at])
    }

    fn finish_alone(&self, mut state: [u32; 4]) -> [u8; 16] {
        absorb(&mut state, self.blocks);
        absorb(&mut state, &self.tail[self.tail_left.clone()]);
        to_bytes(state)
    }
}
