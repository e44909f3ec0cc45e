//! Erased services with types of our own, so that no version of `tower` shows in signatures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use kinesis_core::{Ack, BoxError, IntoAck, IntoRecordAck, Record, RecordAck, RecordBatch};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tower_service::Service;

/// The future of an erased service.
pub type ServiceFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

macro_rules! erased {
    ($(#[$doc:meta])* $name:ident, $request:ty, $answer:ty, $into:ident, $method:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(BoxCloneSyncService<$request, $answer, BoxError>);

        impl $name {
            pub(crate) fn new<S>(service: S) -> Self
            where
                S: Service<$request> + Clone + Send + Sync + 'static,
                S::Response: $into + 'static,
                S::Error: Into<BoxError> + 'static,
                S::Future: Send + 'static,
            {
                Self(BoxCloneSyncService::new(
                    service.map_response(|answer: S::Response| answer.$method()).map_err(Into::into),
                ))
            }
        }

        impl Service<$request> for $name {
            type Response = $answer;
            type Error = BoxError;
            type Future = ServiceFuture<$answer>;

            fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
                self.0.poll_ready(context)
            }

            fn call(&mut self, request: $request) -> Self::Future {
                self.0.call(request)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

erased! {
    /// A batch handler of any kind: what a layer of a [`BatchDoor`](crate::BatchDoor) wraps.
    BatchService, RecordBatch, Ack, IntoAck, into_ack
}

erased! {
    /// A record handler of any kind: what a layer of a [`RecordDoor`](crate::RecordDoor) wraps.
    RecordService, Record, RecordAck, IntoRecordAck, into_record_ack
}
