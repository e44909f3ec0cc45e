//! Runs the job: starts the service and the workers, publishes, reshards, stalls and kills, and has it judged.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aws_sdk_kinesis::Client;
use kinesis_consumer::lease::SqliteStore;
use kinesis_core::lease::{Change, Guard, Lease, LeaseStore as _, LeaseWrite, ScanRequest};
use kinesis_core::{ApplicationName, SequenceNumber};
use kinesis_testkit::{TestClock, TestKinesis};

use crate::args::{Break, Job};
use crate::fleet::{Fleet, Setup};
use crate::log::Line;
use crate::progress::Progress;
use crate::publish::Publisher;
use crate::verdict::{Events, judge};
use crate::worker::{APPLICATION, EXPIRY};
use crate::{aws, events, stream};

/// How often the workers' logs are read.
const TICK: Duration = Duration::from_millis(25);
/// How often the lease file is read for the display.
const LEASE_LOOK: Duration = Duration::from_millis(250);
/// How long one step may take before the run counts as broken.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// When nothing was processed for this long after everything was published, nothing more will be.
const SILENCE: Duration = Duration::from_secs(8);
/// How long the lease file may be locked before it counts as locked by a stopped process.
const PROBE: Duration = Duration::from_millis(100);
/// A stopped process needs a moment until its last writes can be seen.
const SETTLE: Duration = Duration::from_millis(5);

/// Runs the job; `true` when nothing was lost and everything was in order.
pub(crate) async fn run(job: Job) -> anyhow::Result<bool> {
    let started = Instant::now();
    let embedded = job.endpoint_url.is_none() && job.region.is_none();
    let server = if embedded {
        let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
        Some(kinesis.serve((Ipv4Addr::LOCALHOST, 0)).await.context("the embedded Kinesis cannot listen")?)
    } else {
        None
    };
    let endpoint_url = server.as_ref().map(|server| server.url()).or_else(|| job.endpoint_url.clone());
    let config = aws::config(endpoint_url.as_deref(), job.region.as_deref(), embedded).await;
    let client = Client::new(&config);
    let scratch = tempfile::tempdir().context("no temporary folder can be made")?;
    let folder = job.keep.clone().unwrap_or_else(|| PathBuf::from(scratch.path()));
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let setup = Setup { job: job.clone(), endpoint_url, embedded, folder };

    examples::create_stream(&config, &job.stream, job.shards).await?;
    let leases = SqliteStore::open(setup.leases()).await.context("the lease file cannot be made")?;
    leases.setup().await.context("the lease file cannot be set up")?;
    let probe = SqliteStore::builder(setup.leases()).busy_timeout(PROBE).open().await?;
    let publisher = Publisher::new(&config, &job.stream, events::flights(job.events)?)?;
    let mut conductor = Conductor {
        progress: Progress::new(u64::from(job.events)),
        fleet: Fleet::new(setup),
        job,
        client,
        publisher,
        leases,
        probe,
        lines: Vec::new(),
        processed: BTreeSet::new(),
        last_processed: Instant::now(),
        last_kill: Instant::now(),
        last_lease_look: Instant::now(),
        holders: BTreeMap::new(),
        produced: BTreeSet::new(),
        events: Events::default(),
    };
    let ok = conductor.conduct(started).await;
    conductor.progress.finish();
    if let Some(server) = server {
        server.shutdown().await;
    }
    ok
}

struct Conductor {
    job: Job,
    client: Client,
    publisher: Publisher,
    fleet: Fleet,
    leases: SqliteStore,
    /// The same file with little patience.
    probe: SqliteStore,
    progress: Progress,
    lines: Vec<Line>,
    /// Distinct records that workers wrote down.
    processed: BTreeSet<String>,
    last_processed: Instant,
    last_kill: Instant,
    last_lease_look: Instant,
    holders: BTreeMap<String, Vec<String>>,
    produced: BTreeSet<String>,
    events: Events,
}

impl Conductor {
    async fn conduct(&mut self, started: Instant) -> anyhow::Result<bool> {
        let total = self.job.events as usize;
        let quarter = total / 4;
        self.progress.say(&format!(
            "{} flights, {} shards, {} worker processes; a silent worker keeps its leases for {EXPIRY:?} in this demo",
            total, self.job.shards, self.job.workers
        ));
        for _ in 0..self.job.workers {
            self.fleet.start()?;
        }
        self.publish(0..quarter).await?;
        let split = stream::split_first(&self.client, &self.job.stream).await?;
        self.events.splits += 1;
        self.progress.say(&format!("split {split} after {quarter} flights"));
        self.publish(quarter..2 * quarter).await?;
        let (first, second) = stream::merge_last(&self.client, &self.job.stream).await?;
        self.events.merges += 1;
        self.progress.say(&format!("merged {first} and {second} after {} flights", 2 * quarter));
        self.events.after_split = total - quarter;
        self.events.after_merge = total - 2 * quarter;

        let third = self.start_publishing(2 * quarter..3 * quarter);
        if matches!(self.job.broken, None | Some(Break::Fence)) && self.job.kill_every.is_none() {
            self.stall_one().await?;
        }
        self.finish_publishing(third).await?;
        let last = self.start_publishing(3 * quarter..total);
        if matches!(self.job.broken, None | Some(Break::Watermark)) && self.job.kill_every.is_none() {
            self.kill_one().await?;
        }
        self.finish_publishing(last).await?;
        self.publisher.close().await;
        self.progress.say("everything is published");

        self.until("the workers to finish", STEP_TIMEOUT, |me| {
            me.processed.is_superset(&me.produced) || me.last_processed.elapsed() > SILENCE
        })
        .await?;
        let (clean, unclean) = self.fleet.stop().await?;
        self.events.unclean_stops = unclean;
        self.progress.say(&format!("{clean} workers stopped cleanly"));
        self.read_logs()?;

        let stored = crate::judge::read_all(&self.client, &self.job.stream).await?;
        let verdict = judge(&self.produced, &stored, &self.lines, &self.events, started.elapsed())?;
        self.progress.finish();
        println!("\n{}", verdict.table());
        println!("{}", serde_json::to_string(&verdict)?);
        Ok(verdict.ok)
    }

    fn start_publishing(
        &self,
        part: Range<usize>,
    ) -> tokio::task::JoinHandle<anyhow::Result<BTreeSet<String>>> {
        self.publisher.start(part)
    }

    async fn finish_publishing(
        &mut self,
        task: tokio::task::JoinHandle<anyhow::Result<BTreeSet<String>>>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !task.is_finished() {
            self.tick().await?;
            if self.job.kill_every.is_some_and(|every| self.last_kill.elapsed() >= every) {
                self.kill_one().await?;
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "waited {STEP_TIMEOUT:?} in vain for the records to be published"
            );
        }
        self.produced.append(&mut task.await??);
        Ok(())
    }

    async fn publish(&mut self, part: Range<usize>) -> anyhow::Result<()> {
        let task = self.start_publishing(part);
        self.finish_publishing(task).await
    }

    /// Watches until something is true.
    async fn until(
        &mut self,
        what: &str,
        timeout: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            self.tick().await?;
            if done(self) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "waited {timeout:?} in vain for {what}");
        }
    }

    /// One look at everything.
    async fn tick(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(TICK).await;
        self.fleet.check()?;
        self.read_logs()?;
        if self.last_lease_look.elapsed() >= LEASE_LOOK {
            self.last_lease_look = Instant::now();
            self.holders.clear();
            for lease in self.read_leases().await? {
                if let (Some(holder), false) = (lease.holder(), lease.is_finished()) {
                    let shard =
                        lease.key.shard().as_str().trim_start_matches("shardId-").trim_start_matches('0');
                    let shard = if shard.is_empty() { "0" } else { shard }.to_owned();
                    self.holders.entry(holder.to_string()).or_default().push(shard);
                }
            }
        }
        self.progress.show(self.processed.len(), self.publisher.published(), &self.holders);
        Ok(())
    }

    fn read_logs(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.fleet.workers {
            for line in worker.log.read_new()? {
                if let Line::Processed { sequence, .. } = &line {
                    self.processed.insert(sequence.clone());
                    self.last_processed = Instant::now();
                }
                self.lines.push(line);
            }
        }
        Ok(())
    }

    async fn read_leases(&self) -> anyhow::Result<Vec<Lease>> {
        let request = ScanRequest::new(ApplicationName::new(APPLICATION)?);
        Ok(self.leases.scan(&request).await.context("the lease file cannot be read")?.leases)
    }

    /// Stops a worker process in its tracks while it holds records that it was handed and has not checkpointed.
    /// Returns its number and, for each of its shards, the last record that it was handed.
    async fn freeze_one(&mut self) -> anyhow::Result<(usize, BTreeMap<String, SequenceNumber>)> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            // With a broken fence it is the first worker that does not notice its expiry.
            let only_first = self.job.broken == Some(Break::Fence);
            let candidates = if only_first { 1 } else { self.fleet.workers.len() };
            for number in 0..candidates {
                if !self.fleet.workers[number].alive {
                    continue;
                }
                self.fleet.workers[number].stall()?;
                tokio::time::sleep(SETTLE).await;
                self.read_logs()?;
                let exposed = self.exposed(number).await?;
                // A process that stops inside of a transaction holds up every other one until it goes on.
                if !exposed.is_empty() && self.leases_are_writable().await? {
                    return Ok((number, exposed));
                }
                self.fleet.workers[number].wake()?;
                self.tick().await?;
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "no worker had records handed out and not checkpointed"
            );
        }
    }

    async fn leases_are_writable(&self) -> anyhow::Result<bool> {
        let Some(lease) = self.read_leases().await?.into_iter().next() else { return Ok(false) };
        let never = Guard::Counter(i64::MAX.unsigned_abs());
        let probe = LeaseWrite::new(lease.key, never, Change::Update(Vec::new()));
        Ok(self.probe.apply(&[probe]).await.iter().all(Result::is_ok))
    }

    /// The shards where a worker has records in its hands: handed out, and past the stored position. With a broken
    /// watermark: where the stored position is past what was processed.
    async fn exposed(&self, number: usize) -> anyhow::Result<BTreeMap<String, SequenceNumber>> {
        let name = &self.fleet.workers[number].name;
        let mut exposed = BTreeMap::new();
        for lease in self.read_leases().await? {
            if lease.holder().is_none_or(|holder| holder.as_str() != name) || lease.is_finished() {
                continue;
            }
            let shard = lease.key.shard().to_string();
            let stored = lease.checkpoint.position().map(|position| position.sequence().clone());
            let mut handed_out: Option<SequenceNumber> = None;
            let mut processed: Option<SequenceNumber> = None;
            for line in &self.lines {
                match line {
                    Line::HandedOut { shard: of, epoch, last } if *of == shard && *epoch == lease.epoch => {
                        handed_out = Some(last.parse()?);
                    }
                    Line::Processed { shard: of, sequence, .. } if *of == shard => {
                        processed = processed.max(Some(sequence.parse()?));
                    }
                    _ => {}
                }
            }
            let in_hand = match self.job.broken {
                Some(Break::Watermark) => stored > processed,
                _ => handed_out > stored,
            };
            if let (true, Some(last)) = (in_hand, handed_out) {
                exposed.insert(shard, last);
            }
        }
        Ok(exposed)
    }

    /// Kills a worker that has records in its hands, and starts another.
    async fn kill_one(&mut self) -> anyhow::Result<()> {
        let (number, exposed) = self.freeze_one().await?;
        self.fleet.workers[number].kill()?;
        self.events.killed_workers += 1;
        self.last_kill = Instant::now();
        let replacement = self.fleet.start()?;
        let workers = &self.fleet.workers;
        self.progress.say(&format!(
            "killed {} with records in its hands on {} shards, started {}",
            workers[number].name,
            exposed.len(),
            workers[replacement].name
        ));
        Ok(())
    }

    /// Stalls a worker until others have taken its shards and are past what it was handed, then lets it go on: what
    /// it stores then must be refused.
    async fn stall_one(&mut self) -> anyhow::Result<()> {
        let (number, exposed) = self.freeze_one().await?;
        let name = self.fleet.workers[number].name.clone();
        self.events.stalled_workers += 1;
        self.progress.say(&format!("stalled {name} with records in its hands on {} shards", exposed.len()));
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            self.tick().await?;
            let leases = self.read_leases().await?;
            let passed = |lease: &Lease| {
                let handed_out = exposed.get(lease.key.shard().as_str());
                let stored = lease.checkpoint.position().map(|position| position.sequence());
                lease.is_finished()
                    || handed_out.is_none_or(|last| stored.is_some_and(|stored| stored >= last))
            };
            let mine = |lease: &&Lease| lease.holder().is_some_and(|holder| holder.as_str() == name);
            if leases.iter().filter(|lease| !lease.is_finished()).filter(mine).count() == 0
                && leases.iter().all(passed)
            {
                break;
            }
            anyhow::ensure!(Instant::now() < deadline, "nobody took over the shards of {name}");
        }
        self.fleet.workers[number].wake()?;
        self.progress.say(&format!("woke {name}; others have passed what it was handed"));
        Ok(())
    }
}
