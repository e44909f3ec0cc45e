//! The vectors of other writers, and whether the checker itself can fail.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "support/checker.rs"]
mod checker;

use std::path::Path;

use serde_json::{Value, json};

fn lines(stem: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{stem}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn all_hold(stem: &str, count: usize) {
    let lines = lines(stem);
    assert_eq!(lines.len(), count);
    let problems: Vec<String> = lines
        .iter()
        .flat_map(|line| [false, true].map(|strict| (line, checker::check(stem, line, strict))))
        .filter_map(|(line, outcome)| outcome.err().map(|problem| format!("{}: {problem}", line["name"])))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// S-118, S-119, S-121, S-129: aggregates of four other writers come out right, and ours has the same bytes.
#[test]
fn aggregates_of_other_writers_are_split_and_packed_again_to_the_same_bytes() {
    all_hold("interop", 115);
}

/// S-119: any legal protobuf is read, however unusual.
#[test]
fn unusual_but_legal_protobuf_is_read() {
    all_hold("odd-wire", 25);
}

/// S-120, S-123, S-125: what is no good aggregate is passed on whole or refused, by the mode.
#[test]
fn broken_aggregates_are_passed_on_whole_or_refused() {
    all_hold("negative", 67);
}

/// S-119, S-127, F-45: aggregates of 50 KB, 1 MiB and 10 MiB.
#[test]
fn large_aggregates_are_split_and_packed_again_to_the_same_bytes() {
    all_hold("large", 12);
}

/// Partition keys are hashed and placed among shards as the service does.
#[test]
fn keys_are_hashed_and_placed_as_the_service_does() {
    all_hold("hash-keys", 43);
}

/// F-30, S-108: the range filter keeps what the vectors say; switched off it keeps everything.
#[test]
fn range_filters_keep_what_they_should() {
    all_hold("hash-range", 14);
}

#[test]
fn the_checker_finds_a_wrong_line() {
    let mut line = lines("interop").swap_remove(9);
    line["records"][1]["data_base64"] = json!("");
    assert_eq!(checker::check("interop", &line, false), Err("record 1: data differ".to_owned()));

    let mut line = lines("hash-range").swap_remove(0);
    line["keep_per_record"] = json!([]);
    assert!(checker::check("hash-range", &line, false).unwrap_err().starts_with("PerRecord keeps"));

    let mut line = lines("negative").swap_remove(0);
    line["recommend"] = json!("error");
    assert_eq!(checker::check("negative", &line, true), Err("taken as plain: not aggregated".to_owned()));

    let mut line = lines("interop").swap_remove(0);
    line["recommend"] = json!("raw");
    assert!(checker::check("negative", &line, false).unwrap_err().ends_with("expected raw"));

    assert!(checker::check("other", &json!({"name": "x"}), false).is_err());
}
