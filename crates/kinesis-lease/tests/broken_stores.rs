//! Stores that break one promise each: every one is caught by the case meant for it, and by no other.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kinesis_core::Checkpoint;
use kinesis_core::lease::conformance::{ALL, ForeignWriter, StoreFactory, Verdict};
use kinesis_lease::{
    Change, FieldWrite, Guard, Lease, LeaseKey, LeaseStore, LeaseWrite, MemoryStore, Outcome, ScanPage,
    ScanRequest, StoreError,
};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    SetupEmptiesTheTable,
    CreationOverwrites,
    TakeIsNotAtomic,
    TenureTokenIsIgnored,
    CounterIsSet,
    StealIgnoresTheCounter,
    ExistsMakesRows,
    CounterGuardIsAtMost,
    OwnerGuardIgnoresTheOwner,
    OwnersGuardIgnoresTheHandOver,
    NoHandoffIsIgnored,
    CreationForgetsTheParents,
    ChildrenAreNotWritten,
    PendingIsNotCleared,
    SubSequenceIsCut,
    UpdateClearsTheAnchor,
    UpdateDropsPrivateAttributes,
    UpdateDropsUnknownAttributes,
    AppliedReturnsTheOldRow,
    RefusalHasNoRow,
    CallStopsAtTheFirstRefusal,
    ResultsAreReversed,
    DeletionIgnoresItsGuard,
    GetLeavesOutMissingRows,
    PageEndIsLost,
    SegmentsOverlap,
    StreamFilterIsIgnored,
    ApplicationIsAPrefix,
    ClientCaches,
    UnreadableRowFailsTheScan,
}

impl Flaw {
    /// The flaws with the case that is meant for each.
    const CAUGHT_BY: &'static [(Self, &'static str)] = &[
        (Self::SetupEmptiesTheTable, "setup_can_race_and_repeat"),
        (Self::CreationOverwrites, "creation_never_overwrites"),
        (Self::TakeIsNotAtomic, "take_race_has_one_winner"),
        (Self::TenureTokenIsIgnored, "renewal_of_a_former_tenure_is_refused"),
        (Self::CounterIsSet, "renewals_add_to_the_counter"),
        (Self::StealIgnoresTheCounter, "late_heartbeat_defeats_a_steal"),
        (Self::ExistsMakesRows, "guard_exists"),
        (Self::CounterGuardIsAtMost, "guard_counter_of_a_take"),
        (Self::OwnerGuardIgnoresTheOwner, "guard_owner_of_a_take"),
        (Self::OwnersGuardIgnoresTheHandOver, "guard_owners"),
        (Self::NoHandoffIsIgnored, "guard_counter_no_handoff"),
        (Self::CreationForgetsTheParents, "every_field_round_trips"),
        (Self::ChildrenAreNotWritten, "every_field_can_be_written"),
        (Self::PendingIsNotCleared, "every_field_can_be_cleared"),
        (Self::SubSequenceIsCut, "checkpoints_round_trip"),
        (Self::UpdateClearsTheAnchor, "unnamed_fields_stay"),
        (Self::UpdateDropsPrivateAttributes, "private_attributes_survive_every_write"),
        (Self::UpdateDropsUnknownAttributes, "unknown_attributes_survive_every_write"),
        (Self::AppliedReturnsTheOldRow, "applied_writes_return_the_new_row"),
        (Self::RefusalHasNoRow, "refusals_return_the_current_row"),
        (Self::CallStopsAtTheFirstRefusal, "writes_of_one_call_are_independent"),
        (Self::ResultsAreReversed, "results_are_in_the_order_of_the_writes"),
        (Self::DeletionIgnoresItsGuard, "deletion_removes_the_row"),
        (Self::GetLeavesOutMissingRows, "get_keeps_the_order"),
        (Self::PageEndIsLost, "scan_pages_are_complete"),
        (Self::SegmentsOverlap, "scan_segments_divide_the_rows"),
        (Self::StreamFilterIsIgnored, "scan_filters_by_stream"),
        (Self::ApplicationIsAPrefix, "applications_are_separate"),
        (Self::ClientCaches, "checkpoint_is_read_by_a_second_client"),
        (Self::UnreadableRowFailsTheScan, "unreadable_rows_are_reported_singly"),
    ];
}

#[derive(Debug, Default)]
struct Table {
    rows: MemoryStore,
    unknown: Mutex<BTreeMap<LeaseKey, String>>,
    corrupt: Mutex<BTreeSet<LeaseKey>>,
}

#[derive(Debug)]
struct Factory {
    flaw: Flaw,
    table: Arc<Table>,
}

#[async_trait]
impl StoreFactory for Factory {
    async fn client(&self) -> Arc<dyn LeaseStore> {
        Arc::new(Flawed { flaw: self.flaw, table: Arc::clone(&self.table), cache: Mutex::default() })
    }

    fn foreign_writer(&self) -> Option<Arc<dyn ForeignWriter>> {
        Some(Arc::clone(&self.table) as Arc<dyn ForeignWriter>)
    }
}

#[async_trait]
impl ForeignWriter for Table {
    async fn set_unknown(&self, key: &LeaseKey, value: &str) {
        self.unknown.lock().unwrap().insert(key.clone(), value.into());
    }

    async fn get_unknown(&self, key: &LeaseKey) -> Option<String> {
        self.unknown.lock().unwrap().get(key).cloned()
    }

    async fn corrupt(&self, key: &LeaseKey) {
        self.corrupt.lock().unwrap().insert(key.clone());
    }
}

/// A store over the table with one flaw.
#[derive(Debug)]
struct Flawed {
    flaw: Flaw,
    table: Arc<Table>,
    cache: Mutex<BTreeMap<LeaseKey, Option<Lease>>>,
}

impl Flawed {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    async fn current(&self, key: &LeaseKey) -> Option<Lease> {
        self.table.rows.get(std::slice::from_ref(key)).await.unwrap().remove(0)
    }

    fn is_corrupt(&self, key: &LeaseKey) -> bool {
        self.table.corrupt.lock().unwrap().contains(key)
    }

    fn guard_of(&self, write: &LeaseWrite) -> Option<Guard> {
        let is_take = |write: &LeaseWrite| match &write.change {
            Change::Update(fields) => fields.iter().any(|field| matches!(field, FieldWrite::Token(Some(_)))),
            _ => false,
        };
        match (self.flaw, &write.guard) {
            (Flaw::CreationOverwrites, Guard::Absent) if matches!(&write.change, Change::Create(lease) if lease.owner_switches != 0) => {
                None
            }
            (Flaw::OwnersGuardIgnoresTheHandOver, Guard::Owners { .. })
            | (Flaw::ExistsMakesRows, Guard::Exists) => None,
            (Flaw::NoHandoffIsIgnored, Guard::CounterNoHandoff(counter)) => Some(Guard::Counter(*counter)),
            (Flaw::TenureTokenIsIgnored, Guard::Tenure { counter: 5, .. }) => Some(Guard::Counter(5)),
            (Flaw::OwnerGuardIgnoresTheOwner, Guard::OwnerCounter { counter, .. }) if !is_take(write) => {
                match write.change {
                    Change::Delete => Some(write.guard.clone()),
                    _ => Some(Guard::Counter(*counter)),
                }
            }
            (Flaw::StealIgnoresTheCounter, Guard::OwnerCounter { owner: owner @ Some(_), .. })
                if is_take(write) =>
            {
                Some(Guard::Owners { owner: owner.clone(), checkpoint_owner: None })
            }
            (Flaw::DeletionIgnoresItsGuard, Guard::OwnerCounter { .. }) if write.change == Change::Delete => {
                Some(Guard::Exists)
            }
            (_, guard) => Some(guard.clone()),
        }
    }

    fn holds(&self, write: &LeaseWrite, current: Option<&Lease>) -> bool {
        if self.is(Flaw::CounterGuardIsAtMost)
            && let (Guard::Counter(counter), Some(lease)) = (&write.guard, current)
        {
            return lease.counter <= *counter;
        }
        if let (true, Guard::Owners { owner, .. }) =
            (self.is(Flaw::OwnersGuardIgnoresTheHandOver), &write.guard)
        {
            return current.is_some_and(|lease| lease.owner == *owner);
        }
        self.guard_of(write).is_none_or(|guard| guard.check(current))
    }

    fn change_of(&self, write: &LeaseWrite, current: Option<Lease>) -> Option<Lease> {
        let made = current.is_none();
        let before = current.clone();
        let mut lease = match (&write.change, current) {
            (Change::Update(_), None) => {
                write.change.apply_to(Some(Lease::new(write.key.clone(), Checkpoint::TrimHorizon)))?
            }
            (change, current) => change.apply_to(current)?,
        };
        let Change::Update(fields) = &write.change else {
            if self.is(Flaw::CreationForgetsTheParents) {
                lease.parents.clear();
            }
            return Some(lease);
        };
        let before = before.unwrap_or_else(|| lease.clone());
        match self.flaw {
            Flaw::CounterIsSet if fields.len() == 1 && before.token.is_some() && before.anchor.is_none() => {
                for field in fields {
                    if let (FieldWrite::AddCounter(_), Guard::Tenure { .. }) = (field, &write.guard) {
                        lease.counter = before.counter.max(6);
                    }
                }
            }
            Flaw::ChildrenAreNotWritten if fields.len() == 1 => lease.children = before.children,
            Flaw::PendingIsNotCleared if fields.len() > 5 => lease.pending = before.pending,
            Flaw::SubSequenceIsCut => {
                if let Checkpoint::At(position) = &lease.checkpoint {
                    lease.checkpoint = Checkpoint::At(position.sequence().clone().into());
                }
            }
            Flaw::UpdateClearsTheAnchor if fields.len() < 5 && fields.len() > 1 => lease.anchor = None,
            Flaw::UpdateDropsPrivateAttributes => lease.private.clear(),
            Flaw::UpdateDropsUnknownAttributes if !made => {
                self.table.unknown.lock().unwrap().remove(&write.key);
            }
            _ => {}
        }
        Some(lease)
    }

    async fn apply_one(&self, write: &LeaseWrite) -> Result<Outcome, StoreError> {
        if self.is_corrupt(&write.key) {
            return Err(StoreError::corrupt(write.key.clone(), "garbage"));
        }
        let current = self.current(&write.key).await;
        if self.is(Flaw::TakeIsNotAtomic) && matches!(write.guard, Guard::OwnerCounter { .. }) {
            tokio::task::yield_now().await;
        }
        if !self.holds(write, current.as_ref()) {
            let current = current.filter(|_| !self.is(Flaw::RefusalHasNoRow));
            return Ok(Outcome::Refused { current });
        }
        let next = self.change_of(write, current.clone());
        let gone = LeaseWrite::new(write.key.clone(), Guard::Exists, Change::Delete);
        drop(self.table.rows.apply(&[gone]).await);
        let Some(next) = next else { return Ok(Outcome::Applied(current.unwrap())) };
        drop(self.table.rows.apply(&[LeaseWrite::create(next.clone())]).await);
        match current {
            Some(old) if self.is(Flaw::AppliedReturnsTheOldRow) => Ok(Outcome::Applied(old)),
            _ => Ok(Outcome::Applied(next)),
        }
    }
}

#[async_trait]
impl LeaseStore for Flawed {
    async fn setup(&self) -> Result<(), StoreError> {
        if self.is(Flaw::SetupEmptiesTheTable) {
            let rows = self.table.rows.snapshot();
            // Only a table that was used already, so that the other cases work.
            for row in
                rows.into_iter().filter(|row| row.counter == 5 && row.checkpoint == Checkpoint::TrimHorizon)
            {
                let delete = LeaseWrite::new(row.key, Guard::Exists, Change::Delete);
                drop(self.table.rows.apply(&[delete]).await);
            }
        }
        Ok(())
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let mut found = Vec::new();
        for key in keys {
            if self.is_corrupt(key) {
                return Err(StoreError::corrupt(key.clone(), "garbage"));
            }
            let row = self.current(key).await;
            if self.is(Flaw::ClientCaches) {
                let mut cache = self.cache.lock().unwrap();
                found.push(cache.entry(key.clone()).or_insert(row).clone());
            } else {
                found.push(row);
            }
        }
        if self.is(Flaw::GetLeavesOutMissingRows) && keys.len() > 1 {
            found.retain(Option::is_some);
        }
        Ok(found)
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        let mut request = request.clone();
        if self.is(Flaw::SegmentsOverlap) {
            request.segment = 0;
        }
        if self.is(Flaw::StreamFilterIsIgnored) {
            request.stream = None;
        }
        let mut page = self.table.rows.scan(&request).await?;
        if self.is(Flaw::ApplicationIsAPrefix) {
            let prefix = request.application.as_str().to_owned();
            let is_longer = |row: &Lease| {
                let name = row.key.application().as_str();
                name.starts_with(&prefix) && name.len() > prefix.len()
            };
            page.leases.extend(self.table.rows.snapshot().into_iter().filter(is_longer));
        }
        if self.is(Flaw::PageEndIsLost) && request.limit == 7 && page.cursor.is_some() {
            page.leases.pop();
        }
        let (bad, good): (Vec<_>, Vec<_>) =
            page.leases.into_iter().partition(|row| self.is_corrupt(&row.key));
        page.leases = good;
        for row in bad {
            let error = StoreError::corrupt(row.key, "garbage");
            if self.is(Flaw::UnreadableRowFailsTheScan) {
                return Err(error);
            }
            page.unreadable.push(error);
        }
        Ok(page)
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        // A cache that knows of its own writes only.
        self.cache.lock().unwrap().clear();
        let mut results = Vec::new();
        for write in writes {
            let result = self.apply_one(write).await;
            let refused = matches!(result, Ok(Outcome::Refused { .. }));
            results.push(result);
            if refused && self.is(Flaw::CallStopsAtTheFirstRefusal) {
                break;
            }
        }
        while results.len() < writes.len() {
            results.push(Ok(Outcome::Refused { current: None }));
        }
        if self.is(Flaw::ResultsAreReversed) && writes.len() == 6 {
            results.reverse();
        }
        results
    }
}

async fn failed_cases(flaw: Flaw) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for case in ALL {
        let factory = Factory { flaw, table: Arc::default() };
        match case.run(&factory).await {
            Ok(Verdict::Passed) => {}
            Ok(other) => panic!("{case:?}: {other:?}"),
            Err(_) => failed.push(case.name()),
        }
    }
    failed
}

#[tokio::test]
async fn a_store_without_a_flaw_passes_every_case() {
    assert_eq!(failed_cases(Flaw::None).await, Vec::<&str>::new());
}

/// S-037, S-038, S-039, S-041, S-055: each promise of the contract has a case that catches its breach.
#[tokio::test]
async fn each_flaw_is_caught_by_the_case_meant_for_it_and_by_no_other() {
    let mut wrong = Vec::new();
    for (flaw, case) in Flaw::CAUGHT_BY {
        let failed = failed_cases(*flaw).await;
        if failed != [*case] {
            wrong.push(format!("{flaw:?}: {failed:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_case_has_a_flaw_that_it_catches() {
    let caught: BTreeSet<&str> = Flaw::CAUGHT_BY.iter().map(|(_, case)| *case).collect();
    let all: BTreeSet<&str> = ALL.iter().map(|case| case.name()).collect();
    assert_eq!(caught, all);
}
