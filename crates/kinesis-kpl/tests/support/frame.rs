//! The frame around a message.

use kinesis_kpl::{MAGIC, md5};

/// Magic, message and a right digest.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    [&MAGIC[..], message, &md5::digest(message)].concat()
}
