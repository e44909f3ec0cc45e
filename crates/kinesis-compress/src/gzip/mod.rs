//! gzip, RFC 1952, over flate2's raw deflate.

mod member;

use std::fmt;

use flate2::{Compress, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use self::member::Header;
use crate::cursor::{Cursor, End};
use crate::output::Output;
use crate::{Codec, CompressError, DecompressError, Level};

const NAME: &str = "gzip";
const MIN_LEVEL: i32 = 0;
const MAX_LEVEL: i32 = 9;
/// The first allocation follows the length in the trailer only up to this many times the payload's own size:
/// beyond that, memory is taken as data really comes out.
const TRUSTED_RATIO: usize = 32;
/// Room that an encoder may want beyond what it writes, in bytes.
const SPARE: usize = 1024;
/// [`Codec::confirms`] believes a deflate stream that has given this many bytes.
const CONVINCING: usize = 16;

/// The gzip codec.
///
/// Reads any number of members with any header fields, verifies the content's checksum and length and, where
/// there is one, the header's checksum, and refuses reserved flags. Zero bytes after the last member are padding,
/// as the gzip tool has it; anything else there is an error. Writes one member without name or time, so equal
/// payloads give equal bytes.
///
/// The contexts (46 KiB to decode, 371 KiB to encode) are made at the first use and kept.
#[derive(Default)]
pub struct Gzip {
    inflate: Option<Decompress>,
    deflate: Option<(u32, Compress)>,
}

impl Gzip {
    /// A codec that has no contexts yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { inflate: None, deflate: None }
    }

    fn inflate(&mut self) -> &mut Decompress {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        inflate
    }

    fn deflate(&mut self, level: u32) -> &mut Compress {
        match &mut self.deflate {
            Some((kept, deflate)) if *kept == level => deflate.reset(),
            other => *other = Some((level, Compress::new(flate2::Compression::new(level), false))),
        }
        &mut self.deflate.as_mut().expect("it was set just above").1
    }

    fn decode_members(&mut self, input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
        let mut cursor = Cursor::new(input);
        if !member::starts(input) {
            return Err(DecompressError::NotCompressed { format: NAME });
        }
        output.reserve(first_capacity(input));
        loop {
            self.decode_member(&mut cursor, output)?;
            if cursor.rest().iter().all(|&byte| byte == 0) {
                return Ok(());
            }
            if !member::starts(cursor.rest()) {
                return Err(DecompressError::TrailingData { format: NAME, offset: cursor.position() });
            }
        }
    }

    fn decode_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), DecompressError> {
        Header::read(cursor)?;
        let start = output.buffer.len();
        let inflate = self.inflate();
        loop {
            if output.buffer.len() == output.buffer.capacity() {
                output.grow();
            }
            let before = inflate.total_in();
            let status = inflate
                .decompress_vec(cursor.rest(), output.buffer, FlushDecompress::None)
                .map_err(|_| DecompressError::Corrupt { format: NAME, reason: "invalid deflate data" })?;
            cursor.take(read_since(inflate, before)).map_err(truncated)?;
            if output.is_over() {
                return Err(output.limit_exceeded(NAME));
            }
            match status {
                Status::StreamEnd => break,
                // There was room left, so the decoder stopped for want of input.
                Status::Ok | Status::BufError if output.buffer.len() < output.buffer.capacity() => {
                    return Err(truncated(End));
                }
                Status::Ok | Status::BufError => {}
            }
        }
        member::check_trailer(cursor, &output.buffer[start..])
    }
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").finish_non_exhaustive()
    }
}

impl Codec for Gzip {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, payload: &[u8]) -> bool {
        member::starts(payload)
    }

    fn confirms(&mut self, payload: &[u8]) -> bool {
        let mut cursor = Cursor::new(payload);
        if Header::read(&mut cursor).is_err() || cursor.is_empty() {
            return false;
        }
        let inflate = self.inflate();
        let mut sample = [0; CONVINCING];
        let Ok(status) = inflate.decompress(cursor.rest(), &mut sample, FlushDecompress::None) else {
            return false;
        };
        let length = usize::try_from(inflate.total_out()).unwrap_or(usize::MAX);
        let read = read_since(inflate, 0);
        if status == Status::StreamEnd {
            // A stream this short may be an accident; its checksum is not.
            return cursor.take(read).is_ok()
                && !matches!(
                    member::check_trailer(&mut cursor, &sample[..length]),
                    Err(DecompressError::ChecksumMismatch { .. } | DecompressError::Corrupt { .. })
                );
        }
        length == CONVINCING || (length > 0 && read == cursor.rest().len())
    }

    fn encode(&mut self, input: &[u8], level: Level, out: &mut Vec<u8>) -> Result<(), CompressError> {
        let level = level_number(level)?;
        out.clear();
        out.reserve(member::HEADER_LENGTH + member::stored_length(input) + SPARE + member::TRAILER_LENGTH);
        out.extend_from_slice(&member::header(level));
        let deflate = self.deflate(level);
        loop {
            let read = usize::try_from(deflate.total_in()).expect("it is at most the input's length");
            let status = deflate
                .compress_vec(&input[read..], out, FlushCompress::Finish)
                .map_err(|_| CompressError::Codec { format: NAME, reason: "deflate failed" })?;
            if status == Status::StreamEnd {
                break;
            }
            out.reserve(out.len().max(SPARE));
        }
        // The library's fastest level makes noise larger by a twentieth.
        if out.len() - member::HEADER_LENGTH > member::stored_length(input) {
            out.truncate(member::HEADER_LENGTH);
            member::store(input, out);
        }
        out.extend_from_slice(&member::trailer(input));
        Ok(())
    }

    fn decode(&mut self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), DecompressError> {
        let mut output = Output::new(out, limit);
        let result = self.decode_members(input, &mut output);
        output.finish(result)
    }

    fn fresh(&self) -> Box<dyn Codec> {
        Box::new(Self::new())
    }
}

/// What the last member's trailer says its length is, which is exact for the usual single member.
fn first_capacity(input: &[u8]) -> usize {
    let declared = input.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let trusted = input.len().saturating_mul(TRUSTED_RATIO);
    usize::try_from(declared).unwrap_or(usize::MAX).min(trusted)
}

fn read_since(inflate: &Decompress, before: u64) -> usize {
    usize::try_from(inflate.total_in() - before).expect("it is at most the input's length")
}

fn level_number(level: Level) -> Result<u32, CompressError> {
    let number = match level {
        Level::Fastest => 1,
        Level::Default => 6,
        Level::Best => 9,
        Level::Exact(number) => number,
    };
    u32::try_from(number)
        .ok()
        .filter(|_| (MIN_LEVEL..=MAX_LEVEL).contains(&number))
        .ok_or(CompressError::UnknownLevel { format: NAME, level: number, min: MIN_LEVEL, max: MAX_LEVEL })
}

fn truncated(_: End) -> DecompressError {
    DecompressError::Truncated { format: NAME }
}

fn checksum(data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(data);
    crc.sum()
}
