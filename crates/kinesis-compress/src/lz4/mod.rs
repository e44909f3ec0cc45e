//! The lz4 frame format over lz4_flex's block codec.

mod frame;

use std::fmt;

use lz4_flex::block::{self, CompressTable};
use twox_hash::XxHash32;

use self::frame::{BlockMax, Descriptor};
use crate::cursor::{Cursor, End};
use crate::output::Output;
use crate::{Codec, CompressError, DecompressError, Level, skippable};

const NAME: &str = "lz4";
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Set in the length of a block that is stored as it is.
const STORED: u32 = 1 << 31;
/// How far back a block may refer.
const HISTORY: usize = 64 * 1024;
const THE_LEVEL: i32 = 1;
/// The table of 16-bit places serves blocks below this length.
const SMALL_BLOCK: usize = 65_535;

/// The lz4 codec, frame format.
///
/// Reads any number of frames and skippable frames, with linked or independent blocks of up to 4 MiB, and verifies
/// every checksum that is there. Legacy frames (magic `02 21 4c 18`), dictionaries and bare blocks are refused.
/// Writes one frame of independent blocks of up to 4 MiB with its content size and a content checksum; there is
/// one level.
///
/// Blocks are decoded by safe code only, straight into the output when the frame says its content size, and else
/// by way of a buffer as large as the largest block met, at most 4 MiB, which is kept. The tables to encode
/// take 8 and 16 KiB.
#[derive(Default)]
pub struct Lz4 {
    block: Vec<u8>,
    small_table: Option<CompressTable>,
    large_table: Option<CompressTable>,
}

impl Lz4 {
    /// A codec that has no buffers yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { block: Vec::new(), small_table: None, large_table: None }
    }

    /// By the length of the block alone, so that equal payloads give equal bytes.
    fn table(&mut self, block_length: usize) -> &mut CompressTable {
        if block_length < SMALL_BLOCK {
            self.small_table.get_or_insert_with(CompressTable::small)
        } else {
            self.large_table.get_or_insert_with(CompressTable::large)
        }
    }

    fn decode_frames(&mut self, input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
        let content = frame::survey(input)?;
        if content.declared > output.room() as u64 {
            return Err(output.limit_exceeded(NAME));
        }
        output.reserve(usize::try_from(content.declared).unwrap_or(usize::MAX));
        let mut cursor = Cursor::new(input);
        while !cursor.is_empty() {
            if !skippable::skip_one(&mut cursor).map_err(truncated)? {
                self.decode_frame(&mut cursor, output)?;
            }
        }
        Ok(())
    }

    fn decode_frame(
        &mut self,
        cursor: &mut Cursor<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), DecompressError> {
        let descriptor = Descriptor::read(cursor)?;
        let start = output.buffer.len();
        loop {
            let length = cursor.u32().map_err(truncated)?;
            if length == 0 {
                break;
            }
            let stored = cursor.take((length & !STORED) as usize).map_err(truncated)?;
            if descriptor.block_checksums {
                check(cursor, stored, "block")?;
            }
            let history = if descriptor.linked { start } else { output.buffer.len() };
            if length & STORED != 0 {
                output.append(stored);
            } else if let Some(size) = descriptor.content_size {
                let missing = size.saturating_sub((output.buffer.len() - start) as u64);
                decode_in_place(stored, history, &descriptor, missing, output)?;
            } else {
                self.decode_by_buffer(stored, history, &descriptor, output)?;
            }
            if output.is_over() {
                return Err(output.limit_exceeded(NAME));
            }
        }
        let content = &output.buffer[start..];
        if descriptor.content_size.is_some_and(|size| size != content.len() as u64) {
            return Err(corrupt("content has another length than declared"));
        }
        if descriptor.content_checksum {
            check(cursor, content, "content")?;
        }
        Ok(())
    }

    /// The size of what comes out is not known: into the codec's own buffer, which is cleared once and not for
    /// every block.
    fn decode_by_buffer(
        &mut self,
        stored: &[u8],
        history: usize,
        descriptor: &Descriptor,
        output: &mut Output<'_>,
    ) -> Result<(), DecompressError> {
        let most = descriptor.block_max.holds(stored.len());
        let room = most.min(output.room().saturating_add(1));
        if self.block.len() < room {
            self.block.resize(room, 0);
        }
        match decode_block(stored, &mut self.block[..room], &output.buffer[history..]) {
            Ok(length) => output.append(&self.block[..length]),
            Err(error) if room < most && is_too_small(&error) => return Err(output.limit_exceeded(NAME)),
            Err(error) => return Err(block_error(&error)),
        }
        Ok(())
    }
}

/// The frame said how much is still to come: no block can hold more.
fn decode_in_place(
    stored: &[u8],
    history: usize,
    descriptor: &Descriptor,
    missing: u64,
    output: &mut Output<'_>,
) -> Result<(), DecompressError> {
    let most = usize::try_from(missing).unwrap_or(usize::MAX).min(descriptor.block_max.holds(stored.len()));
    let room = most.min(output.room().saturating_add(1));
    let written = output.buffer.len();
    output.reserve(room);
    output.buffer.resize(written + room, 0);
    let (before, spare) = output.buffer.split_at_mut(written);
    match decode_block(stored, spare, &before[history..]) {
        Ok(length) => output.buffer.truncate(written + length),
        Err(error) if room < most && is_too_small(&error) => return Err(output.limit_exceeded(NAME)),
        Err(error) => return Err(block_error(&error)),
    }
    Ok(())
}

impl fmt::Debug for Lz4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lz4").finish_non_exhaustive()
    }
}

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, payload: &[u8]) -> bool {
        skippable::leads_to(payload, MAGIC)
    }

    fn confirms(&mut self, payload: &[u8]) -> bool {
        // The descriptor has a checksum of its own.
        let mut cursor = Cursor::new(payload);
        skippable::skip_all(&mut cursor).is_ok() && Descriptor::read(&mut cursor).is_ok()
    }

    fn encode(&mut self, input: &[u8], level: Level, out: &mut Vec<u8>) -> Result<(), CompressError> {
        if let Level::Exact(level) = level
            && level != THE_LEVEL
        {
            return Err(CompressError::UnknownLevel { format: NAME, level, min: THE_LEVEL, max: THE_LEVEL });
        }
        let block_max = BlockMax::for_content(input.len());
        out.clear();
        out.reserve(frame::OVERHEAD + block::get_maximum_output_size(input.len()));
        Descriptor::for_content(input.len(), block_max).write(out);
        for chunk in input.chunks(block_max.bytes()) {
            let start = out.len() + size_of::<u32>();
            out.resize(start + block::get_maximum_output_size(chunk.len()), 0);
            let length =
                block::compress_into_with_table(chunk, &mut out[start..], self.table(chunk.len())).map_err(
                    |_| CompressError::Codec { format: NAME, reason: "block does not fit its bound" },
                )?;
            let header = if length < chunk.len() {
                out.truncate(start + length);
                block_length(length)
            } else {
                out.truncate(start);
                out.extend_from_slice(chunk);
                block_length(chunk.len()) | STORED
            };
            out[start - size_of::<u32>()..start].copy_from_slice(&header.to_le_bytes());
        }
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&XxHash32::oneshot(0, input).to_le_bytes());
        Ok(())
    }

    fn decode(&mut self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), DecompressError> {
        let mut output = Output::new(out, limit);
        let result = self.decode_frames(input, &mut output);
        output.finish(result)
    }

    fn fresh(&self) -> Box<dyn Codec> {
        Box::new(Self::new())
    }
}

fn decode_block(stored: &[u8], out: &mut [u8], history: &[u8]) -> Result<usize, block::DecompressError> {
    if history.is_empty() {
        block::decompress_into(stored, out)
    } else {
        let reachable = &history[history.len().saturating_sub(HISTORY)..];
        block::decompress_into_with_dict(stored, out, reachable)
    }
}

fn block_length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a block has at most 4 MiB")
}

/// Compares the checksum that comes next with that of `data`.
fn check(cursor: &mut Cursor<'_>, data: &[u8], part: &'static str) -> Result<(), DecompressError> {
    if cursor.u32().map_err(truncated)? == XxHash32::oneshot(0, data) {
        Ok(())
    } else {
        Err(DecompressError::ChecksumMismatch { format: NAME, part })
    }
}

const fn is_too_small(error: &block::DecompressError) -> bool {
    matches!(error, block::DecompressError::OutputTooSmall { .. })
}

const fn block_error(error: &block::DecompressError) -> DecompressError {
    corrupt(if is_too_small(error) { "block holds more than declared" } else { "invalid block data" })
}

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt { format: NAME, reason }
}

fn truncated(_: End) -> DecompressError {
    DecompressError::Truncated { format: NAME }
}
