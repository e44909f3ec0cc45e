//! The future of both layers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use kinesis_core::BoxError;
use pin_project_lite::pin_project;

pin_project! {
    /// The future of [`Decompress`](super::Decompress) and [`Compress`](super::Compress): the inner service's, or a
    /// failure that kept the request from reaching it.
    ///
    /// Dropping it drops the inner future and nothing else.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Inner { #[pin] future: F },
        Failed { error: Option<BoxError> },
    }
}

impl<F> ResponseFuture<F> {
    pub(super) const fn inner(future: F) -> Self {
        Self { state: State::Inner { future } }
    }

    pub(super) fn failed(error: impl Into<BoxError>) -> Self {
        Self { state: State::Failed { error: Some(error.into()) } }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Inner { future } => Poll::Ready(ready!(future.poll(context)).map_err(Into::into)),
            StateProj::Failed { error } => {
                Poll::Ready(Err(error.take().expect("the future was polled after it had completed")))
            }
        }
    }
}
