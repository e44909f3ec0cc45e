//! The handler of the workers: usually at once, sometimes slow, stuck, failing or panicking.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kinesis_consumer::core::Position;
use kinesis_consumer::{Ack, Initialize, RecordBatch, RecordProcessor};
use tokio::time::Instant;

use crate::ledger::Ledger;

/// What a scripted panic says, so that the panic hook can keep quiet about it.
pub(crate) const SCRIPTED: &str = "a panic by script";

/// What the handlers of a worker share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) worker: u32,
    pub(crate) ledger: Arc<Ledger>,
    /// Whether handlers misbehave now and then.
    pub(crate) storm: Arc<AtomicBool>,
}

/// The processor of one tenure.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Shared,
    random: fastrand::Rng,
    /// The last position that was stored before this tenure, or finished in it.
    last: Option<Position>,
}

impl Handler {
    pub(crate) fn new(shared: Shared, seed: u64) -> Self {
        Self { shared, random: fastrand::Rng::with_seed(seed), last: None }
    }

    async fn misbehave(&mut self) -> Result<(), io::Error> {
        let pause = match self.random.u32(0..10_000) {
            0..20 => return Err(io::Error::other("a failure by script")),
            20..23 => std::panic::panic_any(SCRIPTED),
            23..30 => Duration::from_millis(self.random.u64(5_000..100_000)),
            30..500 => Duration::from_millis(self.random.u64(1..300)),
            _ => return Ok(()),
        };
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

impl RecordProcessor for Handler {
    type Error = io::Error;

    async fn initialize(&mut self, start: &Initialize) -> Result<(), Self::Error> {
        self.last = start.checkpoint.position().cloned();
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, Self::Error> {
        if self.shared.storm.load(Ordering::Relaxed) {
            self.misbehave().await?;
        }
        // From here on nothing can fail: what is in the book is finished.
        let now = Instant::now();
        let Shared { worker, ledger, .. } = &self.shared;
        let shard = batch.source().shard().as_str();
        for record in batch.records() {
            if self.last.as_ref().is_some_and(|last| record.position() <= last) {
                ledger.violation(format!("{shard}: worker {worker} got a record twice in one tenure"));
            }
            self.last = Some(record.position().clone());
            match numbers(record.data()) {
                Some((channel, number)) => ledger.deliver(now, *worker, shard, channel, number),
                None => ledger.violation(format!("{shard}: worker {worker} got a broken payload")),
            }
        }
        Ok(Ack::All)
    }
}

/// The payload of a record: its channel, its number, and something to fill it up.
pub(crate) fn payload(channel: usize, number: u64, filling: usize) -> Vec<u8> {
    let mut data = format!("{channel} {number} ").into_bytes();
    data.resize(data.len() + filling, b'.');
    data
}

fn numbers(data: &[u8]) -> Option<(usize, u64)> {
    let mut words = data.splitn(3, |byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
    Some((words.next()??.parse().ok()?, words.next()??.parse().ok()?))
}
