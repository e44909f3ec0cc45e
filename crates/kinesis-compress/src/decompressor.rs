//! Compressed payloads to plain ones, and everything else as it is.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::payload::{self, Decoded, PayloadDecoder};

use crate::pool::Pool;
use crate::{Codec, Compression, DecompressError};

/// The most bytes that one payload may hold by default: 10 MiB, the largest record that Kinesis itself carries.
///
/// See <https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html>.
pub const DEFAULT_MAX_OUTPUT: usize = 10 * 1024 * 1024;

/// The most bytes that the records of one batch may hold together by default, for
/// [`DecompressLayer`](crate::DecompressLayer) on batches: 256 MiB.
///
/// One GetRecords answer has at most 10 MiB, so honest data would have to shrink by a factor of 25 to get there.
pub const DEFAULT_MAX_BATCH_OUTPUT: usize = 256 * 1024 * 1024;

/// What happens to a payload that begins with a format's magic number and does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Lookalikes {
    /// A payload whose beginning is not a real frame is something else that happens to start with the same bytes: it is
    /// passed on unchanged. A real frame that is damaged is an error.
    #[default]
    PassOn,
    /// Whatever begins with the magic number has to decode.
    Fail,
}

/// Decompresses payloads that are compressed and passes the others on.
///
/// A payload counts as compressed when it begins with the magic number of one of the formats that this value
/// looks for: gzip `1f 8b 08`, zstd `28 b5 2f fd`, lz4 `04 22 4d 18`, the latter two also after skippable frames
/// (`5? 2a 4d 18`). So streams may mix plain and compressed records. Bytes that only look like a frame are passed on
/// unchanged too, see [`Lookalikes`].
///
/// Cheap to clone; clones share a pool of at most [`MAX_IDLE_CODECS`](crate::MAX_IDLE_CODECS) sets of codecs, so
/// contexts are made once per thread that decodes at the same time and then reused.
///
/// ```
/// use bytes::Bytes;
/// use kinesis_compress::{Compression, Compressor, Decompressor};
///
/// let plain = Bytes::from("a".repeat(1000));
/// let packed = Compressor::new(Compression::Gzip)?.compress(&plain)?;
/// let decompressor = Decompressor::auto();
/// assert_eq!(decompressor.decompress(&packed)?, plain);
/// assert_eq!(decompressor.decompress(&plain)?, plain);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Decompressor {
    shared: Arc<Shared>,
    max_output: usize,
    max_batch_output: usize,
    lookalikes: Lookalikes,
    name: &'static str,
}

struct Shared {
    prototypes: Vec<Box<dyn Codec>>,
    pool: Pool<Vec<Box<dyn Codec>>>,
}

impl Decompressor {
    /// Looks for every format that is compiled in.
    #[must_use]
    pub fn auto() -> Self {
        Self::with_codecs(Compression::ALL.into_iter().filter_map(Compression::codec))
    }

    /// Looks for one format and passes everything else on, other compressed formats too.
    ///
    /// # Errors
    /// [`DecompressError::NotEnabled`] when the format's feature is off.
    pub fn only(format: Compression) -> Result<Self, DecompressError> {
        format.codec().map(|codec| Self::with_codecs([codec])).ok_or(DecompressError::NotEnabled { format })
    }

    /// Looks for the formats of these codecs, in this order: own formats, or ours with other settings.
    #[must_use]
    pub fn with_codecs(codecs: impl IntoIterator<Item = Box<dyn Codec>>) -> Self {
        let prototypes: Vec<_> = codecs.into_iter().collect();
        let name = match prototypes.as_slice() {
            [only] => only.name(),
            _ => "decompress",
        };
        let shared = Shared { prototypes, pool: Pool::new() };
        Self {
            shared: Arc::new(shared),
            max_output: DEFAULT_MAX_OUTPUT,
            max_batch_output: DEFAULT_MAX_BATCH_OUTPUT,
            lookalikes: Lookalikes::default(),
            name,
        }
    }

    /// Refuses payloads that hold more than `bytes`; [`DEFAULT_MAX_OUTPUT`] unless it is set.
    ///
    /// The limit is enforced while decoding: memory never grows beyond it by more than one byte of output and one
    /// block of the format (4 MiB for lz4), whatever the payload declares.
    #[must_use]
    pub const fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }

    /// Refuses batches whose records hold more than `bytes` together; [`DEFAULT_MAX_BATCH_OUTPUT`] unless it is set.
    ///
    /// It matters to [`DecompressLayer`](crate::DecompressLayer) on batches only.
    #[must_use]
    pub const fn max_batch_output(mut self, bytes: usize) -> Self {
        self.max_batch_output = bytes;
        self
    }

    /// What happens to a payload that begins like a frame and does not decode.
    #[must_use]
    pub const fn lookalikes(mut self, choice: Lookalikes) -> Self {
        self.lookalikes = choice;
        self
    }

    /// The limit that [`max_output`](Self::max_output) set, in bytes.
    #[must_use]
    pub const fn max_output_bytes(&self) -> usize {
        self.max_output
    }

    /// The limit that [`max_batch_output`](Self::max_batch_output) set, in bytes.
    #[must_use]
    pub const fn max_batch_output_bytes(&self) -> usize {
        self.max_batch_output
    }

    /// Whether the payload begins with the magic number of a format that this value looks for.
    #[must_use]
    pub fn recognises(&self, payload: &[u8]) -> bool {
        self.shared.prototypes.iter().any(|codec| codec.recognises(payload))
    }

    /// The decompressed payload, or the same one when it is not compressed.
    ///
    /// # Errors
    /// Any [`DecompressError`] except [`NotCompressed`](DecompressError::NotCompressed).
    pub fn decompress(&self, payload: &Bytes) -> Result<Bytes, DecompressError> {
        Ok(self.try_decompress(payload, self.max_output)?.unwrap_or_else(|| payload.clone()))
    }

    /// The decompressed payload of at most `limit` bytes, or `None` when it is not compressed.
    ///
    /// The lower of `limit` and [`max_output`](Self::max_output) applies. A payload is decompressed once, also when
    /// what comes out is compressed itself.
    ///
    /// # Errors
    /// As [`decompress`](Self::decompress).
    pub fn try_decompress(&self, payload: &[u8], limit: usize) -> Result<Option<Bytes>, DecompressError> {
        // The prototypes answer without a context: most payloads of an uncompressed stream end here.
        let Some(index) = self.shared.prototypes.iter().position(|codec| codec.recognises(payload)) else {
            return Ok(None);
        };
        let make = || self.shared.prototypes.iter().map(|codec| codec.fresh()).collect();
        self.shared.pool.with(make, |codecs: &mut Vec<Box<dyn Codec>>| {
            let codec = &mut codecs[index];
            let mut out = Vec::new();
            match codec.decode(payload, limit.min(self.max_output), &mut out) {
                Ok(()) => Ok(Some(into_bytes(out))),
                Err(error @ DecompressError::DecompressedSizeLimitExceeded { .. }) => Err(error),
                Err(_) if self.lookalikes == Lookalikes::PassOn && !codec.confirms(payload) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor")
            .field("codecs", &self.shared.prototypes)
            .field("max_output", &self.max_output)
            .field("max_batch_output", &self.max_batch_output)
            .field("lookalikes", &self.lookalikes)
            .finish_non_exhaustive()
    }
}

/// [`Decompressor::auto`].
impl Default for Decompressor {
    fn default() -> Self {
        Self::auto()
    }
}

impl PayloadDecoder for Decompressor {
    /// The format's name when there is only one, else `decompress`.
    fn name(&self) -> &'static str {
        self.name
    }

    fn decode(&self, payload: &Bytes, limit: usize) -> Result<Decoded, payload::DecodeError> {
        match self.try_decompress(payload, limit) {
            Ok(Some(plain)) => Ok(Decoded::Changed(plain)),
            Ok(None) => Ok(Decoded::Unchanged),
            Err(DecompressError::DecompressedSizeLimitExceeded { format, limit }) => {
                Err(payload::DecodeError::limit_exceeded(format, limit))
            }
            Err(error) => Err(payload::DecodeError::damaged(self.name, error)),
        }
    }
}

/// Without a copy when the buffer is full, which is the rule; a buffer that was taken too large gives its rest back.
fn into_bytes(mut out: Vec<u8>) -> Bytes {
    const TOLERATED_SLACK: usize = 1024;
    if out.capacity() - out.len() > TOLERATED_SLACK {
        out.shrink_to_fit();
    }
    Bytes::from(out)
}
