//! Speed and effect of the codecs, each against plain calls of its library.
//!
//! - `cargo bench -p kinesis-compress` runs the cases with criterion.
//! - `cargo bench -p kinesis-compress -- --rows [--quick]` runs them in turns and prints one JSON line per case:
//!   `name`, `mb_per_s` (10^6 plain bytes), `records_per_s` (payloads), `ratio` (speed compared with the case
//!   `against`, both in their best turn of the same run) and `shrink` (how many times smaller).
//!
//! `decode_*` is a warm codec into a buffer that is reused, `plain_decode_*` the library doing the same.
//! `decompress_*` is a `Decompressor` that detects the format and allocates its output, `plain_decompress_*` the
//! library with a fresh buffer. `encode_*` is a warm codec into a buffer that is reused.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark speaks to its caller"
)]

#[path = "support/corpora.rs"]
mod corpora;
#[path = "support/rows.rs"]
mod rows;

use std::io::Read;

use bytes::Bytes;
use corpora::Corpus;
use criterion::{Criterion, Throughput};
use flate2::bufread::MultiGzDecoder;
use kinesis_compress::{Compression, DEFAULT_MAX_OUTPUT, Decompressor, Level};
use lz4_flex::frame::FrameDecoder;
use rows::Case;

/// Decodes all of the second argument into the third, which is empty and large enough.
type Plain = Box<dyn FnMut(&[u8], &mut Vec<u8>)>;

/// The library that the codec builds on, as one would call it without this crate.
fn plain(format: Compression) -> Plain {
    match format {
        Compression::Gzip => Box::new(|packed, out| {
            MultiGzDecoder::new(packed).read_to_end(out).unwrap();
        }),
        Compression::Zstd => {
            let mut decompressor = zstd::bulk::Decompressor::new().unwrap();
            Box::new(move |packed, out| {
                decompressor.decompress_to_buffer(packed, out).unwrap();
            })
        }
        _ => Box::new(|packed, out| {
            FrameDecoder::new(packed).read_to_end(out).unwrap();
        }),
    }
}

fn levels(format: Compression) -> &'static [i32] {
    match format {
        Compression::Gzip => &[1, 6, 9],
        Compression::Zstd => &[1, 3, 9],
        _ => &[1],
    }
}

/// A corpus in one format at its default level.
struct Packed<'a> {
    corpus: &'a Corpus,
    format: Compression,
    bytes: Bytes,
}

impl<'a> Packed<'a> {
    fn new(corpus: &'a Corpus, format: Compression) -> Self {
        let mut bytes = Vec::new();
        format.codec().unwrap().encode(&corpus.payload, Level::Default, &mut bytes).unwrap();
        Self { corpus, format, bytes: bytes.into() }
    }

    fn case(&self, verb: &str, against: Option<&str>, run: impl FnMut() -> usize + 'a) -> Case<'a> {
        let name = |verb: &str| format!("{verb}_{}_{}", self.format, self.corpus.name);
        let plain = self.corpus.payload.len();
        Case {
            name: name(verb),
            bytes: plain,
            shrink: plain as f64 / self.bytes.len() as f64,
            against: against.map(name),
            run: Box::new(run),
        }
    }

    fn cases(&self) -> Vec<Case<'a>> {
        let length = self.corpus.payload.len();
        let (mut library, packed) = (plain(self.format), self.bytes.clone());
        let mut buffer = Vec::with_capacity(length);
        let plain_decode = self.case("plain_decode", None, move || {
            buffer.clear();
            library(&packed, &mut buffer);
            buffer.len()
        });
        let (mut codec, packed) = (self.format.codec().unwrap(), self.bytes.clone());
        let mut buffer = Vec::with_capacity(length);
        let decode = self.case("decode", Some("plain_decode"), move || {
            codec.decode(&packed, DEFAULT_MAX_OUTPUT, &mut buffer).unwrap();
            buffer.len()
        });
        let (mut library, packed) = (plain(self.format), self.bytes.clone());
        let plain_decompress = self.case("plain_decompress", None, move || {
            let mut buffer = Vec::with_capacity(length);
            library(&packed, &mut buffer);
            Bytes::from(buffer).len()
        });
        let (decompressor, packed) = (Decompressor::auto(), self.bytes.clone());
        let decompress = self.case("decompress", Some("plain_decompress"), move || {
            decompressor.decompress(&packed).unwrap().len()
        });
        let mut cases = vec![plain_decode, decode, plain_decompress, decompress];
        cases.extend(levels(self.format).iter().map(|&level| self.encode(level)));
        cases
    }

    fn encode(&self, level: i32) -> Case<'a> {
        let mut codec = self.format.codec().unwrap();
        let payload = &self.corpus.payload;
        let mut buffer = Vec::new();
        codec.encode(payload, Level::Exact(level), &mut buffer).unwrap();
        let shrink = payload.len() as f64 / buffer.len() as f64;
        let case = self.case(&format!("encode{level}"), None, move || {
            codec.encode(payload, Level::Exact(level), &mut buffer).unwrap();
            buffer.len()
        });
        Case { shrink, ..case }
    }
}

fn main() {
    let corpora = corpora::all();
    let packed = corpora.iter().flat_map(|corpus| Compression::ALL.map(|format| Packed::new(corpus, format)));
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--rows") {
        let quick = arguments.iter().any(|argument| argument == "--quick");
        packed.for_each(|packed| rows::run(packed.cases(), quick));
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for packed in packed {
        for mut case in packed.cases() {
            let mut group = criterion.benchmark_group("compress");
            group.throughput(Throughput::Bytes(case.bytes as u64));
            group.bench_function(&case.name, |bencher| bencher.iter(&mut case.run));
        }
    }
    criterion.final_summary();
}
