//! The layout of zstd frames: headers and the chain of blocks, without decoding any.

use super::{MAGIC, NAME};
use crate::cursor::{Cursor, End};
use crate::{DecompressError, skippable};

/// No block holds more, whatever the window.
const BLOCK_MAX: u64 = 128 * 1024;
const CHECKSUM_LENGTH: usize = 4;
/// The largest window that libzstd writes.
const USUAL_WINDOW: u64 = 1 << 31;
/// A chain of blocks that went on for this many bytes was no accident.
const CONVINCING: usize = 32;

/// What the frames of a payload can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The sum of what is certain: the sizes that headers declare, checked against their blocks.
    pub(super) declared: u64,
    /// No output is larger than this.
    pub(super) bound: u64,
}

/// Walks over all frames and checks what can be checked without decoding.
pub(super) fn survey(input: &[u8], max_window: u64) -> Result<Content, DecompressError> {
    let mut cursor = Cursor::new(input);
    let mut content = Content::default();
    loop {
        // The usual frame first: this is on the path of every payload.
        if cursor.rest().starts_with(&MAGIC) {
            let header = Header::read(&mut cursor)?;
            header.check(max_window)?;
            walk_blocks(&mut cursor, &header, &mut content)?;
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

/// Whether the first frame is real: all its blocks are there and sound, or it breaks off or goes wrong late enough
/// to be a damaged frame.
///
/// Of random bytes behind the magic number about 1 in 200 pass.
pub(super) fn confirms(input: &[u8]) -> bool {
    let mut cursor = Cursor::new(input);
    if skippable::skip_all(&mut cursor).is_err() || !cursor.rest().starts_with(&MAGIC) {
        return false;
    }
    let Ok(header) = Header::read(&mut cursor) else { return false };
    let mut stored = 0;
    loop {
        match Block::read(&mut cursor, &header) {
            // Legal, but no encoder begins with an empty block that is not the last.
            Ok(block) if block.size == 0 && !block.is_last && stored == 0 => return false,
            Ok(block) if cursor.take(block.stored).is_err() => return header.is_usual(),
            Ok(block) if block.is_last => return true,
            Ok(block) => stored += block.stored,
            Err(DecompressError::Truncated { .. }) => return header.is_usual() && stored > 0,
            Err(_) => return stored >= CONVINCING,
        }
    }
}

fn walk_blocks(
    cursor: &mut Cursor<'_>,
    header: &Header,
    content: &mut Content,
) -> Result<(), DecompressError> {
    let mut bound = 0_u64;
    loop {
        let block = Block::read(cursor, header)?;
        cursor.take(block.stored).map_err(truncated)?;
        bound += block.holds;
        if block.is_last {
            break;
        }
    }
    if header.has_checksum {
        cursor.take(CHECKSUM_LENGTH).map_err(truncated)?;
    }
    match header.content_size {
        Some(declared) if declared > bound => Err(DecompressError::Corrupt {
            format: NAME,
            reason: "content size is more than the blocks can hold",
        }),
        Some(declared) => {
            content.declared += declared;
            content.bound += declared;
            Ok(())
        }
        None => {
            content.bound += bound;
            Ok(())
        }
    }
}

#[derive(Debug)]
struct Header {
    /// The window that the header asks for; `None` for a frame of a single segment.
    window: Option<u64>,
    content_size: Option<u64>,
    dictionary: u64,
    has_checksum: bool,
}

impl Header {
    /// Reads the header; the cursor is at its magic number.
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, DecompressError> {
        cursor.take(MAGIC.len()).map_err(truncated)?;
        let descriptor = cursor.byte().map_err(truncated)?;
        if descriptor & 0b1000 != 0 {
            return Err(DecompressError::Corrupt { format: NAME, reason: "reserved header bit is set" });
        }
        let single_segment = descriptor & 0b10_0000 != 0;
        let window = if single_segment { None } else { Some(window_size(cursor.byte().map_err(truncated)?)) };
        let dictionary_length = [0, 1, 2, 4][usize::from(descriptor & 0b11)];
        let dictionary = cursor.number(dictionary_length).map_err(truncated)?;
        let content_size = match descriptor >> 6 {
            0 if single_segment => Some(cursor.number(1).map_err(truncated)?),
            0 => None,
            1 => Some(cursor.number(2).map_err(truncated)? + 256),
            2 => Some(cursor.number(4).map_err(truncated)?),
            _ => Some(cursor.number(8).map_err(truncated)?),
        };
        Ok(Self { window, content_size, dictionary, has_checksum: descriptor & 0b100 != 0 })
    }

    fn check(&self, max_window: u64) -> Result<(), DecompressError> {
        if self.dictionary != 0 {
            return Err(DecompressError::Unsupported { format: NAME, what: "a dictionary" });
        }
        match self.window {
            Some(window) if window > max_window => {
                Err(DecompressError::WindowLimitExceeded { format: NAME, window, limit: max_window })
            }
            _ => Ok(()),
        }
    }

    /// Whether the header is one that a writer without a dictionary makes.
    fn is_usual(&self) -> bool {
        self.dictionary == 0 && self.window.is_none_or(|window| window <= USUAL_WINDOW)
    }

    /// The most that one block of this frame holds, stored or decoded.
    fn block_max(&self) -> u64 {
        self.window.or(self.content_size).unwrap_or(0).min(BLOCK_MAX)
    }
}

fn window_size(descriptor: u8) -> u64 {
    let base = 1_u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 0b111)
}

#[derive(Debug)]
struct Block {
    is_last: bool,
    /// The size field: stored bytes, or the length of a run.
    size: u64,
    /// How many bytes follow the block's header.
    stored: usize,
    /// The most that it decodes to.
    holds: u64,
}

impl Block {
    fn read(cursor: &mut Cursor<'_>, header: &Header) -> Result<Self, DecompressError> {
        let fields = cursor.number(3).map_err(truncated)?;
        let size = fields >> 3;
        if size > header.block_max() {
            return Err(DecompressError::Corrupt {
                format: NAME,
                reason: "block is larger than the format allows",
            });
        }
        let stored = usize::try_from(size).expect("it has 21 bits");
        let (stored, holds) = match fields >> 1 & 0b11 {
            0 => (stored, size),
            1 => (1, size),
            2 => (stored, header.block_max()),
            _ => return Err(DecompressError::Corrupt { format: NAME, reason: "reserved block type" }),
        };
        Ok(Self { is_last: fields & 1 != 0, size, stored, holds })
    }
}

fn truncated(_: End) -> DecompressError {
    DecompressError::Truncated { format: NAME }
}
