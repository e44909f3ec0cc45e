//! The quickstart judges itself; these tests judge the judge: a healthy run passes, and each broken guarantee fails.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::process::{Command, Output};

use serde_json::Value;

fn quickstart(args: &[&str]) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let verdict =
        verdict.unwrap_or_else(|| panic!("no verdict: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output, verdict)
}

fn number(verdict: &Value, field: &str) -> u64 {
    verdict[field].as_u64().unwrap_or_else(|| panic!("no {field} in {verdict}"))
}

/// S-001, S-008, S-019, S-022, S-043, S-046, S-056, S-057, S-159: several processes share a stream through a split, a
/// merge, a stalled and a killed worker; nothing is lost, keys stay in order, and SIGTERM stops cleanly.
#[test]
fn several_processes_lose_nothing_through_reshards_and_crashes() {
    let (output, verdict) = quickstart(&["--events", "4000"]);
    assert_eq!(output.status.code(), Some(0), "{verdict}");
    for (field, expected) in [
        ("produced", 4_000),
        ("processed", 4_000),
        ("lost", 0),
        ("key_order_violations", 0),
        ("stale_writes", 0),
        ("checkpoint_regressions", 0),
        ("killed_workers", 1),
        ("stalled_workers", 1),
        ("splits", 1),
        ("merges", 1),
        ("unclean_stops", 0),
    ] {
        assert_eq!(number(&verdict, field), expected, "{field} in {verdict}");
    }
    assert!(number(&verdict, "after_split") >= 1_000 && number(&verdict, "after_merge") >= 1_000);
}

/// F-10, S-015: without the fence a worker that lost its lease writes over the new owner's position.
#[test]
fn a_broken_fence_is_noticed() {
    let (output, verdict) = quickstart(&["--events", "4000", "--break", "fence"]);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(number(&verdict, "stale_writes") > 0, "{verdict}");
}

/// S-021, F-10: a position stored before the work is done loses what was in hand when the worker is killed.
#[test]
fn a_broken_watermark_is_noticed() {
    let (output, verdict) = quickstart(&["--events", "4000", "--break", "watermark"]);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(number(&verdict, "lost") > 0, "{verdict}");
}

/// S-057: children that do not wait for their parents deliver keys out of order.
#[test]
fn children_that_do_not_wait_are_noticed() {
    let (output, verdict) = quickstart(&["--events", "4000", "--break", "parents"]);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(number(&verdict, "key_order_violations") > 0, "{verdict}");
    assert_eq!(number(&verdict, "lost"), 0, "{verdict}");
}

/// S-009, S-117: what cannot be done is one clear error that names it, and exit code 2.
#[test]
fn bad_input_is_one_clear_error() {
    for (args, expected) in [
        (&["--stream", "not a stream"][..], "stream"),
        (&["--events", "7"], "--events"),
        (&["--kill-every", "0s"], "longer than zero"),
        (&["--kill-every", "-1s"], "--kill-every"),
        (&["--break", "everything"], "fence"),
        (&["--keep", "/proc/nowhere"], "/proc/nowhere"),
        (&["--endpoint-url", "http://127.0.0.1:1", "--region", "us-east-1"], "CreateStream"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_quickstart"))
            .args(args)
            .envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("NO_PROXY", "127.0.0.1")])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(expected), "{args:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}
