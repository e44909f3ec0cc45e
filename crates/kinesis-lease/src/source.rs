//! How the coordinator gets its store.

use std::any::{Any, TypeId};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use kinesis_core::lease::{LeaseStore, StoreError};

use crate::RegimeProbe;

/// A store, and what looks at its table, where the KCL can use it.
pub(crate) struct Open {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) probe: Option<Arc<dyn RegimeProbe>>,
}

type Opened = Result<Open, StoreError>;
type OpenWith = dyn Fn() -> Pin<Box<dyn Future<Output = Opened> + Send>> + Send + Sync;

/// Where the lease task gets its store from.
///
/// From a store value or an `Arc<dyn LeaseStore>`, which is shared as it is. A store whose connections belong to the
/// runtime that opened them should come from [`factory`](Self::factory) instead, which is called on the runtime of
/// the lease task: then nothing that blocks the caller's runtime can hold up a heartbeat.
pub struct LeaseStoreSource {
    source: Source,
    transactional: Option<Arc<dyn LeaseStore>>,
    probe: Option<Arc<dyn RegimeProbe>>,
}

enum Source {
    Shared(Arc<dyn LeaseStore>),
    Factory(Box<OpenWith>),
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
            let opened = async move {
                let store = opening.await?;
                Ok(Open { probe: probe_of(&store), store: Arc::new(store) })
            };
            Box::pin(opened) as Pin<Box<dyn Future<Output = Opened> + Send>>
        };
        Self { source: Source::Factory(Box::new(open)), transactional: None, probe: None }
    }

    /// Looks at the table with this: for a store that wraps a `DynamoDbStore`, or an `Arc<dyn LeaseStore>` that is one.
    /// A `DynamoDbStore` itself needs no such call.
    #[must_use]
    pub fn regime_probe(mut self, probe: impl RegimeProbe) -> Self {
        self.probe = Some(Arc::new(probe));
        self
    }

    /// The store, where it is one whose checkpoints can be moved inside of a user's own transaction: a `PostgresStore`
    /// given as a value, or as an `Arc<PostgresStore>`.
    #[must_use]
    pub fn transactional(&self) -> Option<Arc<dyn LeaseStore>> {
        self.transactional.clone()
    }

    pub(crate) async fn open(self) -> Opened {
        let opened = match self.source {
            Source::Shared(store) => Open { store, probe: None },
            Source::Factory(open) => open().await?,
        };
        Ok(Open { probe: self.probe.or(opened.probe), ..opened })
    }
}

impl<S: LeaseStore> From<S> for LeaseStoreSource {
    fn from(store: S) -> Self {
        let probe = probe_of(&store);
        let store: Arc<dyn LeaseStore> = Arc::new(store);
        let transactional = is_transactional::<S>().then(|| Arc::clone(&store));
        Self { source: Source::Shared(store), transactional, probe }
    }
}

/// The probe of a store of ours whose tables the KCL can use.
fn probe_of<S: 'static>(store: &S) -> Option<Arc<dyn RegimeProbe>> {
    let store: &dyn Any = store;
    #[cfg(feature = "dynamodb")]
    {
        use crate::DynamoDbStore;
        let shared = || store.downcast_ref::<Arc<DynamoDbStore>>().map(|store| (**store).clone());
        if let Some(store) = store.downcast_ref::<DynamoDbStore>().cloned().or_else(shared) {
            return Some(Arc::new(store));
        }
    }
    // Our other stores, and those that are erased or not ours.
    let _ = store;
    None
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
