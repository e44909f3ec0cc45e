//! Several messages side by side: one MD5 is one chain of dependent steps, several fill the machine.

use super::rows::{self, FEWEST, LANES};
use super::{BLOCK, INITIAL, padded, to_bytes};

/// The MD5 of each message, in order. Messages of about the same length gain most.
#[must_use]
pub fn digest_many(messages: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut digests = vec![[0; 16]; messages.len()];
    let mut queue = messages.iter().copied().enumerate();
    let mut lanes: [Lane<'_>; LANES] = std::array::from_fn(|_| Lane::take(&mut queue));
    let mut state: [[u32; LANES]; 4] = INITIAL.map(|word| [word; LANES]);
    loop {
        for (i, lane) in lanes.iter_mut().enumerate() {
            while let Some(place) = lane.done() {
                digests[place] = to_bytes(state.map(|row| row[i]));
                *lane = Lane::take(&mut queue);
                for (row, initial) in state.iter_mut().zip(INITIAL) {
                    row[i] = initial;
                }
            }
        }
        let busy = || lanes.iter().filter(|lane| lane.place.is_some());
        if busy().count() < FEWEST {
            for (i, lane) in lanes.iter().enumerate() {
                if let Some(place) = lane.place {
                    digests[place] = lane.finish_alone(state.map(|row| row[i]));
                }
            }
            return digests;
        }
        // As many blocks as every busy lane has at hand. An idle lane computes on another one's.
        let count = busy().map(|lane| lane.at_hand().len()).min().unwrap_or(0);
        let spare = busy().next().map(Lane::at_hand).unwrap_or_default();
        let parts = lanes.each_ref().map(|lane| if lane.place.is_some() { lane.at_hand() } else { spare });
        rows::absorb(&mut state, &parts, count);
        for lane in lanes.iter_mut().filter(|lane| lane.place.is_some()) {
            lane.advance(count);
        }
    }
}

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
    fn take(queue: &mut impl Iterator<Item = (usize, &'a [u8])>) -> Self {
        match queue.next() {
            Some((place, message)) => {
                let (blocks, rest) = message.as_chunks();
                let (tail, count) = padded(rest, message.len());
                Self { place: Some(place), blocks, tail, tail_left: 0..count }
            }
            None => Self { place: None, blocks: &[], tail: [[0; BLOCK]; 2], tail_left: 0..0 },
        }
    }

    /// The place of a message of which nothing is left.
    fn done(&self) -> Option<usize> {
        self.place.filter(|_| self.at_hand().is_empty())
    }

    fn at_hand(&self) -> &[[u8; BLOCK]] {
        if self.blocks.is_empty() { &self.tail[self.tail_left.clone()] } else { self.blocks }
    }

    fn advance(&mut self, count: usize) {
        if self.blocks.is_empty() {
            self.tail_left.start += count;
        } else {
            self.blocks = &self.blocks[count..];
        }
    }

    fn finish_alone(&self, mut state: [u32; 4]) -> [u8; 16] {
        super::absorb(&mut state, self.blocks);
        super::absorb(&mut state, &self.tail[self.tail_left.clone()]);
        to_bytes(state)
    }
}
