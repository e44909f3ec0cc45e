use std::task::{Context, Poll};

use kinesis_core::BoxError;
use kinesis_core::processing::HandlerError;
use tower_service::Service;

use super::DecompressRequest;
use crate::Decompressor;
use crate::layers::ResponseFuture;

/// The service that [`DecompressLayer`](super::DecompressLayer) makes.
#[derive(Debug, Clone)]
pub struct Decompress<S> {
    inner: S,
    decompressor: Decompressor,
}

impl<S> Decompress<S> {
    /// Wraps `inner`.
    pub const fn new(inner: S, decompressor: Decompressor) -> Self {
        Self { inner, decompressor }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, to change it.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Gives the inner service back.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R> Service<R> for Decompress<S>
where
    S: Service<R, Error: Into<BoxError>>,
    R: DecompressRequest,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match request.decompress(&self.decompressor) {
            Ok(request) => ResponseFuture::inner(self.inner.call(request)),
            Err(error) => ResponseFuture::failed(HandlerError::permanent(error)),
        }
    }
}
