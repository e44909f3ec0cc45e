//! The rows as a page of documentation.

use std::fmt::Write as _;

use super::Row;

const CODECS: &[&str] = &["gzip", "zstd", "lz4"];

/// The corpora of the compression table, as rows call them and as people do.
const CORPORA: &[(&str, &str)] = &[
    ("flights_50k", "flights, 50 KB"),
    ("flights_1m", "flights, 1 MB"),
    ("quakes_1", "earthquakes, one record of 0.7 KB"),
    ("quakes_50k", "earthquakes, 50 KB"),
    ("quakes_1m", "earthquakes, 1 MB"),
    ("random_50k", "random bytes, 50 KB"),
];

const INTRODUCTION: &str = "\
# Speed of the formats

Written by `cargo xtask bench formats`; do not edit. MB are 10^6 bytes: of the aggregate for KPL rows, of the plain
payload for compression rows. Each number is the best of many short turns, and all cases of a table take their turns
one after the other. One thread each.

This is one run, published as it came. Turns that alternate soften what else the machine is doing and do not remove
it: with a load of ten on two threads, the ratio of one row ranged from 0.70 to 1.14 over five runs of the same code, and
about a fifth of all ratios were more than a tenth away from the median of their row. Repeat a run on an idle machine before you build on one row.
";

const KPL: &str = "
## KPL aggregates

Random payloads, 16 partition keys, no explicit hash keys: 480 records of 100 bytes in an aggregate of 51 KB, and 870
records of 1 KB in one of 0.9 MB. `view` iterates borrowed records, `owned` gives records that share the aggregate's
buffer; both check the MD5 digest first unless they are called `nocheck`. `md5_*` is the digest alone: `md5` by the
crate `md-5`, `own` by this one. `batch` handles sixteen aggregates at a time, their digests side by side; `simd` does
so with the feature of that name.
";

const PEERS: &str = "
## Against the other implementations

Each API in its native form, checksums on: npm `aws-kinesis-agg` takes base64 text and gives base64 text, PyPI
`aws-kinesis-agg` takes bytes (its boto3 form) and gives base64; ours takes and gives bytes. Aggregation takes and gives
bytes everywhere. Ratios are of records per second.
";

const DECODING: &str = "
## Decompression against plain library calls

`decode` is a warm codec into a buffer that is reused, against the library doing the same on the same bytes;
`decompress` is a `Decompressor` that detects the format and allocates its output, against the library with a new
buffer. The libraries: `flate2::bufread::MultiGzDecoder`, `zstd::bulk::Decompressor`, `lz4_flex::frame::FrameDecoder`.
A ratio above 1 is faster than the plain call.
";

const COMPRESSING: &str = "
## Ratio and CPU time by codec

`smaller` is plain size by compressed size. CPU time is of one thread, in milliseconds for each MB of plain payload.
";

pub(super) fn text(rows: &[Row], machine: &str, quick: bool) -> String {
    let mut out = INTRODUCTION.to_owned();
    let kind = if quick { "A quick run" } else { "A full run" };
    let _ = writeln!(out, "\n{kind} on: {machine}.");

    out.push_str(KPL);
    let is_kpl = |row: &&Row| ["md5", "deagg", "aggregate"].iter().any(|word| row.name.starts_with(word));
    table(&mut out, rows.iter().filter(is_kpl).filter(|row| !row.name.contains("_vs_")));

    out.push_str(PEERS);
    let is_peer = |row: &&Row| {
        row.name.contains("_vs_") || row.name.starts_with("node_") || row.name.starts_with("python_")
    };
    table(&mut out, rows.iter().filter(is_peer));

    out.push_str(DECODING);
    let is_decoding = |row: &&Row| row.name.starts_with("decode_") || row.name.starts_with("decompress_");
    table(&mut out, rows.iter().filter(is_decoding));

    out.push_str(COMPRESSING);
    compressing(&mut out, rows);
    out
}

fn table<'a>(out: &mut String, rows: impl Iterator<Item = &'a Row>) {
    out.push_str("\n| row | MB/s | records/s | ratio | against |\n| --- | ---: | ---: | ---: | --- |\n");
    for row in rows {
        let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let against = row.against.as_ref().map_or_else(String::new, |name| format!("`{name}`"));
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {ratio} | {against} |",
            row.name,
            figures(row.mb_per_s),
            figures(row.records_per_s)
        );
    }
}

fn compressing(out: &mut String, rows: &[Row]) {
    out.push_str("\n| corpus | codec and level | smaller | compress, ms/MB | decompress, ms/MB |\n");
    out.push_str("| --- | --- | ---: | ---: | ---: |\n");
    for (corpus, title) in CORPORA {
        for codec in CODECS {
            let decode = rows.iter().find(|row| row.name == format!("decode_{codec}_{corpus}"));
            let ending = format!("_{codec}_{corpus}");
            for row in rows {
                let Some(level) = row.name.strip_prefix("encode").and_then(|name| name.strip_suffix(&ending))
                else {
                    continue;
                };
                let _ = writeln!(
                    out,
                    "| {title} | {codec} {level} | {:.2} x | {:.2} | {} |",
                    row.shrink.unwrap_or(f64::NAN),
                    1000.0 / row.mb_per_s,
                    decode.map_or_else(String::new, |row| format!("{:.2}", 1000.0 / row.mb_per_s)),
                );
            }
        }
    }
    out.push_str("\nDecompression is measured on the output of the default level (gzip 6, zstd 3).\n");
}

/// Whole numbers with separators, one digit more below 100.
fn figures(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            mb_per_s: 200.0,
            records_per_s: 1_234_567.0,
            ratio: Some(0.954),
            against: Some("md5_100b".to_owned()),
            shrink: Some(4.256),
            peak_mb: None,
        }
    }

    #[test]
    fn each_row_is_in_its_table() {
        let rows =
            ["deagg_view_100b", "deagg_view_100b_vs_node", "decode_gzip_quakes_1", "encode6_gzip_quakes_1"];
        let text = text(&rows.map(row), "a machine", true);
        for expected in [
            "A quick run on: a machine.",
            "| `deagg_view_100b` | 200 | 1,234,567 | 0.95 | `md5_100b` |",
            "| `deagg_view_100b_vs_node` |",
            "| `decode_gzip_quakes_1` |",
            "| earthquakes, one record of 0.7 KB | gzip 6 | 4.26 x | 5.00 | 5.00 |",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert_eq!(text.matches("deagg_view_100b_vs_node").count(), 1);
    }

    /// S-148: ratio and CPU time of every codec on three corpora are in the published page.
    #[test]
    fn the_published_page_has_every_codec_and_corpus() {
        let page = include_str!("../../../docs/benchmarks/formats.md");
        for (_, corpus) in CORPORA {
            for codec in CODECS {
                let beginning = format!("| {corpus} | {codec} ");
                let line = page.lines().find(|line| line.starts_with(&beginning));
                let line = line.unwrap_or_else(|| panic!("no line begins with {beginning}"));
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                assert!(cells[3].ends_with(" x") && cells[4].parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(figures(7.25), "7.2");
        assert_eq!(figures(999.6), "1,000");
        assert_eq!(figures(1_234_567.0), "1,234,567");
    }
}
