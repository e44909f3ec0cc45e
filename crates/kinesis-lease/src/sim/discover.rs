//! Discovery as the driver of a machine does it: a listing, a scan, the missing leases generation by generation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::directory::{DirectoryError, ShardInfo};
use kinesis_core::lease::{Lease, LeaseKey, StoreError};

use super::fleet::{Call, Fleet, Happening};
use super::key;
use super::table::TaggedWrite;
use crate::machine::{Event, Found, Look};
use crate::{discovery, ops};

/// A discovery under way.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    shards: Vec<ShardInfo>,
    generations: VecDeque<Vec<Lease>>,
    found: Found,
    failures: u32,
    /// On the worker's own clock.
    began: Option<Instant>,
    scan_began: Option<Instant>,
}

/// Tries of a call of a discovery.
const TRIES: u32 = 5;

impl Fleet {
    pub(super) fn begin_discovery(&mut self, worker: usize) {
        let delay = self.millis(5..80);
        let Some(found) = self.workers.get(&worker) else { return };
        if found.discovery.is_some() {
            self.workers.entry(worker).and_modify(|found| found.discover_again = true);
            return;
        }
        let began = Some(self.clock(found));
        let Some(found) = self.workers.get_mut(&worker) else { return };
        found.discovery = Some(Discovery { began, ..Discovery::default() });
        self.later(delay, worker, Happening::Listed);
    }

    /// A listing shows the stream as it is now; its later pages may take a while.
    pub(super) fn listed(&mut self, worker: usize) {
        let faults = self.settings.faults;
        // Nobody knows whether it would have missed a shard.
        let fails = self.chance(faults.listings);
        let missed = if fails { None } else { self.glitch(worker) };
        let unlisted: BTreeSet<u32> = missed.into_iter().collect();
        let shards = self.stream.listing(&unlisted);
        let slow = !faults.are_none() && self.chance(30);
        let pages = if slow { self.millis(100..5_000) } else { Duration::ZERO };
        let Some(found) = self.workers.get_mut(&worker) else { return };
        found.missed = missed.is_some();
        found.last_missed = missed.or(found.last_missed);
        if fails {
            return self.listing_failed(worker);
        }
        if let Some(discovery) = &mut found.discovery {
            discovery.shards = shards;
        }
        self.later(pages, worker, Happening::Scan);
    }

    /// Now and then a listing misses a shard that has a lease, mostly a young one, but never twice in a row.
    fn glitch(&mut self, worker: usize) -> Option<u32> {
        let found = self.workers.get(&worker)?;
        if found.missed || !self.watch.storm || !self.chance(self.settings.faults.glitches) {
            return None;
        }
        let last = self.workers.get(&worker)?.last_missed;
        let shards: Vec<u32> =
            self.stream.shards.keys().copied().filter(|shard| self.has_row(*shard)).collect();
        let missed = match self.random.u32(0..4) {
            0 | 1 => shards.last().copied(),
            2 if last.is_some_and(|last| self.has_row(last)) => last,
            _ => self.random.choice(&shards).copied(),
        };
        self.coverage.glitches += u64::from(missed.is_some());
        missed
    }

    fn listing_failed(&mut self, worker: usize) {
        self.note(|| format!("w{worker} cannot list the shards"));
        self.coverage.failed_listings += 1;
        self.watch.faults.push(self.now);
        let delay = self.millis(500..2_000);
        let Some(found) = self.workers.get_mut(&worker) else { return };
        if found.started.is_none() {
            // Before the start there is nothing else to do than to try.
            return self.later(delay, worker, Happening::Listed);
        }
        let began = found.discovery.take().and_then(|discovery| discovery.began);
        let Some(began) = began else { return };
        let error = DirectoryError::unavailable(key(0).stream().clone(), "ListShards", "lost");
        self.step(worker, Event::Discovered { began, result: Err(Arc::new(error)) });
        self.later(delay, worker, Happening::List);
    }

    pub(super) fn scan(&mut self, worker: usize) {
        let clock = self.workers.get(&worker).map(|found| self.clock(found));
        let found = self.workers.get_mut(&worker);
        if let Some(discovery) = found.and_then(|found| found.discovery.as_mut()) {
            discovery.scan_began = clock;
            self.send(worker, Call::Scan);
        }
    }

    pub(super) fn scanned(&mut self, worker: usize, rows: Result<Vec<Lease>, Arc<StoreError>>) {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => return self.discovery_failed(worker, &error, Call::Scan),
        };
        let look_rows = rows.clone();
        let rows: BTreeMap<LeaseKey, Lease> =
            discovery::leases(&rows).map(|row| (row.key.clone(), row.clone())).collect();
        let start = self.settings.start.clone();
        let Some(discovery) = self.workers.get_mut(&worker).and_then(|found| found.discovery.as_mut()) else {
            return;
        };
        discovery.generations = discovery::plan(&key(0), &discovery.shards, &rows, &start).into();
        discovery.found = Found {
            gone: discovery::gone(&discovery.shards, &rows).cloned().collect(),
            spent: discovery::spent(&discovery.shards, &rows).cloned().collect(),
            look: discovery.scan_began.filter(|_| discovery.generations.is_empty()).map(|started| Look {
                started,
                rows: look_rows,
                unreadable: Vec::new(),
            }),
            hole: None,
        };
        self.next_generation(worker);
    }

    fn next_generation(&mut self, worker: usize) {
        let now = self.now;
        let Some(found) = self.workers.get_mut(&worker) else { return };
        let Some(discovery) = &mut found.discovery else { return };
        if let Some(generation) = discovery.generations.front() {
            let tag = |lease: &Lease| TaggedWrite { write: ops::create(lease.clone()), tenure: None };
            let writes = generation.iter().map(tag).collect();
            return self.send(worker, Call::Create(writes));
        }
        let result = Ok(std::mem::take(&mut discovery.found));
        let Some(began) = discovery.began else { return };
        found.discovery = None;
        if found.started.is_none() {
            found.started = Some(now);
            self.note(|| format!("w{worker} has started"));
            self.plan(worker);
        } else {
            self.step(worker, Event::Discovered { began, result });
        }
        self.discover_later(worker);
    }

    pub(super) fn created(&mut self, worker: usize, result: Result<(), Arc<StoreError>>) {
        let Some(discovery) = self.workers.get_mut(&worker).and_then(|found| found.discovery.as_mut()) else {
            return;
        };
        match result {
            Ok(()) => {
                discovery.generations.pop_front();
                discovery.failures = 0;
                self.next_generation(worker);
            }
            Err(error) => {
                let writes = discovery.generations.front().into_iter().flatten();
                let tag = |lease: &Lease| TaggedWrite { write: ops::create(lease.clone()), tenure: None };
                let call = Call::Create(writes.map(tag).collect());
                self.discovery_failed(worker, &error, call);
            }
        }
    }

    fn discovery_failed(&mut self, worker: usize, error: &Arc<StoreError>, again: Call) {
        let Some(found) = self.workers.get_mut(&worker) else { return };
        let Some(discovery) = &mut found.discovery else { return };
        discovery.failures += 1;
        // Before the start there is nothing else to do than to try.
        if discovery.failures < TRIES || found.started.is_none() {
            let delay = self.millis(200..1_000);
            return self.later(delay, worker, Happening::Send(again));
        }
        let Some(began) = discovery.began else { return };
        found.discovery = None;
        let stream = key(0).stream().clone();
        let error = DirectoryError::unavailable(stream, "CreateLease", error.to_string());
        self.step(worker, Event::Discovered { began, result: Err(Arc::new(error)) });
        self.discover_later(worker);
    }

    fn discover_later(&mut self, worker: usize) {
        let Some(found) = self.workers.get_mut(&worker) else { return };
        if std::mem::take(&mut found.discover_again) {
            return self.begin_discovery(worker);
        }
        if !found.scheduled {
            found.scheduled = true;
            let delay = found.config.discovery_interval.div_f64(found.rate);
            self.later(delay, worker, Happening::Discover);
        }
    }
}
