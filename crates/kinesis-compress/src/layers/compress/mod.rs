//! Compresses records on their way to the service.

mod layer;
mod request;
mod service;

pub use self::layer::CompressLayer;
pub use self::request::CompressRequest;
pub use self::service::Compress;
