//! The stream: who writes into it, and how its shards change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kinesis_consumer::core::{Checkpoint, SequenceNumber};
use kinesis_consumer::lease::MemoryStore;
use kinesis_testkit::{ShardView, TestKinesis};

use crate::handler::payload;
use crate::ledger::Ledger;

pub(crate) const STREAM: &str = "orders";

/// Keys for each shard that the stream begins with.
const CHANNELS: usize = 4;

/// How long the service keeps records and shards.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How far apart reshards were before the run, on average: as in its hours.
const RESHARD_EVERY: Duration = Duration::from_secs(20 * 60);

pub(crate) struct Stream {
    pub(crate) kinesis: TestKinesis,
    pub(crate) ledger: Arc<Ledger>,
    random: fastrand::Rng,
    shards: usize,
    /// What was stored at the last trimming: everything before that is read by nobody any more.
    stored: HashMap<String, SequenceNumber>,
    ended: HashSet<String>,
    /// Whether records are written yet.
    flows: bool,
    pub(crate) reshards: u32,
}

impl Stream {
    /// A stream with a past of one retention period: from then on as many shards are forgotten as come.
    pub(crate) async fn new(shards: usize, seed: u64) -> Self {
        let kinesis = TestKinesis::builder().seed(seed).build();
        kinesis.create_stream(STREAM, shards).expect("there is no stream yet");
        let ledger = Arc::new(Ledger::new(shards * CHANNELS));
        let random = fastrand::Rng::with_seed(seed);
        let (stored, ended) = (HashMap::new(), HashSet::new());
        let mut stream = Self { kinesis, ledger, random, shards, stored, ended, flows: false, reshards: 0 };
        let mut past = Duration::ZERO;
        while past < RETENTION {
            let pause = RESHARD_EVERY.mul_f64(2.0 * stream.random.f64());
            tokio::time::advance(pause).await;
            past += pause;
            stream.reshard();
        }
        (stream.flows, stream.reshards) = (true, 0);
        stream
    }

    /// The ids of the open shards.
    pub(crate) fn open(&self) -> Vec<String> {
        self.views().into_iter().filter(ShardView::is_open).map(|view| view.shard_id).collect()
    }

    /// How many shards the service lists.
    pub(crate) fn listed(&self) -> usize {
        self.views().len()
    }

    /// Splits a shard or merges two.
    pub(crate) fn reshard(&mut self) {
        let mut open = self.views();
        open.retain(ShardView::is_open);
        open.sort_by_key(|view| view.starting_hash_key);
        let (least, most) = (self.shards - self.shards / 4, self.shards + self.shards / 4 + 1);
        let splits = open.len() <= least || (open.len() < most && self.random.bool());
        let done = if splits {
            let shard = &open[self.random.usize(0..open.len())].shard_id;
            if self.flows && self.random.bool() {
                // In the middle of the traffic.
                self.kinesis.split_after(STREAM, shard, self.random.u64(1..20))
            } else {
                self.kinesis.split(STREAM, shard).map(drop)
            }
        } else {
            let place = self.random.usize(1..open.len());
            self.kinesis.merge(STREAM, &open[place - 1].shard_id, &open[place].shard_id).map(drop)
        };
        // A shard that is too narrow is left as it is.
        self.reshards += u32::from(done.is_ok());
    }

    /// Writes what falls to half a second.
    pub(crate) fn write(&mut self) {
        let channels = self.shards * CHANNELS;
        for _ in 0..self.shards.div_ceil(4) {
            let filling = match self.random.u32(0..20_000) {
                0 => 500_000,
                1..20 => 20_000,
                _ => self.random.usize(0..100),
            };
            let channel = self.random.usize(0..channels);
            self.put(channel, filling);
        }
        if self.random.u32(0..600) == 0 {
            let channel = self.random.usize(0..channels);
            for _ in 0..300 {
                self.put(channel, 1_000);
            }
        }
    }

    fn put(&self, channel: usize, filling: usize) {
        let channels = (self.shards * CHANNELS) as u128;
        let hash_key = (u128::MAX / channels) * channel as u128 + u128::MAX / channels / 2;
        let number = self.ledger.write(channel);
        let key = format!("key-{channel}");
        self.kinesis
            .put_at(STREAM, hash_key, &key, payload(channel, number, filling))
            .expect("there is room");
    }

    /// Lets the service forget what was stored as finished at the last time, so that its memory says nothing of ours.
    pub(crate) fn trim(&mut self, store: &MemoryStore) {
        self.kinesis.clear_calls();
        let trim = |shard: &str, sequence: &str| self.kinesis.trim(STREAM, shard, sequence).map(drop);
        let views: HashMap<_, _> =
            self.views().into_iter().map(|view| (view.shard_id, view.ending_sequence_number)).collect();
        self.ended.retain(|shard| views.contains_key(shard));
        for row in store.snapshot() {
            let shard = row.key.shard().as_str();
            let trimmed = match &row.checkpoint {
                Checkpoint::At(position) => {
                    let now = position.sequence().clone();
                    match self.stored.insert(shard.to_owned(), now.clone()) {
                        Some(before) if before < now => trim(shard, &before.to_string()),
                        _ => Ok(()),
                    }
                }
                Checkpoint::ShardEnd if self.ended.insert(shard.to_owned()) => {
                    self.stored.remove(shard);
                    views.get(shard).and_then(Option::as_ref).map_or(Ok(()), |end| trim(shard, end))
                }
                _ => Ok(()),
            };
            if let Err(error) = trimmed {
                self.ledger.violation(format!("{shard}: cannot be trimmed: {error}"));
            }
        }
    }

    fn views(&self) -> Vec<ShardView> {
        self.kinesis.shards(STREAM).expect("the stream exists")
    }
}
