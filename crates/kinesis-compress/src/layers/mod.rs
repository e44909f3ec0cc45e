//! The codecs as tower layers.

mod compress;
mod decompress;
mod future;

pub use compress::{Compress, CompressLayer, CompressRequest};
pub use decompress::{Decompress, DecompressLayer, DecompressRequest};
pub use future::ResponseFuture;
