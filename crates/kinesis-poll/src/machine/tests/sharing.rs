//! Machines that share the reads of one shard, over many seeds; the same with the SDK and the embedded service is in
//! `tests/polling/sharing.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use kinesis_core::StartPosition;

use super::super::{Action, Event, PollMachine};
use super::model::{iterator, page, shard, throttled};
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

/// `n` consumers that join one per phase, and one that leaves after the last of them.
fn run(n: usize, seed: u64) -> Vec<Read> {
    let began = Instant::now();
    let mut allowance = Allowance { reads: 5.0, at: began };
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
                    if refused { throttled() } else { page(&[], 60_000) }
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

/// Over many seeds: the part of phases in which everybody is within 20 % of the fair share, after the last one joined
/// and after one left; the mean and the worst deviation; the part of calls that was refused.
#[derive(Debug)]
struct Shares {
    joined: f64,
    left: f64,
    mean: f64,
    worst: f64,
    refused: f64,
}

fn shares(n: usize) -> Shares {
    const SEEDS: u64 = 100;
    let mut shares = Shares { joined: 0.0, left: 0.0, mean: 0.0, worst: 0.0, refused: 0.0 };
    for seed in 0..SEEDS {
        let reads = run(n, seed);
        let leaves = usize::try_from(seed).unwrap() % n;
        let joined = deviation(&reads, &(0..n).collect::<Vec<_>>(), n);
        let left = deviation(&reads, &(0..n).filter(|r| *r != leaves).collect::<Vec<_>>(), n + 1);
        shares.joined += f64::from(u8::from(joined <= 0.2));
        shares.left += f64::from(u8::from(left <= 0.2));
        shares.mean += joined;
        shares.worst = shares.worst.max(joined).max(left);
        shares.refused += reads.iter().filter(|read| read.refused).count() as f64 / reads.len() as f64;
    }
    let runs = SEEDS as f64;
    let shares = Shares {
        joined: shares.joined / runs,
        left: shares.left / runs,
        mean: shares.mean / runs,
        worst: shares.worst,
        refused: shares.refused / runs,
    };
    println!("{n} consumers: {shares:.3?}");
    shares
}

/// F-28, S-079: two consumers each come to half of the reads, and what one leaves goes to the other.
#[test]
fn two_consumers_share_evenly() {
    let shares = shares(2);
    assert!(shares.joined >= 0.9 && shares.left >= 0.95, "{shares:?}");
    assert!(shares.mean < 0.1 && shares.worst < 0.5 && shares.refused < 0.02, "{shares:?}");
}

/// F-28, S-079: three come to a third each.
#[test]
fn three_consumers_share_evenly() {
    let shares = shares(3);
    assert!(shares.joined >= 0.8 && shares.left >= 0.8, "{shares:?}");
    assert!(shares.mean < 0.15 && shares.worst < 0.6 && shares.refused < 0.03, "{shares:?}");
}

/// F-28, S-079: five come to one read a second each.
#[test]
fn five_consumers_share_evenly() {
    let shares = shares(5);
    assert!(shares.joined >= 0.8 && shares.left >= 0.8, "{shares:?}");
    assert!(shares.mean < 0.15 && shares.worst < 0.6 && shares.refused < 0.055, "{shares:?}");
}
