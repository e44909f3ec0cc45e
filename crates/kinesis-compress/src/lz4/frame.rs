//! The layout of lz4 frames: descriptors and the chain of blocks, without decoding any.

use twox_hash::XxHash32;

use super::{MAGIC, NAME, STORED, corrupt, truncated};
use crate::cursor::Cursor;
use crate::{DecompressError, skippable};

const VERSION: u8 = 0b0100_0000;
const VERSION_MASK: u8 = 0b1100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED: u8 = 1 << 1;
const DICTIONARY: u8 = 1;

/// No byte of a compressed block gives more than this many: a length is continued by bytes of up to 255.
const MAX_RATIO: usize = 255;
const CHECKSUM_LENGTH: usize = 4;
/// What a frame that we write adds to its blocks: magic, descriptor, length of the first block, end mark, checksum.
pub(super) const OVERHEAD: usize = 4 + 11 + 4 + 4 + CHECKSUM_LENGTH;

/// The most that one block holds: 64 KiB, 256 KiB, 1 MiB or 4 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockMax(u8);

impl BlockMax {
    const SMALLEST: u8 = 4;
    const LARGEST: u8 = 7;

    /// The smallest that holds everything in one block, else the largest.
    pub(super) fn for_content(length: usize) -> Self {
        (Self::SMALLEST..=Self::LARGEST)
            .map(Self)
            .find(|max| length <= max.bytes())
            .unwrap_or(Self(Self::LARGEST))
    }

    fn from_code(code: u8) -> Option<Self> {
        (Self::SMALLEST..=Self::LARGEST).contains(&code).then_some(Self(code))
    }

    pub(super) const fn bytes(self) -> usize {
        1 << (8 + 2 * self.0)
    }

    /// The most that a compressed block of `length` bytes decodes to.
    pub(super) fn holds(self, length: usize) -> usize {
        self.bytes().min(length.saturating_mul(MAX_RATIO))
    }
}

/// The descriptor of a frame.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) block_max: BlockMax,
    pub(super) linked: bool,
    pub(super) block_checksums: bool,
    pub(super) content_checksum: bool,
    pub(super) content_size: Option<u64>,
}

impl Descriptor {
    /// The descriptor that we write.
    pub(super) const fn for_content(length: usize, block_max: BlockMax) -> Self {
        Self {
            block_max,
            linked: false,
            block_checksums: false,
            content_checksum: true,
            content_size: Some(length as u64),
        }
    }

    /// Reads magic number and descriptor and leaves the cursor at the first block.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, DecompressError> {
        if !cursor.rest().starts_with(&MAGIC) {
            return Err(DecompressError::NotCompressed { format: NAME });
        }
        cursor.take(MAGIC.len()).map_err(truncated)?;
        let covered = cursor.rest();
        let start = cursor.position();
        let flags = cursor.byte().map_err(truncated)?;
        let block = cursor.byte().map_err(truncated)?;
        if flags & VERSION_MASK != VERSION {
            return Err(corrupt("unknown frame version"));
        }
        if flags & RESERVED != 0 || block & 0b1000_1111 != 0 {
            return Err(corrupt("reserved descriptor bits are set"));
        }
        let block_max = BlockMax::from_code(block >> 4).ok_or(corrupt("unknown maximum block size"))?;
        let content_size =
            if flags & CONTENT_SIZE == 0 { None } else { Some(cursor.number(8).map_err(truncated)?) };
        if flags & DICTIONARY != 0 {
            cursor.take(4).map_err(truncated)?;
        }
        let covered = &covered[..cursor.position() - start];
        if cursor.byte().map_err(truncated)? != header_checksum(covered) {
            return Err(DecompressError::ChecksumMismatch { format: NAME, part: "header" });
        }
        if flags & DICTIONARY != 0 {
            return Err(DecompressError::Unsupported { format: NAME, what: "a dictionary" });
        }
        Ok(Self {
            block_max,
            linked: flags & INDEPENDENT == 0,
            block_checksums: flags & BLOCK_CHECKSUM != 0,
            content_checksum: flags & CONTENT_CHECKSUM != 0,
            content_size,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        let start = out.len();
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        out.push(
            VERSION
                | flag(!self.linked, INDEPENDENT)
                | flag(self.block_checksums, BLOCK_CHECKSUM)
                | flag(self.content_checksum, CONTENT_CHECKSUM)
                | flag(self.content_size.is_some(), CONTENT_SIZE),
        );
        out.push(self.block_max.0 << 4);
        if let Some(size) = self.content_size {
            out.extend_from_slice(&size.to_le_bytes());
        }
        out.push(header_checksum(&out[start..]));
    }
}

/// What the frames of a payload can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The sum of the sizes that descriptors declare, checked against their blocks.
    pub(super) declared: u64,
}

/// Walks over all frames and checks what can be checked without decoding.
pub(super) fn survey(input: &[u8]) -> Result<Content, DecompressError> {
    let mut cursor = Cursor::new(input);
    let mut content = Content::default();
    loop {
        // The usual frame first: this is on the path of every payload.
        if cursor.rest().starts_with(&MAGIC) {
            let descriptor = Descriptor::read(&mut cursor)?;
            let bound = walk_blocks(&mut cursor, &descriptor)?;
            if let Some(declared) = descriptor.content_size {
                if declared > bound {
                    return Err(corrupt("content size is more than the blocks can hold"));
                }
                content.declared += declared;
            }
        } else if skippable::skip_one(&mut cursor).map_err(truncated)? {
        } else if cursor.position() == 0 {
            return Err(DecompressError::NotCompressed { format: NAME });
        } else {
            return Err(DecompressError::TrailingData { format: NAME, offset: cursor.position() });
        }
        if cursor.is_empty() {
            return Ok(content);
        }
    }
}

/// Steps over the blocks of a frame and returns the most that they decode to.
fn walk_blocks(cursor: &mut Cursor<'_>, descriptor: &Descriptor) -> Result<u64, DecompressError> {
    let mut bound = 0_u64;
    loop {
        let field = cursor.u32().map_err(truncated)?;
        if field == 0 {
            break;
        }
        let length = (field & !STORED) as usize;
        if length > descriptor.block_max.bytes() {
            return Err(corrupt("block is larger than declared"));
        }
        cursor.take(length).map_err(truncated)?;
        if descriptor.block_checksums {
            cursor.take(CHECKSUM_LENGTH).map_err(truncated)?;
        }
        bound += if field & STORED == 0 { descriptor.block_max.holds(length) } else { length } as u64;
    }
    if descriptor.content_checksum {
        cursor.take(CHECKSUM_LENGTH).map_err(truncated)?;
    }
    Ok(bound)
}

/// The second byte of the descriptor's xxHash-32.
fn header_checksum(descriptor: &[u8]) -> u8 {
    XxHash32::oneshot(0, descriptor).to_le_bytes()[1]
}
