//! The judgement: what the stream has against what the workers wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kinesis_core::SequenceNumber;
use serde::Serialize;

use crate::judge::Stored;
use crate::log::Line;

/// The last line of the output. `ok` decides the exit code.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    /// Sequence numbers that the service returned to the producer.
    pub(crate) produced: usize,
    /// Distinct records that the workers wrote down.
    pub(crate) processed: usize,
    /// Records in the stream that no worker wrote down, and produced ones that are not in the stream.
    pub(crate) lost: usize,
    /// Records written down more than once: what at-least-once costs.
    pub(crate) duplicates: usize,
    /// Times that a key's record was first delivered after a later record of the same key.
    pub(crate) key_order_violations: usize,
    /// Lease writes of a tenure that was over and that the store took all the same.
    pub(crate) stale_writes: usize,
    /// Stored positions that went back.
    pub(crate) checkpoint_regressions: usize,
    pub(crate) killed_workers: usize,
    pub(crate) stalled_workers: usize,
    pub(crate) splits: usize,
    pub(crate) merges: usize,
    pub(crate) after_split: usize,
    pub(crate) after_merge: usize,
    pub(crate) unclean_stops: usize,
    pub(crate) seconds: f64,
    pub(crate) ok: bool,
}

/// What happened besides records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    pub(crate) killed_workers: usize,
    pub(crate) stalled_workers: usize,
    pub(crate) splits: usize,
    pub(crate) merges: usize,
    pub(crate) after_split: usize,
    pub(crate) after_merge: usize,
    pub(crate) unclean_stops: usize,
}

pub(crate) fn judge(
    produced: &BTreeSet<String>,
    stored: &[Stored],
    lines: &[Line],
    events: &Events,
    took: Duration,
) -> anyhow::Result<Verdict> {
    let deliveries = deliveries(lines);
    let in_stream: BTreeSet<&str> = stored.iter().map(|record| &*record.sequence).collect();
    let unread = in_stream.iter().filter(|sequence| !deliveries.contains_key(**sequence)).count();
    let vanished = produced.iter().filter(|sequence| !in_stream.contains(&***sequence)).count();
    let (stale_writes, checkpoint_regressions) = lease_faults(lines)?;
    let mut verdict = Verdict {
        produced: produced.len(),
        processed: deliveries.len(),
        lost: unread + vanished,
        duplicates: deliveries.values().map(|deliveries| deliveries.count - 1).sum(),
        key_order_violations: key_order_violations(stored, &deliveries)?,
        stale_writes,
        checkpoint_regressions,
        killed_workers: events.killed_workers,
        stalled_workers: events.stalled_workers,
        splits: events.splits,
        merges: events.merges,
        after_split: events.after_split,
        after_merge: events.after_merge,
        unclean_stops: events.unclean_stops,
        seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        ok: false,
    };
    verdict.ok = [
        verdict.lost,
        verdict.key_order_violations,
        verdict.stale_writes,
        verdict.checkpoint_regressions,
        verdict.unclean_stops,
    ]
    .iter()
    .all(|faults| *faults == 0);
    Ok(verdict)
}

/// When a record was delivered: the host's monotonic clock, then the order within the worker.
type Moment = (u64, u64);

/// The first delivery of a record, and how many there were.
struct Deliveries {
    first: Moment,
    count: usize,
}

fn deliveries(lines: &[Line]) -> BTreeMap<&str, Deliveries> {
    let mut deliveries: BTreeMap<&str, Deliveries> = BTreeMap::new();
    for line in lines {
        let Line::Processed { sequence, at, order, .. } = line else { continue };
        let delivery = deliveries.entry(sequence).or_insert(Deliveries { first: (*at, *order), count: 0 });
        delivery.first = delivery.first.min((*at, *order));
        delivery.count += 1;
    }
    deliveries
}

/// For each key in the order of the stream: how often was a record first delivered before one that precedes it?
fn key_order_violations(stored: &[Stored], deliveries: &BTreeMap<&str, Deliveries>) -> anyhow::Result<usize> {
    let mut by_key: BTreeMap<&str, Vec<(SequenceNumber, Moment)>> = BTreeMap::new();
    for record in stored {
        if let Some(delivery) = deliveries.get(&*record.sequence) {
            by_key.entry(&record.key).or_default().push((record.sequence.parse()?, delivery.first));
        }
    }
    let mut violations = 0;
    for records in by_key.values_mut() {
        records.sort();
        violations += records.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
    }
    Ok(violations)
}

/// Accepted lease writes of former tenures, and stored positions that went back in the order of the row's counter.
fn lease_faults(lines: &[Line]) -> anyhow::Result<(usize, usize)> {
    let mut stale_writes = 0;
    let mut by_shard: BTreeMap<&str, Vec<(u64, Option<SequenceNumber>)>> = BTreeMap::new();
    for line in lines {
        let Line::Written { shard, counter, checkpoint, stale, .. } = line else { continue };
        stale_writes += usize::from(*stale);
        if checkpoint != "SHARD_END" {
            by_shard.entry(shard).or_default().push((*counter, checkpoint.parse().ok()));
        }
    }
    let mut regressions = 0;
    for writes in by_shard.values_mut() {
        writes.sort();
        regressions += writes.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
    }
    Ok((stale_writes, regressions))
}

impl Verdict {
    /// The table for people; the JSON line is for programs.
    pub(crate) fn table(&self) -> String {
        let rows = [
            ("records produced", self.produced),
            ("records processed", self.processed),
            ("lost", self.lost),
            ("delivered more than once", self.duplicates),
            ("out of order within a key", self.key_order_violations),
            ("stale lease writes accepted", self.stale_writes),
            ("positions that went back", self.checkpoint_regressions),
            ("workers killed", self.killed_workers),
            ("workers stalled past their expiry", self.stalled_workers),
            ("shards split", self.splits),
            ("shards merged", self.merges),
            ("workers that did not stop cleanly", self.unclean_stops),
        ];
        let mut text = String::new();
        for (name, value) in rows {
            text.push_str(&format!("  {name:<36}{value:>8}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(sequence: u32, key: &str) -> Stored {
        Stored { sequence: sequence.to_string(), key: key.to_owned() }
    }

    fn processed(sequence: u32, at: u64) -> Line {
        Line::Processed {
            shard: "s".into(),
            epoch: 1,
            order: 1,
            sequence: sequence.to_string(),
            key: String::new(),
            at,
        }
    }

    fn written(counter: u64, checkpoint: &str, stale: bool) -> Line {
        Line::Written { shard: "s".into(), epoch: 1, counter, checkpoint: checkpoint.into(), stale }
    }

    fn verdict(lines: &[Line]) -> Verdict {
        let produced = ["9", "10", "11"].map(String::from).into();
        let stream = [stored(9, "a"), stored(10, "a"), stored(11, "b")];
        judge(&produced, &stream, lines, &Events::default(), Duration::ZERO).unwrap()
    }

    #[test]
    fn all_delivered_in_order_is_ok() {
        let verdict = verdict(&[processed(9, 1), processed(11, 2), processed(10, 3), processed(9, 4)]);
        assert!(verdict.ok);
        assert_eq!((verdict.lost, verdict.duplicates, verdict.key_order_violations), (0, 1, 0));
    }

    #[test]
    fn a_missing_record_is_lost() {
        let verdict = verdict(&[processed(9, 1), processed(10, 3)]);
        assert_eq!((verdict.lost, verdict.ok), (1, false));
    }

    #[test]
    fn order_within_a_key_counts_first_deliveries_by_number() {
        let verdict = verdict(&[processed(10, 1), processed(9, 2), processed(11, 3), processed(10, 4)]);
        assert_eq!((verdict.key_order_violations, verdict.ok), (1, false));
    }

    #[test]
    fn a_position_that_goes_back_and_a_stale_write_are_faults() {
        let all = [processed(9, 1), processed(10, 2), processed(11, 3)];
        let with = |more: &[Line]| verdict(&[&all[..], more].concat());
        assert!(with(&[written(2, "10", false), written(1, "9", false), written(3, "SHARD_END", false)]).ok);
        let back = with(&[written(1, "10", false), written(2, "9", false)]);
        assert_eq!((back.checkpoint_regressions, back.ok), (1, false));
        let stale = with(&[written(1, "10", true)]);
        assert_eq!((stale.stale_writes, stale.ok), (1, false));
    }
}
