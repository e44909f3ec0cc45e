//! The page about the speed of the test service.

use std::fmt::Write as _;

use super::Row;

/// What the service is built for, in MB per second of reads on one core.
const GOAL: f64 = 300.0;

const INTRODUCTION: &str = "\
# Speed and memory of the test service

Written by `cargo xtask bench testkit [--quick]`; do not edit. MB are 10^6 bytes of the records' data, not of their base64
and not of what surrounds it. Each number is the fastest of many short turns.

The goal is 300 MB of GetRecords and of events per second on one core, with bounded memory. A service of one shard holds
one page: ten mebibytes or 10,000 records. `get_records` reads it in one call, `events` replays it through a new
subscription, `put_records` stores up to 500 records in one call. Every quota per second is off, and so are the life of iterators
and the pause between subscriptions, because a row repeats its call; everything else is on.

Rows without `_http` call the in-process connector, with the service and the caller on one thread, so they are what the
service costs, and the caller only counts bytes. Rows with `_http` go over a loopback socket to a client on a thread of
its own: the server has one thread, and what the kernel does for it counts. `_cbor` is Amazon's CBOR, everything else
JSON.

`peak` is the most memory that the process held during the row, client, backlog and replies included.
";

pub(super) fn text(rows: &[Row], machine: &str, quick: bool) -> String {
    let mut out = INTRODUCTION.to_owned();
    let kind = if quick { "A quick run" } else { "A full run" };
    let _ = writeln!(out, "\n{kind} on: {machine}.\n");
    out.push_str("| row | MB/s | records/s | peak, MB |\n| --- | ---: | ---: | ---: |\n");
    for row in rows {
        let peak = row.peak_mb.map_or_else(String::new, |peak| format!("{peak:.0}"));
        let _ = writeln!(out, "| `{}` | {:.0} | {:.0} | {peak} |", row.name, row.mb_per_s, row.records_per_s);
    }
    let reads = rows.iter().filter(|row| !row.name.starts_with("put_records"));
    let below: Vec<String> = reads
        .filter(|row| row.mb_per_s < GOAL)
        .map(|row| format!("`{}` ({:.0})", row.name, row.mb_per_s))
        .collect();
    if below.is_empty() {
        let _ = writeln!(out, "\nEvery row of reads and events reaches the goal in this run.");
    } else {
        let _ = writeln!(out, "\nBelow the goal in this run: {}.", below.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, mb_per_s: f64) -> Row {
        Row {
            name: name.to_owned(),
            mb_per_s,
            records_per_s: 10.0,
            ratio: None,
            against: None,
            shrink: None,
            peak_mb: Some(61.0),
        }
    }

    #[test]
    fn rows_below_the_goal_are_named() {
        let rows = [row("get_records_1kb", 400.0), row("events_100b", 99.6), row("put_records_1kb", 5.0)];
        let text = text(&rows, "a machine", true);
        assert!(text.contains("| `get_records_1kb` | 400 | 10 | 61 |"), "{text}");
        assert!(text.ends_with("Below the goal in this run: `events_100b` (100).\n"), "{text}");
        assert!(
            super::text(&rows[..1], "m", false)
                .ends_with("Every row of reads and events reaches the goal in this run.\n")
        );
    }
}
