//! Faults that can be switched on, to see whether the simulation finds them. Without the feature `sim` each is the
//! constant `false`, and nothing of them is left in the program.

use std::cell::Cell;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A fault that the simulation must find.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(dead_code, unreachable_pub, reason = "named by the feature `sim` only")]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        #[allow(dead_code, unreachable_pub, reason = "named by the feature `sim` only")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it does.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

mutants! {
    /// A holder's write is accepted whoever holds the lease.
    FenceDropped,
    /// A lease is taken although it changed since it was read.
    TakeUnguarded,
    /// A taking does not raise the epoch.
    EpochKept,
    /// A worker uses one token for all its tenures.
    TokenReused,
    /// A taking writes the whole row with the counter 1.
    CounterReset,
    /// A release leaves the owner in the row.
    ReleaseKeepsOwner,
    /// A checkpoint is written although a later one is stored.
    CheckpointBack,
    /// A caller is told that its checkpoint is stored when an earlier one is.
    WatermarkEarly,
    /// The checkpoint that waits is replaced by an earlier one.
    WantedLost,
    /// A holder believes for longer than the expiry.
    BeliefTooLong,
    /// Belief counts from the reply instead of from the start of the write.
    BeliefFromReply,
    /// A lease is taken after half of the expiry.
    ExpiryHalved,
    /// A counter that moves does not keep a lease.
    MovesIgnored,
    /// Each look begins the expiry anew.
    ExpiryRestarted,
    /// A lease that is seen for the first time counts as expired.
    FirstSightExpired,
    /// A child is taken before its parents are finished.
    ChildEarly,
    /// The child of a merge is taken when one of its parents is finished.
    ChildAfterOneParent,
    /// The end of a shard is stored before its children have leases.
    EndBeforeChildren,
    /// The end of a merged shard does not look for the other parent.
    OtherParentForgotten,
    /// A lease of ours that we lost is taken again at once.
    SelfTakeOver,
    /// A taking whose reply was lost is forgotten.
    DoubtForgotten,
    /// A write of ours whose reply was lost counts as another worker's.
    OwnWriteForeign,
    /// The lease is released when it is asked for, before the work has ended.
    ReleaseBeforeDrain,
    /// A consumer that does not answer a hand-over keeps the lease.
    HandOverEndless,
    /// Asking for a lease ends its tenure.
    RequestRobs,
    /// A worker asks for leases until it has one more than the others.
    NoDeadBand,
    /// Nobody is ever asked for a lease.
    NeverAsks,
    /// What is free beyond the even share is left alone.
    OrphansLeft,
    /// A worker that stops goes on taking leases.
    TakesWhileStopping,
    /// A worker that stops leaves its requests behind.
    RequestsLeft,
    /// A resting shard is taken at once.
    RestIgnored,
    /// A worker takes more leases than its limit.
    LimitIgnored,
    /// A shard that is missing from one listing is closed.
    GoneAtOnce,
    /// The lease of a finished shard is removed while the shard is still listed.
    CollectedEarly,
    /// A failed write is tried again without a delay.
    RetryAtOnce,
    /// A lease is renewed too rarely.
    RenewedLate,
    /// Shards that follow known ones start at the tip.
    ChildrenAtTip,
    /// After a start at the tip that came half-way, shards that were closed meanwhile count as old.
    ClosedUnseen,
    /// A lease that is asked for because of the loads does not count where it goes.
    LoadMovedTwice,
    /// The loads in the rows are not looked at.
    LoadUnseen,
    /// Two listings count as consecutive although one between them failed.
    GoneAcrossFailure,
    /// A listing counts for shards that are newer than it.
    GoneBeforeMade,
    /// A worker that stops does not wait for what it may still have to give back.
    StopUnsettled,
    /// A worker's heartbeat counts also when its answer comes after the belief in a lease has ended.
    LateBeatBelieved,
    /// The heartbeat of a worker does not keep its leases.
    BeatIgnored,
    /// A lease that a worker has lost is kept from all others by its heartbeat.
    LostLeaseKept,
    /// A worker whose row was not there or stood still some time ago counts as one that shows no sign of life.
    OldLookTrusted,
    /// The row of a worker is removed as soon as it is seen.
    WorkerRemovedEarly,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether the fault is switched on in this thread.
pub(crate) fn is_on(mutant: Mutant) -> bool {
    cfg!(any(test, feature = "sim")) && ACTIVE.get() == Some(mutant)
}

/// Whether a test fails with a fault.
#[cfg(test)]
pub(crate) fn fails(mutant: Mutant, test: fn()) -> bool {
    switch(Some(mutant));
    let failed = std::panic::catch_unwind(test).is_err();
    switch(None);
    failed
}

/// Switches a fault on in this thread, or all off.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn switch(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
