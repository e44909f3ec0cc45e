//! The store trait.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Change, Guard, HintRequest, Lease, LeaseHints, LeaseKey, StoreError, StoreProfile};
use crate::{ApplicationName, StreamRef};

/// One guarded write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LeaseWrite {
    /// The row.
    pub key: LeaseKey,
    /// When to apply it.
    pub guard: Guard,
    /// What to apply.
    pub change: Change,
}

impl LeaseWrite {
    /// A write of `change` to the row of `key` if `guard` holds.
    #[must_use]
    pub fn new(key: LeaseKey, guard: Guard, change: Change) -> Self {
        Self { key, guard, change }
    }

    /// Makes the row of `lease` if there is none.
    #[must_use]
    pub fn create(lease: Lease) -> Self {
        Self::new(lease.key.clone(), Guard::Absent, Change::create(lease))
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was applied; this is the row now (as it was last for a deletion).
    Applied(Lease),
    /// The guard did not hold; this is the row, where there is one.
    Refused {
        /// The row as it is.
        current: Option<Lease>,
    },
}

/// Which rows to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanRequest {
    /// The application.
    pub application: ApplicationName,
    /// Only this stream's rows, or those of all streams.
    pub stream: Option<StreamRef>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// The most rows to return in one page.
    pub limit: usize,
    /// Which part of the table to read, from 0; a store that cannot divide its table returns everything for part 0
    /// and nothing for the others.
    pub segment: u32,
    /// Into how many parts the table is divided.
    pub segments: u32,
}

impl ScanRequest {
    /// The default page size.
    pub const DEFAULT_LIMIT: usize = 1_000;

    /// All rows of an application, from the first.
    #[must_use]
    pub fn new(application: ApplicationName) -> Self {
        Self { application, stream: None, cursor: None, limit: Self::DEFAULT_LIMIT, segment: 0, segments: 1 }
    }

    /// Only rows of this stream.
    #[must_use]
    pub fn stream(mut self, stream: StreamRef) -> Self {
        self.stream = Some(stream);
        self
    }

    /// At most this many rows a page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.max(1);
        self
    }

    /// Goes on where a page ended.
    #[must_use]
    pub fn cursor(mut self, cursor: Option<String>) -> Self {
        self.cursor = cursor;
        self
    }
}

/// One page of rows.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ScanPage {
    /// The rows that could be read.
    pub leases: Vec<Lease>,
    /// Rows that could not be read ([`StoreError::Corrupt`]); the others are not affected.
    pub unreadable: Vec<StoreError>,
    /// Where to go on; `None` on the last page. An empty page may have one.
    pub cursor: Option<String>,
}

impl ScanPage {
    /// A page of rows.
    #[must_use]
    pub fn new(leases: Vec<Lease>, cursor: Option<String>) -> Self {
        Self { leases, unreadable: Vec::new(), cursor }
    }
}

/// Keeps leases.
///
/// # Contract
/// - **Atomicity**: each write of [`apply`](Self::apply) checks its guard and changes its row in one atomic step,
///   across all workers. The writes of one call are independent: an error of one says nothing of the others, and
///   they may be applied in any order. A caller never puts two writes of one row into one call.
/// - **Fields**: a write changes the fields that it names and no others. Attributes that the store does not know
///   (of a newer version, of another library) are kept.
/// - **Reading**: [`get`](Self::get) and [`scan`](Self::scan) may be a little behind; safety comes from guards alone.
///   The row inside an [`Outcome`] is current.
/// - **Cancelling**: dropping the future of `apply` leaves each write either applied or not, never in part.
/// - **Errors**: [`StoreError::is_retryable`] says whether to try again. After [`StoreError::Unavailable`] a write may
///   have been applied; the caller reads the row back and recognises its own write by owner, counter and token.
/// - **Clone**: implementations are shared as `Arc<dyn LeaseStore>`.
///
/// The feature `conformance` has a test for each of these. A store needs the first four methods; a wrapper passes
/// [`profile`](Self::profile) and [`hints`](Self::hints) on, too.
#[async_trait]
pub trait LeaseStore: fmt::Debug + Send + Sync + 'static {
    /// Makes the store usable: creates or checks its table. Idempotent; racing callers are fine.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when it cannot become usable.
    async fn setup(&self) -> Result<(), StoreError>;

    /// The rows of `keys`, in the same order; `None` where there is no row.
    ///
    /// # Errors
    /// [`StoreError`]; a single unreadable row fails the call with [`StoreError::Corrupt`].
    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError>;

    /// One page of rows.
    ///
    /// # Errors
    /// [`StoreError`]; unreadable rows are listed in the page and do not fail the call.
    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError>;

    /// Applies guarded writes; one result per write, in the order of `writes`.
    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>>;

    /// What reading costs, and how long `setup` may take. Default: [`StoreProfile::default`].
    fn profile(&self) -> StoreProfile {
        StoreProfile::default()
    }

    /// Hints that leases of a stream may have become free ([`LeaseWrite::frees`]), for a worker of its own. Default: none;
    /// a worker finds out in its next look.
    fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
        let _ = request;
        None
    }
}

macro_rules! forward_to_pointee {
    ($pointer:ident) => {
        #[async_trait]
        impl<S: LeaseStore + ?Sized> LeaseStore for $pointer<S> {
            async fn setup(&self) -> Result<(), StoreError> {
                (**self).setup().await
            }

            async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
                (**self).get(keys).await
            }

            async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
                (**self).scan(request).await
            }

            async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
                (**self).apply(writes).await
            }

            fn profile(&self) -> StoreProfile {
                (**self).profile()
            }

            fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
                (**self).hints(request)
            }
        }
    };
}

forward_to_pointee!(Arc);
forward_to_pointee!(Box);
