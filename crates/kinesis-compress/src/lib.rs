#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod codec;
mod compression;
mod compressor;
mod decompressor;
mod error;
mod pool;

#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd"))]
mod cursor;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "tower")]
mod layers;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd"))]
mod output;
#[cfg(any(feature = "lz4", feature = "zstd"))]
mod skippable;
#[cfg(feature = "zstd")]
mod zstd;

pub use codec::{Codec, Level};
pub use compression::{Compression, ParseCompressionError};
pub use compressor::{Compressor, Incompressible};
pub use decompressor::{DEFAULT_MAX_BATCH_OUTPUT, DEFAULT_MAX_OUTPUT, Decompressor, Lookalikes};
pub use error::{CompressError, DecompressError, RecordDecompressError};
pub use pool::MAX_IDLE_CODECS;

#[cfg(feature = "gzip")]
#[cfg_attr(docsrs, doc(cfg(feature = "gzip")))]
pub use gzip::Gzip;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use layers::{
    Compress, CompressLayer, CompressRequest, Decompress, DecompressLayer, DecompressRequest, ResponseFuture,
};
#[cfg(feature = "lz4")]
#[cfg_attr(docsrs, doc(cfg(feature = "lz4")))]
pub use lz4::Lz4;
#[cfg(feature = "zstd")]
#[cfg_attr(docsrs, doc(cfg(feature = "zstd")))]
pub use zstd::{DEFAULT_MAX_WINDOW, Zstd};
