//! The header and the trailer of a gzip member.

use super::{NAME, checksum, truncated};
use crate::DecompressError;
use crate::cursor::Cursor;

/// ID1, ID2 and the only method there is, deflate.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

pub(super) const HEADER_LENGTH: usize = 10;
pub(super) const TRAILER_LENGTH: usize = 8;

const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0b1110_0000;

/// The operating system is left unknown, so that the bytes do not depend on where they were made.
const SYSTEM_UNKNOWN: u8 = 255;

/// Whether a member begins here.
pub(super) fn starts(payload: &[u8]) -> bool {
    payload.starts_with(&MAGIC)
}

/// A member's header; nothing in it matters once it has been checked.
#[derive(Debug)]
pub(super) struct Header;

impl Header {
    /// Reads the header and leaves the cursor at the deflate data.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, DecompressError> {
        let whole = cursor.rest();
        let start = cursor.position();
        cursor.take(MAGIC.len()).map_err(truncated)?;
        let flags = cursor.byte().map_err(truncated)?;
        if flags & FLAGS_RESERVED != 0 {
            return Err(DecompressError::Corrupt { format: NAME, reason: "reserved header flags are set" });
        }
        // Time, extra flags, operating system.
        cursor.take(HEADER_LENGTH - MAGIC.len() - 1).map_err(truncated)?;
        if flags & FLAG_EXTRA != 0 {
            let length = cursor.number(2).map_err(truncated)?;
            cursor.take(usize::try_from(length).expect("it has 16 bits")).map_err(truncated)?;
        }
        if flags & FLAG_NAME != 0 {
            cursor.until_zero().map_err(truncated)?;
        }
        if flags & FLAG_COMMENT != 0 {
            cursor.until_zero().map_err(truncated)?;
        }
        if flags & FLAG_HEADER_CRC != 0 {
            let covered = &whole[..cursor.position() - start];
            let declared = cursor.number(2).map_err(truncated)?;
            if u64::from(checksum(covered) & 0xffff) != declared {
                return Err(DecompressError::ChecksumMismatch { format: NAME, part: "header" });
            }
        }
        Ok(Self)
    }
}

/// Reads the trailer and compares it with the member's content.
pub(super) fn check_trailer(cursor: &mut Cursor<'_>, content: &[u8]) -> Result<(), DecompressError> {
    let declared_checksum = cursor.u32().map_err(truncated)?;
    let declared_length = cursor.u32().map_err(truncated)?;
    if checksum(content) != declared_checksum {
        return Err(DecompressError::ChecksumMismatch { format: NAME, part: "content" });
    }
    if length_modulo(content) != declared_length {
        return Err(DecompressError::Corrupt {
            format: NAME,
            reason: "content has another length than declared",
        });
    }
    Ok(())
}

/// The header of a member that we write.
pub(super) const fn header(level: u32) -> [u8; HEADER_LENGTH] {
    let effort = match level {
        0 | 1 => 4,
        9 => 2,
        _ => 0,
    };
    [MAGIC[0], MAGIC[1], MAGIC[2], 0, 0, 0, 0, 0, effort, SYSTEM_UNKNOWN]
}

/// The trailer of a member that we write.
pub(super) fn trailer(content: &[u8]) -> [u8; TRAILER_LENGTH] {
    let mut trailer = [0; TRAILER_LENGTH];
    trailer[..4].copy_from_slice(&checksum(content).to_le_bytes());
    trailer[4..].copy_from_slice(&length_modulo(content).to_le_bytes());
    trailer
}

/// The most that one stored block of deflate holds.
const STORED_MAX: usize = 65_535;
const STORED_HEADER: usize = 5;

/// The length of the content as stored blocks.
pub(super) fn stored_length(content: &[u8]) -> usize {
    content.len() + STORED_HEADER * content.len().div_ceil(STORED_MAX).max(1)
}

/// Appends the content as stored blocks. It is not empty: nothing is shorter as a compressed block.
pub(super) fn store(content: &[u8], out: &mut Vec<u8>) {
    let mut chunks = content.chunks(STORED_MAX).peekable();
    while let Some(chunk) = chunks.next() {
        let length = u16::try_from(chunk.len()).expect("it is at most the largest block");
        out.push(u8::from(chunks.peek().is_none()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(chunk);
    }
}

/// The length modulo 2^32, which is what the format stores.
fn length_modulo(content: &[u8]) -> u32 {
    u32::try_from(content.len() as u64 & u64::from(u32::MAX)).expect("it was masked to 32 bits")
}
