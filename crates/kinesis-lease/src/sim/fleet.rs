//! A fleet: workers, what is under way, and the loop that lets time pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use kinesis_core::lease::{Change, Lease, LeaseKey, Outcome, StoreError, TenureToken};

use super::consumer::Deed;
use super::faults::{Fate, Faults};
use super::load::Loads;
use super::stream::Stream;
use super::table::{Table, TaggedWrite, Taking, is_end, names, token_of};
use super::watch::Watch;
use super::worker::Worker;
use super::{Coverage, number};
use crate::discovery::Start;
use crate::machine::{Action, BatchId, Event, Look, Machine, Request};
use crate::{Balance, LeaseConfig, worker_row};

/// More steps than this at one moment are a loop.
const SPIN: u32 = 20_000;

/// What a fleet is like.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) config: LeaseConfig,
    pub(crate) faults: Faults,
    /// The slowest and the fastest rate of a clock.
    pub(crate) rates: (f64, f64),
    pub(crate) start: Start,
}

impl Settings {
    #[cfg(test)]
    pub(crate) fn with(faults: Faults) -> Self {
        Self { config: LeaseConfig::default(), faults, rates: (0.98, 1.02), start: Start::TrimHorizon }
    }
}

/// Something that is to happen, in the fleet's own time.
pub(super) enum Happening {
    /// A call reaches the store; its reply takes so long, if it comes.
    Store(Call, Option<Duration>),
    Deliver(Answer),
    Consumer(LeaseKey, TenureToken, Deed),
    /// A call is tried again.
    Send(Call),
    /// A listing of the shards arrives.
    Listed,
    /// All pages of it have.
    Scan,
    /// The shards are listed out of turn.
    List,
    /// The worker is to stop.
    Stop,
    /// The time of a periodic listing.
    Discover,
    /// The worker is stopped for so long, as by a signal.
    Doze(Duration),
}

#[derive(Debug, Clone)]
pub(super) enum Call {
    Apply(BatchId, Vec<TaggedWrite>),
    Look(Instant),
    Read(Vec<LeaseKey>),
    /// The scan and the creations of a discovery.
    Scan,
    Create(Vec<TaggedWrite>),
}

pub(super) enum Answer {
    Event(Event),
    Scanned(Result<Vec<Lease>, Arc<StoreError>>),
    Created(Result<(), Arc<StoreError>>),
}

pub(crate) struct Fleet {
    pub(super) random: fastrand::Rng,
    epoch: Instant,
    pub(crate) now: Duration,
    pub(crate) settings: Settings,
    pub(super) stream: Stream,
    pub(super) table: Table,
    pub(super) workers: BTreeMap<usize, Worker>,
    next_worker: usize,
    pub(super) agenda: BTreeMap<(Duration, u64), (usize, Happening)>,
    next_entry: u64,
    /// Steps since time last moved.
    still: u32,
    /// The first worker that makes leases crashes in the middle of it.
    pub(super) half_start: bool,
    /// A worker that is to stop as soon as it asks for a lease or takes one.
    pub(super) restless: Option<usize>,
    /// The reply to the next call is lost.
    pub(super) loses: bool,
    /// A worker that is to be stopped while its next heartbeat is on its way: how long that takes, and how long it is.
    pub(super) dozing: Option<(usize, Duration, Duration)>,
    /// The next call takes so long to the store.
    pub(super) slow: Option<Duration>,
    /// What the shards cost, in runs in which that counts.
    pub(crate) loads: Option<Loads>,
    pub(super) watch: Watch,
    pub(crate) coverage: Coverage,
    /// Beginnings and ends of tenures since the last reset.
    pub(crate) moves: usize,
    pub(super) trace: Option<Vec<String>>,
}

impl Fleet {
    pub(crate) fn new(seed: u64, shards: u32, settings: Settings) -> Self {
        let mut stream = Stream::default();
        for _ in 0..shards {
            stream.add(Vec::new(), Duration::ZERO);
        }
        let table = Table::new(&settings.config, settings.rates.1);
        Self {
            random: fastrand::Rng::with_seed(seed),
            epoch: Instant::now(),
            now: Duration::ZERO,
            settings,
            stream,
            table,
            workers: BTreeMap::new(),
            next_worker: 0,
            agenda: BTreeMap::new(),
            next_entry: 0,
            still: 0,
            half_start: false,
            restless: None,
            loses: false,
            dozing: None,
            slow: None,
            loads: None,
            watch: Watch::default(),
            coverage: Coverage::default(),
            moves: 0,
            trace: None,
        }
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>11.6} {}", now.as_secs_f64(), line()));
        }
    }

    /// Something happened that never must.
    pub(super) fn violated(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.watch.violation.get_or_insert(what);
    }

    pub(crate) fn add_worker(&mut self) -> usize {
        self.add_limited_worker(None)
    }

    pub(crate) fn add_limited_worker(&mut self, limit: Option<usize>) -> usize {
        let number = self.next_worker;
        self.next_worker += 1;
        let name = WorkerId::new(format!("w{number}")).expect("a valid name");
        let mut config = LeaseConfig { max_leases: limit, ..self.settings.config.clone() };
        if self.loads.as_mut().is_some_and(|loads| loads.random.u32(0..100) < loads.unaware) {
            config.balance = Balance::Count;
            self.coverage.unaware += 1;
        }
        let (slowest, fastest) = self.settings.rates;
        let rate = slowest + self.random.f64() * (fastest - slowest);
        let worker = Worker::new(Machine::new(name, config.clone(), self.random.fork()), config, rate);
        self.note(|| format!("w{number} joins, limit {limit:?}, rate {:.4}", worker.rate)); // debug-ok: a number
        self.workers.insert(number, worker);
        self.coverage.joins += 1;
        self.begin_discovery(number);
        number
    }

    pub(crate) fn workers(&self) -> Vec<usize> {
        self.workers.keys().copied().collect()
    }

    pub(crate) fn crash(&mut self, worker: usize) {
        self.note(|| format!("w{worker} crashes"));
        self.coverage.crashes += 1;
        self.workers.remove(&worker);
        self.disturbed();
    }

    pub(crate) fn pause(&mut self, worker: usize, length: Duration) {
        self.note(|| format!("w{worker} is stopped for {} ms", length.as_millis()));
        let until = self.now + length;
        self.coverage.long_pauses += u64::from(length > self.settings.config.expiry);
        // Who is stopped twice goes on when both stops are over.
        self.workers.entry(worker).and_modify(|worker| worker.paused_until = worker.paused_until.max(until));
        self.watch.until(until);
    }

    pub(super) fn cut(&mut self, worker: usize, length: Duration) {
        self.note(|| format!("w{worker} is cut off for {} ms", length.as_millis()));
        let until = self.now + length;
        self.coverage.cuts += 1;
        self.workers.entry(worker).and_modify(|worker| worker.cut_until = until);
        self.watch.until(until);
    }

    pub(crate) fn stop(&mut self, worker: usize) {
        let now = self.now;
        let Some(found) = self.workers.get_mut(&worker) else { return };
        if found.started.is_none() {
            self.workers.remove(&worker);
            return;
        }
        if found.stopping_since.is_some() {
            return;
        }
        found.stopping_since = Some(now);
        self.note(|| format!("w{worker} is to stop"));
        self.coverage.stops += 1;
        self.forget_crashes();
        self.step(worker, Event::Request(Request::Stop));
    }

    /// When those who watched the leases of the dead are gone, the expiry begins anew for those who joined later.
    fn forget_crashes(&mut self) {
        let crash = self.watch.disturbed_at;
        let knows = |worker: &Worker| worker.is_able() && worker.started.is_some_and(|at| at <= crash);
        if self.now < crash + self.aftermath() && !self.workers.values().any(knows) {
            self.disturbed();
        }
    }

    /// Lets the fleet live for a while, and looks at it every second.
    pub(crate) fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end && self.watch.violation.is_none() {
            let second = Duration::from_secs(self.now.as_secs() + 1);
            self.run_until(second.min(end));
            if self.now == second {
                self.survey();
            }
        }
    }

    fn run_until(&mut self, end: Duration) {
        while self.watch.violation.is_none() {
            let Some((time, worker)) = self.next().filter(|(time, _)| *time <= end) else { break };
            if time > self.now {
                self.now = time;
                self.still = 0;
            }
            self.still += 1;
            if self.still > SPIN {
                self.violated(format!("w{worker} plans without end"));
            }
            match self.agenda.first_key_value() {
                Some(((at, _), (of, _))) if *at <= self.now && *of == worker => {
                    if let Some((_, (of, happening))) = self.agenda.pop_first() {
                        self.happen(of, happening);
                    }
                }
                _ => self.plan(worker),
            }
        }
        self.now = end;
    }

    /// What comes next: an entry of the agenda, or a deadline of a machine.
    fn next(&mut self) -> Option<(Duration, usize)> {
        // Replies to a crashed worker are of no use; a paused one gets its own when it goes on.
        while let Some(((at, entry), (worker, happening))) = self.agenda.first_key_value() {
            let (at, entry, worker) = (*at, *entry, *worker);
            if matches!(happening, Happening::Store(..)) {
                break;
            }
            match self.workers.get(&worker) {
                None => drop(self.agenda.remove(&(at, entry))),
                Some(found) if found.paused_until > at => {
                    let later = found.paused_until;
                    if let Some(moved) = self.agenda.remove(&(at, entry)) {
                        self.agenda.insert((later, entry), moved);
                    }
                }
                Some(_) => break,
            }
        }
        let agenda = self.agenda.first_key_value().map(|((at, _), (worker, _))| (*at, *worker));
        let deadlines = self
            .workers
            .iter()
            .filter_map(|(number, worker)| Some((worker.deadline?.max(worker.paused_until), *number)));
        deadlines.min().into_iter().chain(agenda).min_by_key(|(at, _)| *at)
    }

    pub(super) fn later(&mut self, delay: Duration, worker: usize, happening: Happening) {
        self.next_entry += 1;
        self.agenda.insert((self.now + delay, self.next_entry), (worker, happening));
    }

    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    pub(super) fn clock(&self, worker: &Worker) -> Instant {
        self.epoch + self.now.mul_f64(worker.rate)
    }

    pub(super) fn step(&mut self, number: usize, event: Event) {
        let Some(worker) = self.workers.get(&number) else { return };
        let clock = self.clock(worker);
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.machine.handle(clock, event);
        }
        self.plan(number);
    }

    pub(super) fn plan(&mut self, number: usize) {
        let Some(worker) = self.workers.get(&number).filter(|worker| worker.started.is_some()) else {
            return;
        };
        let clock = self.clock(worker);
        let epoch = self.epoch;
        let Some(worker) = self.workers.get_mut(&number) else { return };
        let actions = worker.machine.plan(clock);
        worker.deadline = worker.machine.next_deadline().map(|deadline| {
            let passed = deadline.saturating_duration_since(epoch).div_f64(worker.rate);
            // Division rounds; a moment later is late enough for every deadline.
            passed + Duration::from_micros(1)
        });
        for action in actions {
            self.act(number, action);
        }
        self.leave(number);
    }

    fn act(&mut self, number: usize, action: Action) {
        match action {
            Action::Apply { batch, writes } => {
                let Some(worker) = self.workers.get(&number) else { return };
                let tag = |write: kinesis_core::lease::LeaseWrite| {
                    // Making the row of a child claims nothing, also when that child is held.
                    let is_claim = matches!(write.change, Change::Update(_));
                    let tenure = worker.machine.tenure_of(&write.key).filter(|_| is_claim);
                    TaggedWrite { write, tenure }
                };
                let writes: Vec<TaggedWrite> = writes.into_iter().map(tag).collect();
                self.sending(number, batch, &writes);
                self.grow_restless(number, &writes);
                self.doze(number, &writes);
                self.send(number, Call::Apply(batch, writes));
            }
            Action::Look => {
                let Some(started) = self.workers.get(&number).map(|worker| self.clock(worker)) else {
                    return;
                };
                self.send(number, Call::Look(started));
            }
            Action::Read(keys) => self.send(number, Call::Read(keys)),
            Action::Discover => self.begin_discovery(number),
            Action::Acquired { lease, token, meter } => self.acquired(number, &lease, token, meter),
            Action::HandOver { key, token, .. } => self.asked(number, key, token),
            Action::Lost { key, token, reason } => self.lost(number, &key, token, reason),
            Action::Ended { key, .. } => self.ended(number, &key),
            Action::Reply { id, result } => self.replied(number, id, result),
            Action::Warn(warning) => self.note(|| format!("w{number} warns: {warning}")),
        }
    }

    fn fate(&mut self, number: usize) -> Fate {
        let faults = self.settings.faults;
        let longest = u64::try_from(faults.latency.as_millis()).unwrap_or(u64::MAX).max(2);
        let (reach, reply) = (self.millis(1..longest), self.millis(1..longest));
        let cut = self.workers.get(&number).is_some_and(|worker| worker.cut_until > self.now);
        let roll = self.random.u32(0..100);
        let Faults { lost_calls, lost_replies, late, throttled, .. } = faults;
        let works = Fate { reach: Some(reach), reply: Some(reply), throttled: false };
        if let Some(reach) = self.slow.take() {
            return Fate { reach: Some(reach), ..works };
        }
        if std::mem::take(&mut self.loses) {
            self.coverage.lost_replies += 1;
            return Fate { reply: None, ..works };
        }
        if cut || roll < lost_calls {
            self.coverage.lost_calls += 1;
            Fate { reach: None, reply: None, throttled: false }
        } else if roll < lost_calls + lost_replies {
            self.coverage.lost_replies += 1;
            Fate { reply: None, ..works }
        } else if roll < lost_calls + lost_replies + late {
            self.coverage.late_replies += 1;
            Fate { reach: Some(reach + self.millis(500..9_000)), ..works }
        } else if roll < lost_calls + lost_replies + late + throttled {
            self.coverage.throttled += 1;
            Fate { throttled: true, ..works }
        } else {
            works
        }
    }

    pub(super) fn send(&mut self, number: usize, call: Call) {
        let fate = self.fate(number);
        let Some(worker) = self.workers.get_mut(&number) else { return };
        worker.calls += 1;
        let timeout = worker.config.call_timeout().div_f64(worker.rate);
        if fate.throttled {
            self.watch.faults.push(self.now);
            let after = fate.reach.unwrap_or_default() + fate.reply.unwrap_or_default();
            let error = Arc::new(StoreError::throttled(None, "slow down"));
            self.later(after, number, Happening::Deliver(failed(&call, &error)));
            return;
        }
        let answered = fate.reach.zip(fate.reply).map(|(reach, reply)| reach + reply);
        let in_time = answered.is_some_and(|after| after < timeout);
        if !in_time {
            self.watch.faults.push(self.now);
            if let Call::Apply(_, writes) = &call {
                let tokens = writes.iter().filter_map(|tagged| token_of(&tagged.write));
                self.watch.unanswered.extend(tokens);
            }
            let error = Arc::new(StoreError::unavailable("lost"));
            self.later(timeout, number, Happening::Deliver(failed(&call, &error)));
        }
        if let Some(reach) = fate.reach {
            self.later(reach, number, Happening::Store(call, fate.reply.filter(|_| in_time)));
        }
    }

    fn happen(&mut self, number: usize, happening: Happening) {
        match happening {
            Happening::Store(call, reply) => {
                let call = self.cut_short(number, call, reply.is_some());
                let batch = if let Call::Apply(batch, _) = &call { Some(*batch) } else { None };
                let answer = self.store(number, call);
                if let Some(batch) = batch.filter(|_| reply.is_none()) {
                    self.answer_dozer(number, batch, answer);
                } else if let Some(delay) = reply {
                    self.later(delay, number, Happening::Deliver(answer));
                }
            }
            Happening::Deliver(Answer::Event(event)) => {
                let now = self.now;
                if let (Event::Applied { batch, results }, Some(worker)) =
                    (&event, self.workers.get_mut(&number))
                {
                    worker.replied(*batch, results, now);
                }
                self.step(number, event);
            }
            Happening::Deliver(Answer::Scanned(rows)) => self.scanned(number, rows),
            Happening::Deliver(Answer::Created(result)) => self.created(number, result),
            Happening::Consumer(key, token, deed) => self.consume(number, key, token, deed),
            Happening::Listed => self.listed(number),
            Happening::Scan => self.scan(number),
            Happening::List => self.begin_discovery(number),
            Happening::Stop => self.stop(number),
            Happening::Send(call) => self.send(number, call),
            Happening::Doze(length) => self.pause(number, length),
            Happening::Discover => {
                self.workers.entry(number).and_modify(|worker| worker.scheduled = false);
                self.begin_discovery(number);
            }
        }
    }

    fn sending(&mut self, number: usize, batch: BatchId, writes: &[TaggedWrite]) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&number) else { return };
        let hasty = worker.sending(batch, writes, now).map(|key| super::number(&key));
        let takes = writes.iter().any(|tagged| token_of(&tagged.write).is_some());
        if worker.stopping_since.is_some() && takes {
            self.violated(format!("w{number} takes a lease after its stop began"));
        }
        if let Some(shard) = hasty {
            self.violated(format!("w{number} writes {shard} again at once after a failure"));
        }
    }

    /// Whoever does not hear of the end of its creations may have got only some of them through.
    fn cut_short(&mut self, number: usize, call: Call, answered: bool) -> Call {
        let half = self.half_start;
        match call {
            Call::Create(mut writes) if half || !answered || !self.workers.contains_key(&number) => {
                let least = usize::from(half);
                writes.truncate(self.random.usize(least..=writes.len().max(least)));
                if half {
                    self.half_start = false;
                    self.coverage.half_starts += 1;
                    self.crash(number);
                }
                Call::Create(writes)
            }
            call => call,
        }
    }

    /// The store's side of a call.
    fn store(&mut self, number: usize, call: Call) -> Answer {
        match call {
            Call::Apply(batch, writes) => {
                let results = writes.iter().map(|write| Ok(self.apply(number, write))).collect();
                Answer::Event(Event::Applied { batch, results })
            }
            Call::Look(started) => {
                let rows = self.table.all_rows();
                Answer::Event(Event::Looked(Ok(Look { started, rows, unreadable: Vec::new() })))
            }
            Call::Read(keys) => {
                let rows = keys.iter().map(|key| self.table.row(key)).collect();
                Answer::Event(Event::Read { keys, rows: Ok(rows) })
            }
            Call::Scan => Answer::Scanned(Ok(self.table.all_rows())),
            Call::Create(writes) => {
                for write in &writes {
                    self.apply(number, write);
                }
                Answer::Created(Ok(()))
            }
        }
    }

    fn apply(&mut self, worker: usize, tagged: &TaggedWrite) -> Outcome {
        if worker_row::is_one(&tagged.write.key) {
            return self.apply_to_worker(worker, tagged);
        }
        let is_past = self.stream.shards[&number(&tagged.write.key)].trimmed;
        let applied =
            match self.table.apply(tagged, is_past, self.holder_believes(&tagged.write.key), self.now) {
                Ok(applied) => applied,
                Err(violation) => {
                    self.violated(format!("{violation} (written by w{worker})"));
                    return Outcome::Refused { current: None };
                }
            };
        let shard = number(&tagged.write.key);
        match &applied.outcome {
            Outcome::Applied(row) => {
                self.note(|| {
                    let (owner, holder) = (row.owner.as_ref(), row.checkpoint_owner.as_ref());
                    let name = |worker: Option<&WorkerId>| worker.map_or("-", WorkerId::as_str).to_owned();
                    let (owner, holder) = (name(owner), name(holder));
                    let (counter, epoch, at) = (row.counter, row.epoch, &row.checkpoint);
                    format!(
                        "w{worker} wrote {shard}: {owner}/{holder} counter {counter} epoch {epoch} at {at}"
                    )
                });
                if names(&tagged.write, worker) && row.checkpoint_owner.is_some() {
                    self.count_request(row);
                }
                if row.is_finished() && is_end(&tagged.write) {
                    self.stored_end(shard);
                }
                let is_gone =
                    |worker: Option<&Worker>| worker.is_none_or(|worker| worker.stopping_since.is_some());
                if names(&tagged.write, worker) && is_gone(self.workers.get(&worker)) {
                    // A call that was late: from now on a lease is promised to somebody who is dead.
                    self.disturbed();
                }
            }
            _ => {
                self.coverage.refusals += 1;
                self.note(|| format!("w{worker} was refused on {shard}"));
            }
        }
        if matches!(tagged.write.change, Change::Delete) && matches!(applied.outcome, Outcome::Applied(_)) {
            self.coverage.collected += 1;
            self.note(|| format!("w{worker} removed {shard}"));
        }
        match applied.taking {
            Some(Taking::Expired) => self.coverage.steals += 1,
            Some(Taking::Overdue) => self.coverage.overdue_steals += 1,
            Some(Taking::Free) | None => {}
        }
        applied.outcome
    }
}

/// The answer to a call whose outcome its caller does not learn.
fn failed(call: &Call, error: &Arc<StoreError>) -> Answer {
    let error = || Arc::clone(error);
    match call {
        Call::Apply(batch, writes) => {
            let results = writes.iter().map(|_| Err(error())).collect();
            Answer::Event(Event::Applied { batch: *batch, results })
        }
        Call::Look(_) => Answer::Event(Event::Looked(Err(error()))),
        Call::Read(keys) => Answer::Event(Event::Read { keys: keys.clone(), rows: Err(error()) }),
        Call::Scan => Answer::Scanned(Err(error())),
        Call::Create(_) => Answer::Created(Err(error())),
    }
}
