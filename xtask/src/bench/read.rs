//! `bench read`: what reading costs, polling against a plain loop over the SDK in the same run.
//!
//! Prints one JSON line for each row and writes `docs/benchmarks/read-paths.md`. The ways to read are the prefixes of the
//! rows' names, so another one needs only its rows.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{bench, machine, plot};
use crate::process;
use crate::workspace::Workspace;

const REPORT: &str = "docs/benchmarks/read-paths.md";

/// The sizes of records, as they are in the rows' names and for people.
const SIZES: [(&str, &str); 3] = [("100b", "100 B"), ("1kb", "1 KB"), ("100kb", "100 KB")];

/// What reading may cost compared with the plain loop.
const LIMIT: f64 = 1.05;

const INTRODUCTION: &str = "\
# Cost of the read paths

Written by `cargo xtask bench read`; do not edit. Rows are called after the way to read, the size of the records and the
number of shards: `sdk` is a plain loop over the AWS SDK (GetRecords, 200 ms, next iterator), `poll` is `kinesis-poll` with
its default settings, `poll_period` the same with a poll period of 1 s, `poll_fast` the same with the feature
`fast-decode` and `PollSource::fast_decode`.

The service is a canned page (10,000 records of 100 B, 2,000 of 1 KB, 20 of 100 KB) that is answered in the process, and
time is virtual: neither the network nor the five reads a second count, so MB/s is what one core can read, not what a shard
gives. Every case runs in a process of its own on one thread; the ways of one size and shard count take turns. MB are 10^6
bytes of payload. `peak` is the memory of the process at its most, the canned page included.

`ratio` is the median, over the turns, of CPU time compared with the `sdk` turn beside it. `instructions` are those for
each record as valgrind counts them, of a long run less those of a short one; they hardly depend on what else the machine
does. Nothing is read ahead here: a page that is read and not taken would count for one way and not for the other.
Latencies are from put to delivery with the embedded Kinesis in virtual time, one record every 37 ms: they show the pace
of the reads and nothing else; polling waits 1 s between reads at the tip (`idle_interval`), the plain loop 200 ms.

Not run: the same against the real service, which takes an account, and against the Java KCL.
";

pub(super) fn run(workspace: &Workspace, quick: bool) -> Result<()> {
    let mut command = bench(workspace, "kinesis-poll", &["--features", "fast-decode"], quick);
    eprintln!("$ {}", process::shown(&command));
    let text = process::capture(&mut command)?;
    let rows: Vec<Value> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a row: {line}")))
        .collect::<Result<_>>()?;
    for row in &rows {
        println!("{row}");
    }
    let path = workspace.root().join(REPORT);
    fs::create_dir_all(path.parent().context("the report lies in a folder")?)?;
    fs::write(&path, report(&rows, &machine::describe(), quick))
        .with_context(|| format!("writing {REPORT}"))?;
    for (size, _) in SIZES {
        let path = path.with_file_name(plot_name(size));
        fs::write(&path, drawing(&rows, size)).with_context(|| format!("writing {}", path.display()))?;
    }
    let over = over_limit(&rows);
    if over.is_empty() {
        return Ok(());
    }
    bail!("more than {LIMIT} times the instructions of the plain loop: {}", over.join(", "))
}

/// The rows that take more instructions than allowed. Times are not judged: a busy machine decides on them.
fn over_limit(rows: &[Value]) -> Vec<String> {
    let over =
        rows.iter().filter(|row| row["instructions_ratio"].as_f64().is_some_and(|ratio| ratio > LIMIT));
    over.filter_map(|row| row["name"].as_str().map(str::to_owned)).collect()
}

fn plot_name(size: &str) -> String {
    format!("read-paths-{size}.svg")
}

/// CPU time over the number of shards, a line for each way to read records of this size.
fn drawing(rows: &[Value], size: &str) -> String {
    let mut lines: Vec<plot::Line> = Vec::new();
    for row in rows {
        let name = row["name"].as_str().unwrap_or_default();
        let Some((path, shards)) = name.split_once(&format!("_{size}_")) else { continue };
        let (Ok(shards), Some(seconds)) = (shards.parse::<f64>(), row["cpu_s_per_gib"].as_f64()) else {
            continue;
        };
        match lines.iter_mut().find(|line| line.0 == path) {
            Some(line) => line.1.push((shards, seconds)),
            None => lines.push((path.to_owned(), vec![(shards, seconds)])),
        }
    }
    let people = SIZES.iter().find(|known| known.0 == size).map_or(size, |known| known.1);
    plot::lines(&format!("CPU seconds per GiB, records of {people}"), "shards", "CPU s", &lines)
}

fn report(rows: &[Value], machine: &str, quick: bool) -> String {
    let mut out = INTRODUCTION.to_owned();
    let kind = if quick { "A quick run" } else { "A full run" };
    let _ = writeln!(out, "\n{kind} on: {machine}.\n");
    out.push_str(
        "| row | MB/s | records/s | CPU s per GiB | ratio | instructions | ratio | peak MiB | p50 ms | p99 ms |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let figure = |field: &str, digits: usize| match row[field].as_f64() {
            Some(number) => format!("{number:.digits$}"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row["name"].as_str().unwrap_or_default(),
            figure("mb_per_s", 0),
            figure("records_per_s", 0),
            figure("cpu_s_per_gib", 2),
            figure("ratio", 3),
            figure("instructions_per_record", 0),
            figure("instructions_ratio", 3),
            figure("peak_mib", 0),
            figure("p50_ms", 0),
            figure("p99_ms", 0),
        );
    }
    for (size, people) in SIZES {
        let _ = writeln!(out, "\n![CPU seconds per GiB for records of {people}]({})", plot_name(size));
    }
    let over = over_limit(rows);
    let counted = rows.iter().filter(|row| row["instructions_ratio"].is_number()).count();
    let verdict = match (counted, over.as_slice()) {
        (0, _) => "was not judged: instructions were not counted".to_owned(),
        (_, []) => format!("is kept by all {counted} rows"),
        (_, over) => format!("is not kept by {}, of {counted} rows", over.join(", ")),
    };
    let _ = writeln!(out, "\nThe limit of {LIMIT} times the instructions of the plain loop {verdict}.");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// S-242, S-243, S-244, S-245, S-247: the page has a row for each way to read, with and without a poll period, says
    /// where the limit does not hold, and what was not run: the real service and the Java KCL.
    #[test]
    fn rows_over_the_limit_are_named() {
        let mut rows = vec![
            json!({ "name": "sdk_1kb_1", "instructions_ratio": null, "cpu_s_per_gib": 2.0 }),
            json!({ "name": "poll_1kb_1", "instructions_ratio": 1.05, "cpu_s_per_gib": 2.1 }),
            json!({ "name": "poll_1kb_8", "instructions_ratio": 1.06, "cpu_s_per_gib": 2.2 }),
            json!({ "name": "poll_100b_1", "instructions_ratio": 1.06 }),
        ];
        assert_eq!(over_limit(&rows), ["poll_1kb_8", "poll_100b_1"]);
        let text = report(&rows, "a machine", true);
        assert!(text.contains("A quick run on: a machine."));
        assert!(text.contains("plain loop is not kept by poll_1kb_8, poll_100b_1, of 3 rows.\n"), "{text}");
        assert!(text.contains("| `poll_1kb_1` |  |  | 2.10 |  |  | 1.050 |  |  |  |\n"), "{text}");
        assert!(text.contains("Not run: the same against the real service") && text.contains("the Java KCL"));
        rows.truncate(2);
        assert!(report(&rows, "a machine", false).contains("plain loop is kept by all 1 rows.\n"));
        rows.truncate(1);
        assert!(report(&rows, "a machine", false).contains("was not judged"));
    }

    /// S-242: a line for each way to read.
    #[test]
    fn a_plot_has_a_line_for_each_way_to_read() {
        let rows = [
            json!({ "name": "poll_1kb_1", "cpu_s_per_gib": 2.1 }),
            json!({ "name": "poll_fast_1kb_1", "cpu_s_per_gib": 1.1 }),
            json!({ "name": "poll_1kb_8", "cpu_s_per_gib": 2.2 }),
            json!({ "name": "poll_100kb_1", "cpu_s_per_gib": 0.1 }),
        ];
        let drawn = drawing(&rows, "1kb");
        assert!(
            drawn.contains("records of 1 KB") && drawn.contains(">poll<") && drawn.contains(">poll_fast<")
        );
        assert_eq!(drawn.matches("<polyline").count(), 1 + 2 * 2);
    }
}
