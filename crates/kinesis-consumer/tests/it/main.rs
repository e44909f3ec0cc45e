//! Tests of the whole consumer against a Kinesis in this process, most of them in virtual time.

#[cfg(test)]
mod common;
#[cfg(test)]
#[cfg(all(feature = "default-https-client", feature = "efo"))]
mod connections;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod failure;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod fan_out;
#[cfg(test)]
mod life;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod regime;
#[cfg(test)]
mod reshard;
#[cfg(test)]
mod robbed;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod shelf;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod start;
#[cfg(test)]
#[cfg(all(feature = "default-https-client", feature = "efo"))]
mod steal;
#[cfg(test)]
mod weigh;
#[cfg(test)]
#[cfg(all(feature = "gzip", feature = "kpl", feature = "zstd"))]
mod wire;
