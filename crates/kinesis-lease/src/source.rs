//! How the coordinator gets its store.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use kinesis_core::lease::{LeaseStore, StoreError};

type Opened = Result<Arc<dyn LeaseStore>, StoreError>;
type Open = dyn Fn() -> Pin<Box<dyn Future<Output = Opened> + Send>> + Send + Sync;

/// Where the lease task gets its store from.
///
/// From a store value or an `Arc<dyn LeaseStore>`, which is shared as it is. A store whose connections belong to the
/// runtime that opened them should come from [`factory`](Self::factory) instead, which is called on the runtime of
/// the lease task: then nothing that blocks the caller's runtime can hold up a heartbeat.
pub struct LeaseStoreSource(Source);

enum Source {
    Shared(Arc<dyn LeaseStore>),
    Factory(Box<Open>),
}

impl LeaseStoreSource {
    /// A store that is opened on the runtime of the lease task.
    pub fn factory<F, Fut, S>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, StoreError>> + Send + 'static,
        S: LeaseStore,
    {
        Self(Source::Factory(Box::new(move || {
            let opening = open();
            Box::pin(async move { Ok(Arc::new(opening.await?) as Arc<dyn LeaseStore>) })
        })))
    }

    pub(crate) async fn open(self) -> Opened {
        match self.0 {
            Source::Shared(store) => Ok(store),
            Source::Factory(open) => open().await,
        }
    }
}

impl<S: LeaseStore> From<S> for LeaseStoreSource {
    fn from(store: S) -> Self {
        Self(Source::Shared(Arc::new(store)))
    }
}

impl fmt::Debug for LeaseStoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Shared(store) => f.debug_tuple("Shared").field(store).finish(),
            Source::Factory(_) => f.write_str("Factory"),
        }
    }
}
