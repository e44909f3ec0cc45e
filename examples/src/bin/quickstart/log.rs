//! What a worker writes down, and what the conductor reads of it. A line is one `write`, so it survives a SIGKILL.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// One line of a worker's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Line {
    /// Records were handed to the handler.
    HandedOut { shard: String, epoch: u64, last: String },
    /// A record was processed.
    Processed { shard: String, epoch: u64, order: u64, sequence: String, key: String, at: u64 },
    /// A lease write that the store accepted: `stale` when it came from a tenure that is over.
    Written { shard: String, epoch: u64, counter: u64, checkpoint: String, stale: bool },
}

/// The worker's side.
#[derive(Debug)]
pub(crate) struct Log(Mutex<File>);

impl Log {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        File::options().create(true).append(true).open(path).map(|file| Self(Mutex::new(file)))
    }

    /// Appends lines with a single write.
    pub(crate) fn write(&self, lines: &[Line]) -> std::io::Result<()> {
        let mut text = Vec::with_capacity(lines.len() * 160);
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let mut file = self.0.lock().map_err(|_| std::io::Error::other("another writer panicked"))?;
        file.write_all(&text)
    }
}

/// The conductor's side: reads what was added since the last look.
#[derive(Debug)]
pub(crate) struct LogReader {
    path: PathBuf,
    offset: u64,
}

impl LogReader {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    pub(crate) fn read_new(&mut self) -> anyhow::Result<Vec<Line>> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut lines = Vec::new();
        let mut text = String::new();
        // A line without its end is still being written: it is read next time.
        while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
            self.offset += text.len() as u64;
            lines.push(serde_json::from_str(&text)?);
            text.clear();
        }
        Ok(lines)
    }
}

/// The host's monotonic clock in nanoseconds: the same for all processes, so that their lines can be put in order.
pub(crate) fn monotonic_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
