//! What is compressed: two kinds of real events and noise, in the sizes of one record, an aggregate and a full record.

use std::fs;
use std::path::Path;

/// A payload and where it comes from.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn all() -> Vec<Corpus> {
    let flights = read("../../examples/data/flights-20k.ndjson");
    let quakes = read("benches/data/earthquakes.ndjson");
    vec![
        Corpus { name: "flights_50k", payload: lines(&flights, 51_200) },
        Corpus { name: "flights_1m", payload: lines(&flights, 1_000_000) },
        Corpus { name: "quakes_1", payload: lines(&quakes, 750) },
        Corpus { name: "quakes_50k", payload: lines(&quakes, 51_200) },
        Corpus { name: "quakes_1m", payload: lines(&quakes, 1_000_000) },
        Corpus { name: "random_50k", payload: random(51_200) },
    ]
}

fn read(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As many whole lines from the beginning as fit, at least one.
fn lines(text: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if !out.is_empty() && out.len() + line.len() > most {
            break;
        }
        out.extend_from_slice(line);
    }
    out
}

fn random(length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    fastrand::Rng::with_seed(1).fill(&mut out);
    out
}
