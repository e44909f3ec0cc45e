//! The formats by name.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::Codec;

/// A compression format by name.
///
/// All names exist whatever features are on; [`Compression::codec`] returns `None` for a format that was not
/// compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Compression {
    /// gzip, RFC 1952 (feature `gzip`).
    Gzip,
    /// Zstandard frames, RFC 8878 (feature `zstd`).
    Zstd,
    /// The lz4 frame format 1.6 (feature `lz4`).
    Lz4,
}

impl Compression {
    /// Every format this version knows, compiled in or not.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zstd, Self::Lz4];

    /// The name as it is written in configuration: `gzip`, `zstd` or `lz4`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// A codec for this format with the default settings, or `None` when its feature is off.
    #[must_use]
    pub fn codec(self) -> Option<Box<dyn Codec>> {
        #[cfg(feature = "gzip")]
        if self == Self::Gzip {
            return Some(Box::new(crate::Gzip::new()));
        }
        #[cfg(feature = "zstd")]
        if self == Self::Zstd {
            return Some(Box::new(crate::Zstd::new()));
        }
        #[cfg(feature = "lz4")]
        if self == Self::Lz4 {
            return Some(Box::new(crate::Lz4::new()));
        }
        None
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is none of `gzip`, `zstd` and `lz4`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown compression format, expected gzip, zstd or lz4")]
#[non_exhaustive]
pub struct ParseCompressionError;

impl FromStr for Compression {
    type Err = ParseCompressionError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|format| format.as_str() == name).ok_or(ParseCompressionError)
    }
}
