//! Zstandard, RFC 8878, over libzstd.

mod frame;

use std::fmt;

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{CCtx, CParameter, DCtx, ErrorCode};

use crate::output::Output;
use crate::{Codec, CompressError, DecompressError, Level, skippable};

const NAME: &str = "zstd";
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const MIN_LEVEL: i32 = -7;
const MAX_LEVEL: i32 = 22;

/// The largest window in bytes that [`Zstd`] accepts by default: 128 MiB, like the zstd tool.
pub const DEFAULT_MAX_WINDOW: u64 = 1 << 27;

/// The zstd codec.
///
/// Reads any number of frames and skippable frames. The chain of blocks is walked before anything is decoded:
/// truncation, other bytes at the end, oversized blocks and false content sizes are found there, and what the
/// blocks can hold at most bounds the output buffer. Frames are then decoded straight into that buffer, so even a
/// large window takes no memory besides the output. Dictionaries are refused, and so are the formats before 0.8.
/// Blocks whose size field says more than the format's 128 KiB (or the window, where that is smaller) are refused.
/// Writes one frame with its content size and a checksum.
///
/// The contexts are made at the first use and kept: 93 KiB to decode; to encode by level and size of the payload, for
/// 50 KB 0.6 MiB at level 3 and 1.7 MiB at 19, for 1 MB 1.3 and 18 MiB.
pub struct Zstd {
    max_window: u64,
    decoder: Option<DCtx<'static>>,
    encoder: Option<(i32, CCtx<'static>)>,
}

impl Zstd {
    /// A codec with [`DEFAULT_MAX_WINDOW`] that has no contexts yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_window: DEFAULT_MAX_WINDOW, decoder: None, encoder: None }
    }

    /// Refuses frames that declare a larger window than `bytes`. libzstd itself stops at 2 GiB.
    ///
    /// Frames that carry all their content in one segment have no window: the output limit governs them.
    #[must_use]
    pub const fn max_window(mut self, bytes: u64) -> Self {
        self.max_window = bytes;
        self
    }

    fn decode_frames(&mut self, input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
        let content = frame::survey(input, self.max_window)?;
        if content.declared > output.room() as u64 {
            return Err(output.limit_exceeded(NAME));
        }
        if content.bound == 0 {
            // Nothing to write, but what is there has still to be checked; the buffer may have no room at all.
            output.reserve(1);
        }
        output.reserve(usize::try_from(content.bound).unwrap_or(usize::MAX));
        let decoder = self.decoder.get_or_insert_with(DCtx::create);
        match decoder.decompress(output.buffer, input) {
            Ok(_) if output.is_over() => Err(output.limit_exceeded(NAME)),
            Ok(_) => Ok(()),
            // With less room than the blocks can fill, what was missing is what the limit refused.
            Err(code)
                if is(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall)
                    && content.bound > output.limit() =>
            {
                Err(output.limit_exceeded(NAME))
            }
            Err(code) => Err(decode_error(code)),
        }
    }
}

impl Default for Zstd {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("max_window", &self.max_window).finish_non_exhaustive()
    }
}

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, payload: &[u8]) -> bool {
        skippable::leads_to(payload, MAGIC)
    }

    fn confirms(&mut self, payload: &[u8]) -> bool {
        frame::confirms(payload)
    }

    fn encode(&mut self, input: &[u8], level: Level, out: &mut Vec<u8>) -> Result<(), CompressError> {
        let level = level_number(level)?;
        if self.encoder.as_ref().is_none_or(|(kept, _)| *kept != level) {
            let mut context = self.encoder.take().map_or_else(CCtx::create, |(_, context)| context);
            context.set_parameter(CParameter::CompressionLevel(level)).map_err(encode_error)?;
            context.set_parameter(CParameter::ChecksumFlag(true)).map_err(encode_error)?;
            self.encoder = Some((level, context));
        }
        let (_, context) = self.encoder.as_mut().expect("it was set just above");
        out.clear();
        out.reserve(zstd_safe::compress_bound(input.len()));
        context.compress2(out, input).map_err(encode_error)?;
        Ok(())
    }

    fn decode(&mut self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), DecompressError> {
        let mut output = Output::new(out, limit);
        let result = self.decode_frames(input, &mut output);
        output.finish(result)
    }

    fn fresh(&self) -> Box<dyn Codec> {
        Box::new(Self::new().max_window(self.max_window))
    }
}

fn level_number(level: Level) -> Result<i32, CompressError> {
    let number = match level {
        Level::Fastest => 1,
        Level::Default => 3,
        Level::Best => 19,
        Level::Exact(number) => number,
    };
    if (MIN_LEVEL..=MAX_LEVEL).contains(&number) {
        Ok(number)
    } else {
        Err(CompressError::UnknownLevel { format: NAME, level: number, min: MIN_LEVEL, max: MAX_LEVEL })
    }
}

/// libzstd returns its error numbers negated; those below 100 are part of its stable interface.
fn is(code: ErrorCode, kind: ZSTD_ErrorCode) -> bool {
    code == (kind as usize).wrapping_neg()
}

fn decode_error(code: ErrorCode) -> DecompressError {
    if is(code, ZSTD_ErrorCode::ZSTD_error_checksum_wrong) {
        return DecompressError::ChecksumMismatch { format: NAME, part: "content" };
    }
    DecompressError::Corrupt { format: NAME, reason: zstd_safe::get_error_name(code) }
}

fn encode_error(code: ErrorCode) -> CompressError {
    CompressError::Codec { format: NAME, reason: zstd_safe::get_error_name(code) }
}
