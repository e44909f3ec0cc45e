//! What a process used, from the files of the system (Linux).

use std::fs;
use std::process::Command;
use std::thread;

/// Time of this thread on a processor, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    // Otherwise the file is as old as the last tick of the system, some milliseconds.
    thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    nanos / 1e9
}

/// The most memory that this process had, in MiB.
pub(crate) fn peak_mib() -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
    kib / 1024.0
}

/// glibc gives the top of its memory back to the system and takes it again with each page, for whichever way happens to
/// have it so: up to a third of the time of a run. It is told to keep it.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "1073741824"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// Runs this program with these arguments; returns its line.
pub(crate) fn child(args: &[String]) -> String {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    output(command.args(args).envs(KEEP_MEMORY)).map_or_else(String::new, |(line, _)| line)
}

/// The same under valgrind: also how many instructions it took; `None` where valgrind is not installed.
pub(crate) fn counted_child(args: &[String]) -> Option<(String, f64)> {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let (line, report) = output(command.arg(program).args(args))?;
    let count = report.lines().find(|line| line.contains("I") && line.contains("refs:"))?;
    let count: String = count.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    Some((line, count.parse().ok()?))
}

/// What it prints, and what it reports.
fn output(command: &mut Command) -> Option<(String, String)> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}
