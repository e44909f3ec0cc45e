//! Decompresses records on their way to a handler.

mod layer;
mod request;
mod service;

pub use self::layer::DecompressLayer;
pub use self::request::DecompressRequest;
pub use self::service::Decompress;
