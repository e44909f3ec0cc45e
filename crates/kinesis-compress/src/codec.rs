//! The seam that every format implements.

use std::fmt;

use crate::{CompressError, DecompressError};

/// How hard an encoder tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Level {
    /// The least CPU time: gzip 1, zstd 1.
    Fastest,
    /// The format's usual trade: gzip 6, zstd 3.
    #[default]
    Default,
    /// The smallest output at a CPU time that is still sane: gzip 9, zstd 19.
    Best,
    /// A level in the format's own numbers: gzip 0 to 9, zstd -7 to 22, lz4 1 only.
    Exact(i32),
}

/// One compression format: recognise, encode, decode, with contexts that are reused from call to call.
///
/// The trait is object-safe and synchronous. A codec is used by one thread at a time (`&mut self`);
/// [`Decompressor`](crate::Decompressor) and [`Compressor`](crate::Compressor) keep a bounded pool of them.
///
/// Implementors must uphold, for any input:
/// - `decode` never panics, never lets `out` grow beyond `limit` by more than one byte, and never takes memory
///   in proportion to a size that the payload merely declares;
/// - after an error `out` is empty.
pub trait Codec: fmt::Debug + Send + Sync + 'static {
    /// The name of the format, for messages and metric labels: lowercase, static.
    fn name(&self) -> &'static str;

    /// Whether the payload begins with the magic number of this format.
    ///
    /// Leading skippable frames are stepped over when a real frame follows them.
    fn recognises(&self, payload: &[u8]) -> bool;

    /// Whether the beginning of the payload is a real frame and not only bytes that happen to look like its
    /// magic number: the header keeps all rules of the format and the first block is sound as far as it goes.
    ///
    /// Detection asks this when a payload that was recognised does not decode. `true` means that the payload is
    /// a damaged frame, `false` that it is something else.
    fn confirms(&mut self, payload: &[u8]) -> bool;

    /// Replaces the contents of `out` by `input` as one frame of this format.
    ///
    /// # Errors
    /// [`CompressError::UnknownLevel`] when the format has no such level.
    fn encode(&mut self, input: &[u8], level: Level, out: &mut Vec<u8>) -> Result<(), CompressError>;

    /// Replaces the contents of `out` by the contents of all frames of `input`, at most `limit` bytes.
    ///
    /// # Errors
    /// Any [`DecompressError`]; [`DecompressError::NotCompressed`] when `input` is not [recognised](Self::recognises).
    fn decode(&mut self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), DecompressError>;

    /// A codec with the same settings and contexts of its own.
    fn fresh(&self) -> Box<dyn Codec>;
}
