//! Settings of the wire stage: what is made of a payload before a handler sees it.

use std::sync::Arc;

use kinesis_core::payload::PayloadDecoder;

#[cfg(feature = "kpl")]
use crate::engine::Splitter;
use crate::engine::WireStage;
use crate::{ConfigError, ConsumerConfig};

/// Which compressed payloads are decompressed before a handler sees them.
///
/// Payloads of other formats and plain ones are passed on as they are, so a stream may mix them. The output is limited by
/// [`ConsumerConfig::max_decoded_bytes`]. For other settings of the codecs give a `kinesis_compress::Decompressor` of
/// your own to [`ConsumerBuilder::decoder`](crate::ConsumerBuilder::decoder).
#[cfg(feature = "compress")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
#[non_exhaustive]
pub enum Decompression {
    /// None.
    #[default]
    Off,
    /// Every format that is compiled in, told by its magic number.
    Auto,
    /// gzip only (feature `gzip`).
    Gzip,
    /// zstd only (feature `zstd`).
    Zstd,
    /// The lz4 frame format only (feature `lz4`).
    Lz4,
}

/// What becomes of a Kinesis record that looks like an aggregate of the KPL and cannot be split.
#[cfg(feature = "kpl")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(docsrs, doc(cfg(feature = "kpl")))]
#[non_exhaustive]
pub enum Undecoded {
    /// The handler gets the bytes as they came, marked by the record's
    /// [`origin`](kinesis_core::Record::origin): somebody may have written just these bytes.
    #[default]
    PassOn,
    /// A permanent failure, under the failure policy.
    Fail,
    /// The dead-letter service gets it at once, whatever the failure policy says. Needs
    /// [`dead_letter`](crate::ConsumerBuilder::dead_letter).
    DeadLetter,
}

/// The wire stage that the configuration asks for; `decoders` run before the decompression.
pub(crate) fn wire_stage(
    config: &ConsumerConfig,
    decoders: Vec<Arc<dyn PayloadDecoder>>,
) -> Result<WireStage, ConfigError> {
    #[cfg(feature = "compress")]
    let decoders = decoders.into_iter().chain(decompressor(config.decompression)?).collect();
    let stage = WireStage::new(decoders, config.max_decoded_bytes);
    #[cfg(feature = "kpl")]
    if config.deaggregate {
        let splitter = Splitter { undecoded: config.undecoded, range_filter: config.range_filter };
        return Ok(stage.splitting(splitter));
    }
    Ok(stage)
}

#[cfg(feature = "compress")]
fn decompressor(choice: Decompression) -> Result<Option<Arc<dyn PayloadDecoder>>, ConfigError> {
    use kinesis_compress::{Compression, Decompressor};
    let only = |format| {
        Decompressor::only(format).map_err(|error| ConfigError::new("decompression", error.to_string()))
    };
    let decompressor = match choice {
        Decompression::Off => return Ok(None),
        Decompression::Auto => Decompressor::auto(),
        Decompression::Gzip => only(Compression::Gzip)?,
        Decompression::Zstd => only(Compression::Zstd)?,
        Decompression::Lz4 => only(Compression::Lz4)?,
    };
    // The engine's own limit is the one that counts.
    Ok(Some(Arc::new(decompressor.max_output(usize::MAX))))
}
