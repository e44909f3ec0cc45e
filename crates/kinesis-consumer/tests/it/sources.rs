//! The engine over any source: polling, enhanced fan-out and a user's own behave the same, and a wait for records never
//! holds up a checkpoint or a renewal.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_consumer::core::directory::ShardInfo;
use kinesis_consumer::core::source::{
    OpenShard, ShardReader, ShardSource, SourceBatch, SourceError, SourceEvent, SourceRecord,
};
use kinesis_consumer::efo::{EfoConfig, EfoSource};
use kinesis_consumer::lease::LeaseConfig;
use kinesis_consumer::poll::{PollConfig, PollSource};
use kinesis_consumer::{ConsumerBuilder, Record, RecordAck};
use kinesis_core::{PartitionKey, SequenceNumber, ShardId, ShardRef, StartPosition};
use kinesis_testkit::{Fault, Operation, TestKinesis};
use tokio::time::Instant;

use crate::common::{Journal, STREAM, Seen, World, eventually, stop, text};

/// Pushes the records of a shard as they come, a few per event, with progress in between.
#[derive(Debug, Clone)]
pub(crate) struct PushSource {
    kinesis: TestKinesis,
    names_children: bool,
}

impl PushSource {
    pub(crate) fn new(kinesis: &TestKinesis) -> Self {
        Self { kinesis: kinesis.clone(), names_children: true }
    }

    pub(crate) fn without_children(mut self) -> Self {
        self.names_children = false;
        self
    }
}

impl ShardSource for PushSource {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        let (after, including) = match request.start {
            StartPosition::AtSequenceNumber { sequence } => (sequence, true),
            StartPosition::AfterSequenceNumber { sequence } => (sequence, false),
            _ => (SequenceNumber::ZERO, false),
        };
        Box::new(PushReader { source: self.clone(), shard: request.shard.shard().clone(), after, including })
    }
}

#[derive(Debug)]
struct PushReader {
    source: PushSource,
    shard: ShardId,
    after: SequenceNumber,
    including: bool,
}

impl PushReader {
    fn look(&mut self) -> Option<SourceEvent> {
        const PER_EVENT: usize = 3;
        let stored = self.source.kinesis.records(STREAM).unwrap();
        let fresh =
            stored.iter().filter(|record| record.shard_id == self.shard.as_str()).filter_map(|record| {
                let sequence: SequenceNumber = record.sequence_number.parse().unwrap();
                let wanted = sequence > self.after || (self.including && sequence == self.after);
                let key = PartitionKey::new(record.partition_key.clone());
                wanted.then(|| SourceRecord::new(sequence, Some(key), record.data.clone()))
            });
        let records: Vec<_> = fresh.take(PER_EVENT).collect();
        if let Some(last) = records.last() {
            (self.after, self.including) = (last.sequence.clone(), false);
            return Some(SourceEvent::Records(SourceBatch::new(records, Some(Duration::ZERO))));
        }
        let views = self.source.kinesis.shards(STREAM).unwrap();
        let view = views.iter().find(|view| view.shard_id == self.shard.as_str()).unwrap();
        if view.is_open() {
            return None;
        }
        let info = |id: &String| {
            let child = views.iter().find(|view| view.shard_id == *id).unwrap();
            let parents = child.parents.iter().map(|parent| ShardId::new(parent.clone()).unwrap()).collect();
            ShardInfo::new(ShardId::new(id.clone()).unwrap()).parents(parents)
        };
        let children =
            if self.source.names_children { view.children.iter().map(info).collect() } else { vec![] };
        Some(SourceEvent::Ended { children })
    }
}

#[async_trait]
impl ShardReader for PushReader {
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        match self.look() {
            Some(event) => Ok(event),
            None => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok(SourceEvent::Progress { behind: Some(Duration::ZERO), continuation: None })
            }
        }
    }

    async fn close(self: Box<Self>) {}
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Poll,
    Push,
    FanOut,
}

const KINDS: [Kind; 3] = [Kind::Poll, Kind::Push, Kind::FanOut];

impl Kind {
    fn consumer(self, world: &World, worker: &str) -> ConsumerBuilder {
        match self {
            Self::Poll => world.consumer(worker),
            Self::Push => world.consumer(worker).source(Arc::new(PushSource::new(&world.kinesis))),
            Self::FanOut => world.consumer(worker).enhanced_fan_out("billing"),
        }
    }
}

const SHARD: &str = "shardId-000000000000";

/// S-049, S-050, S-109: checkpoints: a failing record holds the position back, a restart goes on strictly after what is stored.
#[tokio::test(start_paused = true)]
async fn checkpoints_are_the_same_over_every_source() {
    for kind in KINDS {
        let world = World::new(1);
        world.put(0, 10, 3);
        let seen = Seen::default();
        let log = seen.clone();
        let consumer = kind.consumer(&world, "w1").for_each(move |record: Record| {
            let bad = text(&record) == "6";
            log.add(text(&record));
            async move { if bad { Err("away") } else { Ok(()) } }
        });
        let handle = consumer.build().unwrap().spawn();
        seen.until(|seen| seen.iter().filter(|line| *line == "6").count() == 3).await;
        stop(&handle).await;
        let sixth = world.kinesis.records(STREAM).unwrap()[5].sequence_number.clone();
        assert_eq!(world.stored(SHARD), sixth, "{kind:?}");
        let journal = Journal::default();
        let handle = kind.consumer(&world, "w2").for_each(journal.handler("w2")).build().unwrap().spawn();
        journal.until_distinct(4).await;
        assert_eq!(journal.all()[0].number, 6, "{kind:?}");
        assert!(stop(&handle).await.is_clean());
    }
}

/// F-08: the tip is fixed when a shard is first taken on: a restart before anything was stored reads what was written
/// meanwhile, and the children of a reshard from their first record.
#[tokio::test(start_paused = true)]
async fn a_start_at_the_tip_outlives_a_restart_before_the_first_checkpoint() {
    for kind in [Kind::Poll, Kind::FanOut] {
        let world = World::new(1);
        world.put(100, 110, 3);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let journal = Journal::default();
        let spawn = |worker| {
            let consumer = kind.consumer(&world, worker).start_position(StartPosition::Latest);
            consumer.for_each(journal.handler(worker)).build().unwrap().spawn()
        };
        let handle = spawn("w1");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.shares(&["w1"]), [1], "{kind:?}");
        assert!(stop(&handle).await.is_clean());
        assert_eq!(world.stored(SHARD), "LATEST", "nothing was stored");
        world.put(0, 5, 3);
        world.kinesis.split(STREAM, SHARD).unwrap();
        world.put(5, 10, 3);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let handle = spawn("w2");
        journal.until_distinct(10).await;
        assert!(stop(&handle).await.is_clean());
        let seen: Vec<_> = journal.all().iter().map(|seen| (seen.worker, seen.number)).collect();
        assert_eq!(crate::common::sorted(seen), (0..10).map(|number| ("w2", number)).collect::<Vec<_>>());
    }
}

/// S-050: the same without leases: who reads named shards by themselves has the position of each record, and goes on
/// strictly after it, with either source.
#[tokio::test(start_paused = true)]
async fn shards_read_by_name_go_on_after_a_captured_position() {
    let world = World::new(1);
    world.put(0, 10, 3);
    let poll = PollSource::new(world.kinesis.client(), PollConfig::default()).unwrap();
    let efo = EfoSource::new(world.kinesis.client(), EfoConfig::new("billing")).unwrap();
    let sources: [Arc<dyn ShardSource>; 2] = [Arc::new(poll), Arc::new(efo)];
    for source in sources {
        let shard = ShardRef::new(STREAM.parse().unwrap(), SHARD.parse().unwrap());
        let read = async |start: StartPosition, count: usize| {
            let mut reader = source.open(OpenShard::new(shard.clone(), start));
            let mut records = Vec::new();
            while records.len() < count {
                if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
                    records.extend(batch.records);
                }
            }
            reader.close().await;
            records
        };
        let all = read(StartPosition::TrimHorizon, 10).await;
        let captured = all[5].sequence.clone();
        let rest = read(StartPosition::AfterSequenceNumber { sequence: captured }, 4).await;
        let numbers: Vec<_> = rest.iter().map(|record| record.sequence.clone()).collect();
        assert_eq!(numbers, all[6..].iter().map(|record| record.sequence.clone()).collect::<Vec<_>>());
    }
}

/// S-049: acknowledgements: the limit of unfinished records holds delivery, finishing in any order moves the position
/// without a gap only.
#[tokio::test(start_paused = true)]
async fn acknowledgements_are_the_same_over_every_source() {
    for kind in KINDS {
        let world = World::new(1);
        world.put(0, 9, 3);
        let held = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&held);
        let consumer = kind.consumer(&world, "w1").checkpoint_limit(4).for_each(move |mut record: Record| {
            taken.lock().unwrap().push(record.completion().unwrap());
            async { Ok::<_, Infallible>(RecordAck::Manual) }
        });
        let handle = consumer.build().unwrap().spawn();
        eventually(|| held.lock().unwrap().len() == 4).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(held.lock().unwrap().len(), 4, "{kind:?}");
        held.lock().unwrap().drain(1..).for_each(kinesis_consumer::Completion::done);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(world.stored(SHARD), "TRIM_HORIZON", "{kind:?}");
        assert_eq!(held.lock().unwrap().len(), 4, "three more, {kind:?}");
        held.lock().unwrap().drain(..1).for_each(kinesis_consumer::Completion::done);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let fourth = world.kinesis.records(STREAM).unwrap()[3].sequence_number.clone();
        assert_eq!(world.stored(SHARD), fourth, "{kind:?}");
        drop(handle);
    }
}

/// S-049: balance and resharding: hand-overs without a duplicate, children after their parents, order by key.
#[tokio::test(start_paused = true)]
async fn balance_and_resharding_are_the_same_over_every_source() {
    for kind in KINDS {
        let world = World::new(4);
        let journal = Journal::default();
        let spawn =
            |worker| kind.consumer(&world, worker).for_each(journal.handler(worker)).build().unwrap().spawn();
        let one = spawn("w1");
        eventually(|| world.shares(&["w1"]) == [4]).await;
        world.put(0, 100, 20);
        let two = spawn("w2");
        eventually(|| world.shares(&["w1", "w2"]) == [2, 2]).await;
        world.put(100, 200, 20);
        let children = world.kinesis.split(STREAM, SHARD).unwrap();
        world.put(200, 300, 20);
        journal.until_distinct(300).await;
        assert!(world.is_ended(SHARD));
        assert!(children.iter().all(|child| world.owners().iter().any(|(shard, _)| child.ends_with(shard))));
        journal.assert_order_by_key();
        assert_eq!(journal.duplicates(), 0, "{kind:?}");
        assert!(stop(&one).await.is_clean());
        assert!(stop(&two).await.is_clean());
    }
}

/// S-048, S-111, R-01: while a read waits for its answer, for as long as it likes, positions are stored within
/// `checkpoint_interval` and `checkpoint_spacing`, and leases are renewed within `heartbeat_interval`, whatever the
/// settings of polling.
#[tokio::test(start_paused = true)]
async fn a_waiting_read_holds_up_no_checkpoint_and_no_renewal() {
    let secs = Duration::from_secs;
    for (interval, spacing, heartbeat, poll_period, idle) in [
        (secs(1), Duration::ZERO, secs(3), Duration::ZERO, secs(1)),
        (secs(1), secs(2), secs(3), Duration::ZERO, secs(1)),
        (Duration::from_millis(100), Duration::ZERO, secs(1), secs(10), secs(1)),
        (secs(2), Duration::ZERO, secs(5), secs(3), secs(30)),
        (secs(2), secs(4), secs(5), secs(3), secs(30)),
        (secs(7), Duration::ZERO, secs(2), Duration::ZERO, secs(3600)),
    ] {
        let world = World::new(2);
        world.put(0, 10, 10);
        // The first page comes, the second never does.
        world.kinesis.faults().on(Operation::GetRecords).skip(2).always().inject(Fault::Hang(secs(3_600)));
        let finished = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&finished);
        let consumer = world
            .consumer("w1")
            .checkpoint_interval(interval)
            .checkpoint_spacing(spacing)
            .lease(LeaseConfig::default().heartbeat_interval(heartbeat))
            .poll(PollConfig::default().poll_period(poll_period).idle_interval(idle))
            .for_each(move |record: Record| {
                let log = Arc::clone(&log);
                async move {
                    tokio::time::sleep(Duration::from_millis(170)).await;
                    log.lock().unwrap().push((Instant::now(), record));
                    Ok::<_, Infallible>(())
                }
            });
        let handle = consumer.build().unwrap().spawn();
        tokio::time::sleep(secs(90)).await;
        let finished = finished.lock().unwrap().clone();
        assert_eq!(finished.len(), 10);
        // The clock of the store's task wakes to the millisecond.
        let slack = Duration::from_millis(50);
        for (at, record) in &finished {
            let writes = world.leases.writes_of(record.source().shard().as_str());
            let stored = writes.iter().find(|(_, row)| {
                row.checkpoint.position().is_some_and(|position| position >= record.position())
            });
            let late = stored.expect("it is stored").0 - *at;
            let most = interval + spacing;
            assert!(late <= most + slack, "stored {late:?} after it was finished, not {most:?}");
        }
        for shard in [SHARD, "shardId-000000000001"] {
            let writes = world.leases.writes_of(shard);
            let gap = writes.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
            assert!(gap <= heartbeat + slack, "{gap:?} between two writes, not {heartbeat:?}");
            assert!(writes.last().unwrap().0.elapsed() <= heartbeat + slack);
        }
        drop(handle);
    }
}

/// While records come all the time, a shard costs the lease store at the most half of the writes of the KCL, which renews
/// each 3.3 s beside a checkpoint each second; and each write stores a later position.
#[tokio::test(start_paused = true)]
async fn positions_cost_half_the_writes_of_the_kcl() {
    let world = World::new(1);
    let consumer = world.consumer("w1").for_each(|_: Record| async { Ok::<_, Infallible>(()) });
    let handle = consumer.build().unwrap().spawn();
    for number in 0..150 {
        world.put(number, number + 1, 1);
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let writes = world.leases.writes_of(SHARD);
    let minute: Vec<_> = writes.iter().filter(|(at, _)| at.elapsed() <= Duration::from_secs(60)).collect();
    assert!((20..=39).contains(&minute.len()), "{} writes in 60 s", minute.len());
    assert!(minute.windows(2).all(|pair| pair[0].1.checkpoint < pair[1].1.checkpoint));
    drop(handle);
}

/// S-048, R-02: while a handler works, one page is read ahead at the tip of the shard, and nothing further.
#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_while_a_handler_works() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        log.add(text(&record));
        async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            Ok::<_, Infallible>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 1).await;
    let before = world.kinesis.calls(Operation::GetRecords);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ahead = world.kinesis.calls(Operation::GetRecords);
    assert!((before..=before + 1).contains(&ahead), "{before}, then {ahead}");
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(world.kinesis.calls(Operation::GetRecords), ahead);
    drop(handle);
}
