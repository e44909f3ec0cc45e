//! What a measurement was taken on.

use std::fs;
use std::process::Command;
use std::thread;

use crate::process;

/// Processor, threads, load, system and compiler in one line.
pub(super) fn describe() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| processor(&text));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let compiler = process::capture(Command::new("rustc").arg("--version")).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text));
    format!(
        "{}, {threads} threads, load {}, {} {}, {}",
        processor.as_deref().unwrap_or("unknown processor"),
        load.as_deref().unwrap_or("unknown"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        compiler.trim(),
    )
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The mean number of runnable threads over the last five minutes.
fn load(loadavg: &str) -> Option<String> {
    loadavg.split_whitespace().nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found() {
        let text = "processor\t: 0\nmodel name\t: Fast One @ 2.6 GHz\n";
        assert_eq!(processor(text).as_deref(), Some("Fast One @ 2.6 GHz"));
        assert_eq!(processor("processor\t: 0\n"), None);
    }

    #[test]
    fn the_load_is_that_of_five_minutes() {
        assert_eq!(load("9.30 11.55 11.96 2/300 1234\n").as_deref(), Some("11.55"));
        assert_eq!(load(""), None);
    }
}
