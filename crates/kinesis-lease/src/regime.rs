//! Who shares out the leases of a table that workers of the KCL can use, too: every worker for itself (KCL 2.x and this
//! library), or a leader (KCL 3.x).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use kinesis_core::WorkerId;
use kinesis_core::lease::StoreError;

/// Who shares out the leases of a table, as far as the table shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Regime {
    /// There is no trace of the KCL 3.x, or it was rolled back: every worker takes its part.
    Takers,
    /// The KCL 3.x is being rolled out in the mode that is compatible with 2.x: every worker takes its part until the
    /// leader finds that all are ready.
    Upgrading,
    /// There is a leader or there are metrics of workers, but nothing that says whether the leader assigns. Two looks that
    /// find different marks show that they live.
    Unclear {
        /// What changes while they live.
        mark: String,
    },
    /// A leader assigns the leases.
    Leader,
}

/// What one look at a table has found, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegimeSighting {
    /// Who shares out the leases.
    pub regime: Regime,
    /// The table in which that was found.
    pub table: String,
    /// The key of the item that shows it; empty where none was found.
    pub item: String,
    /// What the item says.
    pub state: String,
}

impl RegimeSighting {
    /// What was found in an item of a table.
    pub fn new(
        regime: Regime,
        table: impl Into<String>,
        item: impl Into<String>,
        state: impl Into<String>,
    ) -> Self {
        Self { regime, table: table.into(), item: item.into(), state: state.into() }
    }
}

impl fmt::Display for RegimeSighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.regime {
            Regime::Takers => write!(f, "the table {} shows nothing of the KCL 3.x", self.table)?,
            Regime::Upgrading => {
                write!(f, "the KCL 3.x is being rolled out on the table {}", self.table)?;
            }
            Regime::Unclear { .. } => {
                write!(f, "a leader of the KCL 3.x may assign the leases of the table {}", self.table)?;
            }
            Regime::Leader => {
                write!(f, "a leader of the KCL 3.x assigns the leases of the table {}", self.table)?;
            }
        }
        if self.item.is_empty() {
            return Ok(());
        }
        write!(f, " (item {}: {})", self.item, self.state)
    }
}

/// Whether the KCL uses a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TableTenants {
    /// Whether workers of the KCL can use the table at all.
    pub shared: bool,
    /// A lease that the KCL made or wrote last, in words; `None` when there is none.
    pub kcl_lease: Option<String>,
}

impl TableTenants {
    /// A table that the KCL can use.
    #[must_use]
    pub fn shared(kcl_lease: Option<String>) -> Self {
        Self { shared: true, kcl_lease }
    }
}

/// Looks at a table that workers of the KCL can use, too.
///
/// `DynamoDbStore` is one, and a coordinator that is given such a store (or a factory of it) uses it by itself. For a
/// store that wraps one see [`LeaseStoreSource::regime_probe`](crate::LeaseStoreSource::regime_probe).
#[async_trait]
pub trait RegimeProbe: fmt::Debug + Send + Sync + 'static {
    /// Whether the KCL uses the table. Called once, after the store was made ready.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tenants(&self) -> Result<TableTenants, StoreError>;

    /// Who shares out the leases.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn regime(&self) -> Result<RegimeSighting, StoreError>;

    /// Publishes that this worker lives, where workers of the KCL 3.x do so; does nothing where none do.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn publish(&self, worker: &WorkerId) -> Result<(), StoreError>;

    /// Takes back what was published, so that no leader gives this worker a lease.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError>;
}

#[async_trait]
impl<P: RegimeProbe + ?Sized> RegimeProbe for Arc<P> {
    async fn tenants(&self) -> Result<TableTenants, StoreError> {
        (**self).tenants().await
    }

    async fn regime(&self) -> Result<RegimeSighting, StoreError> {
        (**self).regime().await
    }

    async fn publish(&self, worker: &WorkerId) -> Result<(), StoreError> {
        (**self).publish(worker).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        (**self).retire(worker).await
    }
}
