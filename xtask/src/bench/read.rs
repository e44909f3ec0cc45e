//! `bench read`: what reading costs, polling and enhanced fan-out against plain loops over the SDK in the same run.
//!
//! Prints one JSON line for each row and writes `docs/benchmarks/read-paths.md`. The ways to read are the prefixes of the
//! rows' names, so another one needs only its rows.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{bench, machine, plot};
use crate::process;
use crate::workspace::Workspace;

const REPORT: &str = "docs/benchmarks/read-paths.md";

/// What reading may cost compared with the plain loop.
const LIMIT: f64 = 1.05;

/// What reading with the decoder of its own was to cost at the most.
const DECODER_GOAL: f64 = 0.5;

/// What the names of rows have behind the way to read where records arrive at a rate.
const RATE: &str = "_rate_";

/// A drawing of one field of some of the rows.
struct Plot {
    file: &'static str,
    title: &'static str,
    /// What the names of its rows have between the way to read and the place on the horizontal axis.
    rows: &'static str,
    field: &'static str,
    horizontal: &'static str,
    vertical: &'static str,
}

const PLOTS: [Plot; 7] = [
    over_shards(
        "read-paths-100b.svg",
        "CPU seconds per GiB, records of 100 B",
        "_100b_",
        "cpu_s_per_gib",
        "CPU s",
    ),
    over_shards(
        "read-paths-1kb.svg",
        "CPU seconds per GiB, records of 1 KB",
        "_1kb_",
        "cpu_s_per_gib",
        "CPU s",
    ),
    over_shards(
        "read-paths-100kb.svg",
        "CPU seconds per GiB, records of 100 KB",
        "_100kb_",
        "cpu_s_per_gib",
        "CPU s",
    ),
    over_shards("read-paths-throughput.svg", "Throughput, records of 1 KB", "_1kb_", "mb_per_s", "MB/s"),
    over_shards("read-paths-memory.svg", "Peak memory, records of 1 KB", "_1kb_", "peak_mib", "MiB"),
    over_rates(
        "read-paths-rate-cpu.svg",
        "CPU seconds per GiB, writer and service included",
        "cpu_s_per_gib",
        "CPU s",
    ),
    over_rates("read-paths-rate-latency.svg", "Put to delivery, 99th percentile", "p99_ms", "ms"),
];

const fn over_shards(
    file: &'static str,
    title: &'static str,
    rows: &'static str,
    field: &'static str,
    vertical: &'static str,
) -> Plot {
    Plot { file, title, rows, field, horizontal: "shards", vertical }
}

const fn over_rates(
    file: &'static str,
    title: &'static str,
    field: &'static str,
    vertical: &'static str,
) -> Plot {
    Plot { file, title, rows: RATE, field, horizontal: "records/s", vertical }
}

const INTRODUCTION: &str = "\
# Cost of the read paths

Written by `cargo xtask bench read`; do not edit. Rows are called after the way to read, the size of the records and the
number of shards: `sdk` is a plain loop over the AWS SDK (GetRecords, 200 ms, next iterator), `poll` is `kinesis-poll` with
its default settings, `poll_period` the same with a poll period of 1 s, `poll_fast` the same with the feature
`fast-decode` and `PollSource::fast_decode`; `sdk_efo` is a plain loop over the events of SubscribeToShard, `efo` is
`kinesis-efo` with its default settings. Each is compared with the plain loop over the same calls.

The service is a canned page (10,000 records of 100 B, 2,000 of 1 KB, 20 of 100 KB), or a canned subscription (1,000
records of 100 B or 1 KB an event, 10 of 100 KB; a shard ends after 4 MiB, then the next one is read), that is answered in
the process, and time is virtual: neither the network nor the five reads a second count, so MB/s is what one core can read,
not what a shard gives. Every case runs in a process of its own on one thread; the ways of one size and shard count take
turns, and the turn that took the least CPU time gives the figures. glibc's allocator is told to keep the memory that it has
(`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`): else it gives it back and takes it again with each page for whichever way
happens to have it so. MB are 10^6 bytes of payload. `peak` is the memory of
the process at its most, the canned answers included.

`ratio` is the median of the CPU times of ten pairs (two in a quick run), each of a run of this way and one of the plain
loop right beside it. `instructions` are those for each record as valgrind counts them, of a long run less those of a short
one; they hardly depend on what else the machine does. Nothing is read ahead by polling here: a page that is read and not
taken would count for one way and not for the other. `efo` reads ahead what no caller waits for, which here is nothing.

Not run: the same against the real service, which takes an account, and against the Java KCL.
";

const ABOUT_RATES: &str = "
## Records that arrive at a rate

Records are written to the embedded Kinesis for ten virtual minutes, 30,000 or 100 MB at most (a tenth of that in a quick
run), and read by one reader for each shard: records of 1 KB in one shard where the row names the rate only, else those that
it names, in so many shards. Latencies are from put to delivery in virtual time: they show the pace of the
reads and nothing else; polling waits 1 s between reads at the tip (`idle_interval`), the plain loop 200 ms, and the
embedded Kinesis pushes a record at once, which the real service does not. CPU time is that of the whole process, writer and
service included; `none` has no reader, so it says what those take alone.

";

const WITH_INSTRUCTIONS: &[(&str, &str, usize)] = &[
    ("MB/s", "mb_per_s", 0),
    ("records/s", "records_per_s", 0),
    ("CPU s per GiB", "cpu_s_per_gib", 2),
    ("ratio", "ratio", 3),
    ("instructions", "instructions_per_record", 0),
    ("ratio", "instructions_ratio", 3),
    ("peak MiB", "peak_mib", 0),
];

const WITH_LATENCIES: &[(&str, &str, usize)] = &[
    ("offered records/s", "offered_records_per_s", 0),
    ("records/s", "records_per_s", 1),
    ("MB/s", "mb_per_s", 3),
    ("CPU s per GiB", "cpu_s_per_gib", 2),
    ("peak MiB", "peak_mib", 0),
    ("p50 ms", "p50_ms", 0),
    ("p99 ms", "p99_ms", 0),
];

pub(super) fn run(workspace: &Workspace, quick: bool) -> Result<()> {
    let mut command = bench(workspace, "kinesis-consumer", &[], quick);
    eprintln!("$ {}", process::shown(&command));
    let began = Instant::now();
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
    fs::write(&path, report(&rows, &machine::describe(), quick, began.elapsed()))
        .with_context(|| format!("writing {REPORT}"))?;
    for plot in &PLOTS {
        let path = path.with_file_name(plot.file);
        fs::write(&path, drawing(&rows, plot)).with_context(|| format!("writing {}", path.display()))?;
    }
    judge(&rows, quick)
}

/// Fails where the limit is not kept. Of a quick run two short pairs say nothing about CPU time.
fn judge(rows: &[Value], quick: bool) -> Result<()> {
    let mut problems = Vec::new();
    for (what, ratio) in [("instructions", "instructions_ratio"), ("CPU time", "ratio")] {
        let over = over_limit(rows, ratio);
        if !rows.iter().any(|row| row[ratio].is_number()) {
            problems.push(format!("{what} were not measured (is valgrind installed?)"));
        } else if !over.is_empty() && (ratio != "ratio" || !quick) {
            problems
                .push(format!("more than {LIMIT} times the {what} of the plain loop: {}", over.join(", ")));
        }
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("; ")) }
}

/// The rows that take more than allowed, by this ratio.
fn over_limit(rows: &[Value], ratio: &str) -> Vec<String> {
    let over = rows.iter().filter(|row| row[ratio].as_f64().is_some_and(|ratio| ratio > LIMIT));
    over.filter_map(|row| row["name"].as_str().map(str::to_owned)).collect()
}

fn name(row: &Value) -> &str {
    row["name"].as_str().unwrap_or_default()
}

/// A line for each way to read.
fn drawing(rows: &[Value], plot: &Plot) -> String {
    let mut lines: Vec<plot::Line> = Vec::new();
    for row in rows {
        let Some((path, place)) = name(row).split_once(plot.rows) else { continue };
        let (Ok(place), Some(value)) = (place.parse::<f64>(), row[plot.field].as_f64()) else { continue };
        match lines.iter_mut().find(|line| line.0 == path) {
            Some(line) => line.1.push((place, value)),
            None => lines.push((path.to_owned(), vec![(place, value)])),
        }
    }
    plot::lines(plot.title, plot.horizontal, plot.vertical, &lines)
}

/// A table of rows: of each column its title, its field and how many digits it has behind the point.
fn table(out: &mut String, rows: &[&Value], columns: &[(&str, &str, usize)]) {
    let titles: Vec<&str> = columns.iter().map(|column| column.0).collect();
    let _ = writeln!(out, "| row | {} |", titles.join(" | "));
    let _ = writeln!(out, "| --- |{}", " ---: |".repeat(columns.len()));
    for row in rows {
        let _ = write!(out, "| `{}` |", name(row));
        for (_, field, digits) in columns {
            let _ = match row[field].as_f64() {
                Some(number) => write!(out, " {number:.digits$} |"),
                None => write!(out, "  |"),
            };
        }
        out.push('\n');
    }
}

fn report(rows: &[Value], machine: &str, quick: bool, took: Duration) -> String {
    let mut out = INTRODUCTION.to_owned();
    let kind = if quick { "A quick run" } else { "A full run" };
    let _ = writeln!(out, "\n{kind} of {} s, building included, on: {machine}.\n", took.as_secs());
    let (arriving, canned): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| row["offered_records_per_s"].is_number());
    table(&mut out, &canned, WITH_INSTRUCTIONS);
    let _ = writeln!(
        out,
        "\nThe limit of {LIMIT} times the instructions of the plain loop {}.",
        verdict(rows, "instructions_ratio")
    );
    let _ = writeln!(
        out,
        "The same limit of CPU time, on which a busy machine has a say, {}.",
        verdict(rows, "ratio")
    );
    out.push_str(&about_decoder(rows));
    if !arriving.is_empty() {
        out.push_str(ABOUT_RATES);
        table(&mut out, &arriving, WITH_LATENCIES);
    }
    out.push_str("\n## Plots\n");
    for plot in &PLOTS {
        let _ = writeln!(out, "\n![{}]({})", plot.title, plot.file);
    }
    out
}

/// What the decoder of its own brings, beside what it was made for.
fn about_decoder(rows: &[Value]) -> String {
    let of = |kept: bool| -> Vec<String> {
        let judged = rows.iter().filter(|row| name(row).starts_with("poll_fast_"));
        let ratio = |row: &Value| row["ratio"].as_f64().map(|ratio| (name(row).to_owned(), ratio));
        let judged = judged.filter_map(ratio).filter(|(_, ratio)| (*ratio <= DECODER_GOAL) == kept);
        judged.map(|(name, ratio)| format!("{name} ({ratio:.2})")).collect()
    };
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "\nThe decoder of `poll_fast` was made to halve the CPU time of the plain loop. Rows that do: {}. Rows that do \
         not: {}. It takes the body of an answer in an interceptor, before the SDK's codec has seen it, and hands the SDK an \
         empty page: a codec of one's own would have to read every other operation as well. Subscriptions have no such \
         decoder: their events come through the SDK's event stream, which nothing can step into.\n",
        list(of(true)),
        list(of(false)),
    )
}

/// What came of the limit.
fn verdict(rows: &[Value], ratio: &str) -> String {
    let judged = rows.iter().filter(|row| row[ratio].is_number()).count();
    match (judged, over_limit(rows, ratio).as_slice()) {
        (0, _) => "was not judged: it was not measured".to_owned(),
        (_, []) => format!("is kept by all {judged} rows"),
        (_, over) => format!("is not kept by {}, of {judged} rows", over.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOOK: Duration = Duration::from_secs(141);

    /// S-242, S-243, S-244, S-245, S-247: the page has a row for each way to read, with and without a poll period, says
    /// where the limit does not hold, and what was not run: the real service and the Java KCL.
    #[test]
    fn rows_over_the_limit_are_named() {
        let mut rows = vec![
            json!({ "name": "sdk_1kb_1", "instructions_ratio": null, "cpu_s_per_gib": 2.0 }),
            json!({ "name": "poll_1kb_1", "instructions_ratio": 1.05, "cpu_s_per_gib": 2.1 }),
            json!({ "name": "poll_1kb_8", "instructions_ratio": 1.06, "ratio": 1.01, "cpu_s_per_gib": 2.2 }),
            json!({ "name": "efo_100b_1", "instructions_ratio": 1.06, "ratio": 1.07 }),
        ];
        assert_eq!(over_limit(&rows, "instructions_ratio"), ["poll_1kb_8", "efo_100b_1"]);
        let text = report(&rows, "a machine", true, TOOK);
        assert!(text.contains("A quick run of 141 s, building included, on: a machine."));
        assert!(text.contains("plain loop is not kept by poll_1kb_8, efo_100b_1, of 3 rows.\n"), "{text}");
        assert!(text.contains("has a say, is not kept by efo_100b_1, of 2 rows.\n"), "{text}");
        assert!(text.contains("| `poll_1kb_1` |  |  | 2.10 |  |  | 1.050 |  |\n"), "{text}");
        assert!(text.contains("Not run: the same against the real service") && text.contains("the Java KCL"));
        assert!(!text.contains(ABOUT_RATES));
        rows.truncate(2);
        assert!(report(&rows, "a machine", false, TOOK).contains("plain loop is kept by all 1 rows.\n"));
        rows.truncate(1);
        assert!(report(&rows, "a machine", false, TOOK).contains("was not judged"));
    }

    /// S-242: records that arrive at a rate have a table of their own, with their latencies.
    #[test]
    fn offered_rates_have_a_table_of_their_own() {
        let rows = [
            json!({ "name": "efo_1kb_1", "cpu_s_per_gib": 2.0 }),
            json!({
                "name": "efo_rate_10", "offered_records_per_s": 10, "records_per_s": 9.99, "mb_per_s": 0.00999,
                "cpu_s_per_gib": 31.0, "peak_mib": 20.4, "p50_ms": 0, "p99_ms": 12,
            }),
        ];
        let text = report(&rows, "a machine", false, TOOK);
        let (canned, arriving) = text.split_once(ABOUT_RATES).unwrap();
        assert!(canned.contains("| `efo_1kb_1` |") && !canned.contains("rate_10"), "{text}");
        assert!(arriving.contains("| `efo_rate_10` | 10 | 10.0 | 0.010 | 31.00 | 20 | 0 | 12 |\n"), "{text}");
    }

    /// A full run fails by CPU time, too, and no run passes whose instructions nobody counted.
    #[test]
    fn what_is_over_the_limit_or_not_measured_fails() {
        let row = |instructions: Option<f64>, ratio: f64| {
            [json!({ "name": "efo_1kb_64", "instructions_ratio": instructions, "ratio": ratio })]
        };
        let said = |rows: &[Value], quick| judge(rows, quick).map_err(|error| error.to_string());
        assert_eq!(said(&row(Some(1.05), 1.05), false), Ok(()));
        assert_eq!(said(&row(Some(1.05), 1.2), true), Ok(()));
        let over = said(&row(Some(1.05), 1.2), false).unwrap_err();
        assert_eq!(over, "more than 1.05 times the CPU time of the plain loop: efo_1kb_64");
        assert!(said(&row(Some(1.06), 1.0), true).unwrap_err().contains("instructions of the plain loop"));
        assert!(said(&row(None, 1.0), true).unwrap_err().contains("instructions were not measured"));
    }

    /// What the decoder was made for stands beside what it brings.
    #[test]
    fn the_decoder_is_measured_by_its_goal() {
        let row = |name: &str, ratio: f64| json!({ "name": name, "ratio": ratio });
        let rows = [row("poll_fast_100b_1", 0.61), row("poll_fast_1kb_1", 0.5), row("poll_1kb_1", 1.0)];
        let text = report(&rows, "a machine", false, TOOK);
        assert!(
            text.contains("Rows that do: poll_fast_1kb_1 (0.50). Rows that do not: poll_fast_100b_1 (0.61).")
        );
        assert!(report(&rows[..1], "a machine", false, TOOK).contains("Rows that do: none."));
    }

    /// S-242: a line for each way to read.
    #[test]
    fn a_plot_has_a_line_for_each_way_to_read() {
        let rows = [
            json!({ "name": "poll_1kb_1", "cpu_s_per_gib": 2.1 }),
            json!({ "name": "sdk_efo_1kb_1", "cpu_s_per_gib": 1.1 }),
            json!({ "name": "poll_1kb_8", "cpu_s_per_gib": 2.2 }),
            json!({ "name": "poll_100kb_1", "cpu_s_per_gib": 0.1 }),
            json!({ "name": "efo_rate_1", "cpu_s_per_gib": 9.0, "p99_ms": 5 }),
        ];
        let plot = |file: &str| PLOTS.iter().find(|plot| plot.file == file).unwrap();
        let drawn = drawing(&rows, plot("read-paths-1kb.svg"));
        assert!(drawn.contains("records of 1 KB") && drawn.contains(">poll<") && drawn.contains(">sdk_efo<"));
        assert_eq!(drawn.matches("<polyline").count(), 1 + 2 * 2);
        let drawn = drawing(&rows, plot("read-paths-rate-latency.svg"));
        assert!(drawn.contains(">efo<") && drawn.contains("records/s"));
        assert_eq!(drawn.matches("<polyline").count(), 1 + 2);
    }
}
