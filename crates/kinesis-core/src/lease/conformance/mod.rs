//! The public conformance suite for [`LeaseStore`] implementations.
//!
//! Each case is a function over a [`StoreFactory`] that proves one promise of the trait's contract. A case ends with
//! [`Verdict::Passed`], with [`Verdict::NotRun`] when the factory lacks what it needs (never counted as passed), or
//! with a [`Violation`]. Tests by name come from [`lease_store_conformance!`](crate::lease_store_conformance):
//!
//! ```
//! use std::sync::Arc;
//!
//! use kinesis_core::lease::LeaseStore;
//! use kinesis_core::lease::conformance::StoreFactory;
//! # use kinesis_core::lease::{Lease, LeaseKey, LeaseWrite, Outcome, ScanPage, ScanRequest, StoreError};
//! # #[derive(Debug, Default)]
//! # struct MyStore;
//! # #[async_trait::async_trait]
//! # impl LeaseStore for MyStore {
//! #     async fn setup(&self) -> Result<(), StoreError> { Ok(()) }
//! #     async fn get(&self, _: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> { Ok(Vec::new()) }
//! #     async fn scan(&self, _: &ScanRequest) -> Result<ScanPage, StoreError> { Ok(ScanPage::default()) }
//! #     async fn apply(&self, _: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> { Vec::new() }
//! # }
//!
//! #[derive(Debug, Default)]
//! struct MyFactory {
//!     store: Arc<MyStore>,
//! }
//!
//! #[async_trait::async_trait]
//! impl StoreFactory for MyFactory {
//!     async fn client(&self) -> Arc<dyn LeaseStore> {
//!         self.store.clone()
//!     }
//! }
//!
//! # mod tests {
//! # use super::MyFactory;
//! kinesis_core::lease_store_conformance! {
//!     #[tokio::test]
//!     MyFactory::default()
//! }
//! # }
//! # fn main() {}
//! ```

mod create;
mod fields;
mod foreign;
mod guards;
mod reading;
mod support;
mod writes;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use super::{LeaseKey, LeaseStore};

pub use create::{creation_never_overwrites, setup_can_race_and_repeat};
pub use fields::{
    checkpoints_round_trip, every_field_can_be_cleared, every_field_can_be_written, every_field_round_trips,
    private_attributes_survive_every_write, unnamed_fields_stay,
};
pub use foreign::{unknown_attributes_survive_every_write, unreadable_rows_are_reported_singly};
pub use guards::{
    guard_counter_no_handoff, guard_counter_of_a_take, guard_exists, guard_owner_of_a_take, guard_owners,
    late_heartbeat_defeats_a_steal, renewal_of_a_former_tenure_is_refused,
};
pub use reading::{
    applications_are_separate, checkpoint_is_read_by_a_second_client, get_keeps_the_order,
    scan_filters_by_stream, scan_pages_are_complete, scan_segments_divide_the_rows,
};
pub use writes::{
    applied_writes_return_the_new_row, deletion_removes_the_row, refusals_return_the_current_row,
    renewals_add_to_the_counter, results_are_in_the_order_of_the_writes, take_race_has_one_winner,
    writes_of_one_call_are_independent,
};

/// Makes what a case works on: one table, empty at first, and clients of it.
#[async_trait]
pub trait StoreFactory: fmt::Debug + Send + Sync {
    /// A further client of the same table, as another process would have it. `setup` was not called on it.
    async fn client(&self) -> Arc<dyn LeaseStore>;

    /// Something that writes to the table past the store, where the suite can have it.
    fn foreign_writer(&self) -> Option<Arc<dyn ForeignWriter>> {
        None
    }
}

/// Writes to the table past the store, as a newer version or another library would.
#[async_trait]
pub trait ForeignWriter: fmt::Debug + Send + Sync {
    /// Gives the row an attribute that the store does not know.
    async fn set_unknown(&self, key: &LeaseKey, value: &str);

    /// The attribute's value, `None` when it is not there.
    async fn get_unknown(&self, key: &LeaseKey) -> Option<String>;

    /// Makes the row unreadable for the store.
    async fn corrupt(&self, key: &LeaseKey);
}

/// How a case ended that found nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The promise is kept.
    Passed,
    /// The case could not be run; why.
    NotRun(&'static str),
}

/// A promise that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Violation {
    problem: String,
}

/// How a case ended.
pub type CaseResult = Result<Verdict, Violation>;

type Running<'a> = Pin<Box<dyn Future<Output = CaseResult> + Send + 'a>>;

/// One case by name, for runners of one's own.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: for<'a> fn(&'a dyn StoreFactory) -> Running<'a>,
}

impl Case {
    /// The case's name, which is that of its function.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the case on a factory of its own: an empty table.
    ///
    /// # Errors
    /// [`Violation`] when the store does not keep the promise.
    pub async fn run(&self, factory: &dyn StoreFactory) -> CaseResult {
        (self.run)(factory).await
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The result of a case as a test wants it; used by the macro.
///
/// # Panics
/// When the promise is not kept.
pub fn assert_kept(case: &str, result: &CaseResult) {
    if let Err(violation) = result {
        panic!("{case}: {violation}");
    }
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All cases.
        pub static ALL: &[Case] = &[$(Case { name: stringify!($name), run: |factory| Box::pin($name(factory)) }),*];
    };
}

cases! {
    setup_can_race_and_repeat,
    creation_never_overwrites,
    take_race_has_one_winner,
    renewal_of_a_former_tenure_is_refused,
    renewals_add_to_the_counter,
    late_heartbeat_defeats_a_steal,
    guard_exists,
    guard_counter_of_a_take,
    guard_owner_of_a_take,
    guard_owners,
    guard_counter_no_handoff,
    every_field_round_trips,
    every_field_can_be_written,
    every_field_can_be_cleared,
    checkpoints_round_trip,
    unnamed_fields_stay,
    private_attributes_survive_every_write,
    unknown_attributes_survive_every_write,
    applied_writes_return_the_new_row,
    refusals_return_the_current_row,
    writes_of_one_call_are_independent,
    results_are_in_the_order_of_the_writes,
    deletion_removes_the_row,
    get_keeps_the_order,
    scan_pages_are_complete,
    scan_segments_divide_the_rows,
    scan_filters_by_stream,
    applications_are_separate,
    checkpoint_is_read_by_a_second_client,
    unreadable_rows_are_reported_singly,
}

/// One named test per case of the [conformance suite](crate::lease::conformance).
///
/// The arguments are the test attribute of your runtime, perhaps one more attribute (`#[ignore = "needs a server"]`),
/// and an expression that makes a factory with an empty table; it is evaluated once per test, inside an async function. Cases that need a foreign writer are `#[ignore]`d as *not
/// run* unless the expression is followed by `, with foreign writer`.
#[macro_export]
macro_rules! lease_store_conformance {
    // An expression may begin with attributes too, so these are not a repetition.
    (#[$test:meta] #[$other:meta] $factory:expr $(,)?) => {
        $crate::lease_store_conformance_tests! { [#[$test] #[$other]] [$factory]
        [#[ignore = "not run: the factory has no foreign writer"]] }
    };
    (#[$test:meta] #[$other:meta] $factory:expr, with foreign writer) => {
        $crate::lease_store_conformance_tests! { [#[$test] #[$other]] [$factory] [] }
    };
    (#[$test:meta] $factory:expr $(,)?) => {
        $crate::lease_store_conformance_tests! { [#[$test]] [$factory]
        [#[ignore = "not run: the factory has no foreign writer"]] }
    };
    (#[$test:meta] $factory:expr, with foreign writer) => {
        $crate::lease_store_conformance_tests! { [#[$test]] [$factory] [] }
    };
}

/// Not for direct use: see [`lease_store_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! lease_store_conformance_tests {
    ([$($test:tt)+] [$factory:expr] [$($foreign:tt)*]) => {
        $crate::lease_store_conformance_tests! { @each [$($test)+] [$factory]
            setup_can_race_and_repeat []
            creation_never_overwrites []
            take_race_has_one_winner []
            renewal_of_a_former_tenure_is_refused []
            renewals_add_to_the_counter []
            late_heartbeat_defeats_a_steal []
            guard_exists []
            guard_counter_of_a_take []
            guard_owner_of_a_take []
            guard_owners []
            guard_counter_no_handoff []
            every_field_round_trips []
            every_field_can_be_written []
            every_field_can_be_cleared []
            checkpoints_round_trip []
            unnamed_fields_stay []
            private_attributes_survive_every_write []
            unknown_attributes_survive_every_write [$($foreign)*]
            applied_writes_return_the_new_row []
            refusals_return_the_current_row []
            writes_of_one_call_are_independent []
            results_are_in_the_order_of_the_writes []
            deletion_removes_the_row []
            get_keeps_the_order []
            scan_pages_are_complete []
            scan_segments_divide_the_rows []
            scan_filters_by_stream []
            applications_are_separate []
            checkpoint_is_read_by_a_second_client []
            unreadable_rows_are_reported_singly [$($foreign)*]
        }
    };
    (@each $test:tt [$factory:expr] $($case:ident $ignore:tt)+) => {
        $($crate::lease_store_conformance_tests! { @one $test [$factory] $case $ignore })+
    };
    (@one [$($test:tt)+] [$factory:expr] $case:ident [$($ignore:tt)*]) => {
        $($test)+
        $($ignore)*
        async fn $case() {
            let factory = $factory;
            let result = $crate::lease::conformance::$case(&factory).await;
            $crate::lease::conformance::assert_kept(stringify!($case), &result);
        }
    };
}
