//! MD5.
use md5::{Digest, Md5};
/// digest
pub fn digest(bytes: &[u8]) -> [u8; 16] { Md5::digest(bytes).into() }
