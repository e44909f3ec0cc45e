//! How the coordinator gets its store.

use std::any::TypeId;
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
pub struct LeaseStoreSource {
    source: Source,
    transactional: Option<Arc<dyn LeaseStore>>,
}

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
        let open = move || {
            let opening = open();
            let opened = async move { Ok(Arc::new(opening.await?) as Arc<dyn LeaseStore>) };
            Box::pin(opened) as Pin<Box<dyn Future<Output = Opened> + Send>>
        };
        Self { source: Source::Factory(Box::new(open)), transactional: None }
    }

    /// The store, where it is one whose checkpoints can be moved inside of a user's own transaction: a `PostgresStore`
    /// given as a value, or as an `Arc<PostgresStore>`.
    #[must_use]
    pub fn transactional(&self) -> Option<Arc<dyn LeaseStore>> {
        self.transactional.clone()
    }

    pub(crate) async fn open(self) -> Opened {
        match self.source {
            Source::Shared(store) => Ok(store),
            Source::Factory(open) => open().await,
        }
    }
}

impl<S: LeaseStore> From<S> for LeaseStoreSource {
    fn from(store: S) -> Self {
        let store: Arc<dyn LeaseStore> = Arc::new(store);
        let transactional = is_transactional::<S>().then(|| Arc::clone(&store));
        Self { source: Source::Shared(store), transactional }
    }
}

fn is_transactional<S: 'static>() -> bool {
    #[cfg(feature = "postgres")]
    if [TypeId::of::<crate::PostgresStore>(), TypeId::of::<Arc<crate::PostgresStore>>()]
        .contains(&TypeId::of::<S>())
    {
        return true;
    }
    // Our other stores, and those that are erased, opened later or not ours.
    let _ = TypeId::of::<S>();
    false
}

impl fmt::Debug for LeaseStoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Shared(store) => f.debug_tuple("Shared").field(store).finish(),
            Source::Factory(_) => f.write_str("Factory"),
        }
    }
}
