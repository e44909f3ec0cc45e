//! Plain payloads to compressed ones.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kinesis_core::payload::{EncodeError, PayloadEncoder};

use crate::pool::Pool;
use crate::{Codec, CompressError, Compression, Level};

/// What is sent when compression makes a payload larger, as it does with random or already compressed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Incompressible {
    /// The compressed form all the same: every record is in the one format, for readers that expect it.
    #[default]
    Compress,
    /// The payload as it is, which readers that pass on what is not compressed understand, like
    /// [`Decompressor`](crate::Decompressor). A payload that begins with the format's own magic number is
    /// compressed all the same, or a reader would decompress what the sender never compressed.
    PassOn,
}

/// Compresses payloads into one format, without any framing of our own: what comes out is a file that the command
/// line tool of the format reads.
///
/// Cheap to clone; clones share a pool of at most [`MAX_IDLE_CODECS`](crate::MAX_IDLE_CODECS) codecs.
#[derive(Clone)]
pub struct Compressor {
    shared: Arc<Shared>,
    level: Level,
    incompressible: Incompressible,
}

struct Shared {
    prototype: Box<dyn Codec>,
    pool: Pool<Worker>,
}

/// A codec and the buffer that it writes to before the exact size is known.
struct Worker {
    codec: Box<dyn Codec>,
    buffer: Vec<u8>,
}

/// A worker's buffer that was needed for a larger payload than this is not kept.
const MAX_KEPT_BUFFER: usize = 2 * 1024 * 1024;

impl Compressor {
    /// Compresses into this format at [`Level::Default`].
    ///
    /// # Errors
    /// [`CompressError::NotEnabled`] when the format's feature is off.
    pub fn new(format: Compression) -> Result<Self, CompressError> {
        format.codec().map(Self::with_codec).ok_or(CompressError::NotEnabled { format })
    }

    /// Compresses with a codec of one's own, or one of ours with other settings.
    #[must_use]
    pub fn with_codec(codec: Box<dyn Codec>) -> Self {
        let shared = Shared { prototype: codec, pool: Pool::new() };
        Self { shared: Arc::new(shared), level: Level::Default, incompressible: Incompressible::default() }
    }

    /// Sets how hard to try.
    ///
    /// # Errors
    /// [`CompressError::UnknownLevel`] when the format has no such level.
    pub fn level(mut self, level: Level) -> Result<Self, CompressError> {
        self.level = level;
        self.try_compress(b"")?;
        Ok(self)
    }

    /// Sets what is sent for payloads that do not shrink.
    #[must_use]
    pub const fn incompressible(mut self, choice: Incompressible) -> Self {
        self.incompressible = choice;
        self
    }

    /// The name of the format.
    #[must_use]
    pub fn format(&self) -> &'static str {
        self.shared.prototype.name()
    }

    /// The payload as one frame.
    ///
    /// # Errors
    /// [`CompressError::Codec`] when the codec library fails, for example for want of memory.
    pub fn compress(&self, payload: &Bytes) -> Result<Bytes, CompressError> {
        Ok(self.try_compress(payload)?.unwrap_or_else(|| payload.clone()))
    }

    /// The payload as one frame, or `None` when it is to be sent as it is, see [`Incompressible`].
    ///
    /// # Errors
    /// As [`compress`](Self::compress).
    pub fn try_compress(&self, payload: &[u8]) -> Result<Option<Bytes>, CompressError> {
        let make = || Worker { codec: self.shared.prototype.fresh(), buffer: Vec::new() };
        self.shared.pool.with(make, |Worker { codec, buffer }| {
            codec.encode(payload, self.level, buffer)?;
            let pass_on = self.incompressible == Incompressible::PassOn
                && buffer.len() >= payload.len()
                && !codec.recognises(payload);
            let packed = (!pass_on).then(|| Bytes::copy_from_slice(buffer));
            if buffer.capacity() > MAX_KEPT_BUFFER {
                *buffer = Vec::new();
            }
            Ok(packed)
        })
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("codec", &self.shared.prototype)
            .field("level", &self.level)
            .field("incompressible", &self.incompressible)
            .finish_non_exhaustive()
    }
}

impl PayloadEncoder for Compressor {
    fn name(&self) -> &'static str {
        self.format()
    }

    fn encode(&self, payload: &Bytes) -> Result<Bytes, EncodeError> {
        self.compress(payload).map_err(|error| EncodeError::new(self.format(), error))
    }
}
