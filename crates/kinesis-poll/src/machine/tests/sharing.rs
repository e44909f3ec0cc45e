//! Machines that share the reads of one shard, over many seeds; the same with the SDK and the embedded service is in
//! `tests/polling/sharing.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use kinesis_core::{StartPosition, Timestamp};

use super::super::{Action, Event, Page, PollMachine};
use super::model::{iterator, shard, throttled};
use crate::PollConfig;

/// How many consumers there are changes once in this time. They settle in its first half and are watched in its second.
const PHASE: Duration = Duration::from_secs(120);

/// A shard's allowance of reads: five, refilled steadily.
struct Allowance {
    reads: f64,
    at: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let gained = (now - self.at).as_secs_f64() * 5.0;
        (self.reads, self.at) = ((self.reads + gained).min(5.0), now);
        let given = self.reads >= 1.0;
        self.reads -= f64::from(u8::from(given));
        given
    }
}

struct Read {
    at: Duration,
    reader: usize,
    refused: bool,
}

/// A page of a shard with more to read, which tells the service's time.
fn page(service_time: Duration) -> Event {
    let seconds = i64::try_from(service_time.as_secs()).unwrap();
    Event::Page(Ok(Page {
        next: Some("next".to_owned()),
        behind: Some(Duration::from_secs(60)),
        service_time: Some(Timestamp::from_millis(seconds * 1_000)),
        ..Page::default()
    }))
}

/// `n` consumers that join one per phase, and one that leaves after the last of them.
fn run(n: usize, seed: u64) -> Vec<Read> {
    let began = Instant::now();
    let mut allowance = Allowance { reads: 5.0, at: began };
    // Counts begin at certain times of the service's clock: joins come before, in and after them.
    let service_began = Duration::from_millis(1_700_000_000_000 + seed * 1_370);
    let config = PollConfig::default();
    let mut machines: Vec<_> = (0..n)
        .map(|reader| {
            let seed = seed * 1_000 + reader as u64;
            PollMachine::new(shard(), StartPosition::TrimHorizon, &config, seed)
        })
        .collect();
    let mut due: BinaryHeap<_> =
        (0..n).map(|reader| Reverse((began + PHASE * u32::try_from(reader).unwrap(), reader))).collect();
    let leaves = usize::try_from(seed).unwrap() % n;
    let mut reads = Vec::new();
    while let Some(Reverse((now, reader))) = due.pop() {
        let at = now - began;
        if at >= PHASE * u32::try_from(n + 1).unwrap() {
            break;
        }
        if reader == leaves && at >= PHASE * u32::try_from(n).unwrap() {
            continue;
        }
        let mut event = Event::Resume;
        let next = loop {
            event = match machines[reader].step(now, event) {
                Action::GetIterator { .. } => iterator("i"),
                Action::GetRecords { .. } => {
                    let refused = !allowance.take(now);
                    reads.push(Read { at, reader, refused });
                    if refused { throttled() } else { page(service_began + at) }
                }
                Action::WaitUntil(next) => break next,
                Action::Emit(_) => Event::Resume,
                other => panic!("{other:?}"),
            }
        };
        due.push(Reverse((next, reader)));
    }
    reads
}

/// How far the rate that is furthest from the fair one is from it in the second half of a phase, as a part of it.
fn deviation(reads: &[Read], readers: &[usize], phase: usize) -> f64 {
    let end = PHASE * u32::try_from(phase).unwrap();
    let from = end - PHASE / 2;
    let fair = 5.0 * (PHASE / 2).as_secs_f64() / readers.len() as f64;
    let count = |reader: usize| {
        let own = reads.iter().filter(|read| read.reader == reader && !read.refused);
        own.filter(|read| from <= read.at && read.at < end).count() as f64
    };
    readers.iter().map(|reader| (count(*reader) / fair - 1.0).abs()).fold(0.0, f64::max)
}

/// The worst over many seeds: how far the furthest rate is from the fair one after any join and after one left, and which
/// part of all calls was refused.
#[derive(Debug, Default)]
struct Shares {
    joined: f64,
    left: f64,
    refused: f64,
}

fn shares(n: usize) -> Shares {
    let mut worst = Shares::default();
    for seed in 0..100 {
        let reads = run(n, seed);
        let leaves = usize::try_from(seed).unwrap() % n;
        for readers in 1..=n {
            let joined = deviation(&reads, &(0..readers).collect::<Vec<_>>(), readers);
            worst.joined = worst.joined.max(joined);
        }
        let left = deviation(&reads, &(0..n).filter(|r| *r != leaves).collect::<Vec<_>>(), n + 1);
        let refused = reads.iter().filter(|read| read.refused).count() as f64 / reads.len() as f64;
        (worst.left, worst.refused) = (worst.left.max(left), worst.refused.max(refused));
    }
    println!("{n} consumers: {worst:.3?}");
    worst
}

/// F-28, S-079: two consumers each come to half of the reads, and what one leaves goes to the other.
#[test]
fn two_consumers_share_evenly() {
    let shares = shares(2);
    assert!(shares.joined <= 0.2 && shares.left <= 0.2 && shares.refused < 0.05, "{shares:?}");
}

/// F-28, S-079: three come to a third each.
#[test]
fn three_consumers_share_evenly() {
    let shares = shares(3);
    assert!(shares.joined <= 0.2 && shares.left <= 0.2 && shares.refused < 0.05, "{shares:?}");
}

/// F-28, S-079: five come to one read a second each.
#[test]
fn five_consumers_share_evenly() {
    let shares = shares(5);
    assert!(shares.joined <= 0.2 && shares.left <= 0.2 && shares.refused < 0.05, "{shares:?}");
}
