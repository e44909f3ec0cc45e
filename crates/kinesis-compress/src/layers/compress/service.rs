use std::task::{Context, Poll};

use kinesis_core::BoxError;
use tower_service::Service;

use super::CompressRequest;
use crate::Compressor;
use crate::layers::ResponseFuture;

/// The service that [`CompressLayer`](super::CompressLayer) makes.
#[derive(Debug, Clone)]
pub struct Compress<S> {
    inner: S,
    compressor: Compressor,
}

impl<S> Compress<S> {
    /// Wraps `inner`.
    pub const fn new(inner: S, compressor: Compressor) -> Self {
        Self { inner, compressor }
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

impl<S, R> Service<R> for Compress<S>
where
    S: Service<R, Error: Into<BoxError>>,
    R: CompressRequest,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match request.compress(&self.compressor) {
            Ok(request) => ResponseFuture::inner(self.inner.call(request)),
            Err(error) => ResponseFuture::failed(error),
        }
    }
}
