//! Checks one line of the vector files: `tests/vectors/README.md` says what the fields mean.
//!
//! Also included by the workspace's `cargo xtask vectors`, for vectors that are elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kinesis_core::{HashKey, HashKeyRange, Tag};
use kinesis_kpl::{
    Aggregate, Aggregator, AggregatorConfig, Checksum, Deaggregated, Deaggregator, Lone, MAX_BYTES_LIMIT,
    RangeFilter, RecordRef, ShardMap, SizeRule, Strictness, hash_key,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::io::Read as _;

type Outcome = Result<(), String>;

/// Checks one line of the file `stem`. With `strict`, broken aggregates are judged by what strict mode does.
///
/// # Errors
/// What is not as the line says, without the line's name.
pub(super) fn check(stem: &str, line: &Value, strict: bool) -> Outcome {
    if !line["recommend"].is_null() {
        negative(line, strict)
    } else if !line["keep_per_record"].is_null() {
        valid(line).and_then(|_| range(line))
    } else if !line["md5_hex"].is_null() {
        partition_key(line)
    } else if !line["even_shards"].is_null() {
        shards(line)
    } else if !line["records"].is_null() || !line["records_digest"].is_null() {
        valid(line).map(|_| ())
    } else {
        Err(format!("a line of {stem} that is neither known by its fields nor checked"))
    }
}

/// One record as the vectors write it: partition key, explicit hash key, data.
type Plain = (String, Option<String>, Vec<u8>);

fn valid(line: &Value) -> Result<Aggregate<Bytes>, String> {
    let bytes = aggregated(line)?;
    let aggregate = records(&bytes, Strictness::Lenient)?;
    let got: Vec<Plain> = aggregate
        .iter()
        .map(|r| (r.partition_key().to_owned(), r.explicit_hash_key().map(str::to_owned), r.data().to_vec()))
        .collect();
    compare_records(line, &got)?;

    // Owned records, strict mode and a skipped checksum tell the same.
    let owned: Vec<Plain> = records(&bytes, Strictness::Strict)?
        .into_records()
        .map(|r| {
            let explicit = r.explicit_hash_key.map(|key| key.as_str().to_owned());
            (r.partition_key.as_str().to_owned(), explicit, r.data.to_vec())
        })
        .collect();
    ensure(owned == got, || "owned records differ from the view's".to_owned())?;
    let unchecked = Aggregate::parse_with(&bytes[..], Checksum::Skip).map_err(|reason| reason.to_string())?;
    ensure(unchecked.len() == got.len(), || "another count without checksum".to_owned())?;

    if let Some(tags) = line["tags"].as_array() {
        for (record, expected) in aggregate.iter().zip(tags) {
            let got: Value = record.tags().map(|tag| serde_json::json!([tag.key, tag.value])).collect();
            ensure(got == *expected, || format!("tags of record {} differ", record.sub_sequence()))?;
        }
    }
    if reencodes(line) {
        reencode(&aggregate, &bytes)?;
    }
    Ok(aggregate)
}

fn compare_records(line: &Value, got: &[Plain]) -> Outcome {
    if let Some(expected) = line["records"].as_array() {
        ensure(got.len() == expected.len(), || {
            format!("{} records, expected {}", got.len(), expected.len())
        })?;
        for (position, (got, expected)) in got.iter().zip(expected).enumerate() {
            same(got, expected).map_err(|problem| format!("record {position}: {problem}"))?;
        }
        return Ok(());
    }
    let mut digest = Sha256::new();
    for (key, explicit, data) in got {
        for part in [key.as_bytes(), explicit.as_deref().unwrap_or_default().as_bytes(), data] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    equal("records_digest", hex(&digest.finalize()), &line["records_digest"])?;
    equal("record_count", got.len(), &line["record_count"])?;
    equal("data_bytes", got.iter().map(|r| r.2.len()).sum::<usize>(), &line["data_bytes"])?;
    same(got.first().ok_or("no record")?, &line["first"])
        .map_err(|problem| format!("first record: {problem}"))
}

fn same((key, explicit, data): &Plain, expected: &Value) -> Outcome {
    equal("partition_key", key, &expected["partition_key"])?;
    equal("explicit_hash_key", explicit, &expected["explicit_hash_key"])?;
    if expected["data_base64"].is_null() {
        return equal("data_sha256", hex(&Sha256::digest(data)), &expected["data_sha256"]);
    }
    ensure(*data == decode(&expected["data_base64"])?, || "data differ".to_owned())
}

/// Whether our encoder must give the very same bytes: the makers that write tables in order of first use.
fn reencodes(line: &Value) -> bool {
    let name = line["name"].as_str().unwrap_or_default();
    ["__py", "__aiokpl", "__pb"].iter().any(|maker| name.ends_with(maker))
        && !name.starts_with("tables_not_deduplicated")
}

fn reencode(aggregate: &Aggregate<Bytes>, expected: &[u8]) -> Outcome {
    // Sizes beyond the service's limit are legal in the format.
    let config = AggregatorConfig::default()
        .max_bytes(MAX_BYTES_LIMIT)
        .size_rule(SizeRule::PayloadOnly)
        .lone(Lone::Framed);
    let mut aggregator = Aggregator::new(config).map_err(|error| error.to_string())?;
    for record in aggregate {
        let explicit =
            record.explicit_hash_key().map(str::parse).transpose().map_err(|_| "not a hash key")?;
        let tags: Vec<Tag> = record
            .tags()
            .map(|tag| Tag { key: tag.key.to_owned(), value: tag.value.map(str::to_owned) })
            .collect();
        let record =
            RecordRef::new(record.partition_key(), record.data()).explicit_hash_key(explicit).tags(&tags);
        aggregator.try_push(record).map_err(|refused| format!("not encoded again: {:?}", refused.why))?;
    }
    let announced = aggregator.encoded_len();
    let data = aggregator.finish().map_or_else(Bytes::new, |packed| packed.into_data());
    ensure(announced == data.len(), || "the announced size was wrong".to_owned())?;
    ensure(data == expected, || "encoded again, the bytes differ".to_owned())
}

fn negative(line: &Value, strict: bool) -> Outcome {
    let bytes = Bytes::from(decode(&line["aggregated_base64"])?);
    let recommend = line["recommend"].as_str().unwrap_or_default();
    let lenient = Deaggregator::new().deaggregate(bytes.clone()).map_err(|_| "lenient mode refused it")?;
    let refused = Deaggregator::new().strictness(Strictness::Strict).deaggregate(bytes.clone()).err();
    let (reason, data) = match lenient {
        Deaggregated::Raw { reason, data, .. } => (reason, data),
        // Bad text in a table entry that no record uses is ignored.
        Deaggregated::Records(aggregate) => {
            let unused = line["name"].as_str().is_some_and(|name| name.contains("unused"));
            return ensure(
                unused && recommend.contains("or error") && !aggregate.is_empty() && refused.is_none(),
                || format!("{} records came out, expected {recommend}", aggregate.len()),
            );
        }
        _ => return Err("an unknown outcome".to_owned()),
    };
    ensure(data == bytes, || "the raw bytes were changed".to_owned())?;
    ensure(refused.as_ref().map(|error| error.reason()) == (!reason.is_plain()).then_some(reason), || {
        format!("strict mode does not tell the same as lenient mode's {reason}")
    })?;
    if recommend != "raw" {
        ensure(!reason.is_plain(), || format!("taken as plain: {reason}"))?;
        ensure(!strict || refused.is_some(), || "strict mode took it".to_owned())?;
    }
    Ok(())
}

fn range(line: &Value) -> Outcome {
    let bound =
        |field: &str| line[field].as_str().and_then(|text| text.parse().ok()).ok_or(format!("no {field}"));
    let range =
        HashKeyRange::new(bound("starting_hash_key")?, bound("ending_hash_key")?).ok_or("no range")?;
    let bytes = aggregated(line)?;
    let whole = records(&bytes, Strictness::Strict)?;
    let hash_keys: Value = whole
        .iter()
        .map(|r| r.explicit_hash_key().map_or_else(|| hash_key(r.partition_key()).to_string(), str::to_owned))
        .collect();
    ensure(hash_keys == line["hash_keys"], || "hash keys differ".to_owned())?;
    let all: Value = (0..whole.len()).collect();
    for (filter, expected) in [
        (RangeFilter::Off, &all),
        (RangeFilter::PerRecord, &line["keep_per_record"]),
        (RangeFilter::KclCompatible, &line["kcl_keeps_all_or_nothing"]),
    ] {
        let mut aggregate = whole.clone();
        let report = aggregate.retain_in_range(filter, range);
        let kept: Value = aggregate.iter().map(|r| r.sub_sequence()).collect();
        ensure(kept == *expected, || format!("{filter:?} keeps {kept}, expected {expected}"))?;
        let owned: Value = aggregate.into_records().map(|r| r.sub_sequence).collect();
        ensure(owned == kept, || format!("{filter:?}: owned records differ from the view's"))?;
        ensure(report.kept + report.dropped == whole.len(), || format!("{filter:?} counts wrong"))?;
    }
    Ok(())
}

fn partition_key(line: &Value) -> Outcome {
    let key = hash_key(line["partition_key"].as_str().ok_or("no partition_key")?);
    equal("hash_key", key.to_string(), &line["hash_key"])?;
    equal("md5_hex", hex(&key.get().to_be_bytes()), &line["md5_hex"])
}

/// The place of keys among evenly divided shards, as UpdateShardCount makes them.
fn shards(line: &Value) -> Outcome {
    let count = line["even_shards"].as_u64().ok_or("no even_shards")?;
    let ranges: Vec<HashKeyRange> = match line["ranges"].as_array() {
        Some(ranges) => {
            let bound = |text: &Value| text.as_str().and_then(|text| text.parse().ok());
            let range = |pair: &Value| HashKeyRange::new(bound(&pair[0])?, bound(&pair[1])?);
            ranges.iter().map(range).collect::<Option<_>>().ok_or("bad ranges")?
        }
        None => {
            let width = u128::MAX / u128::from(count) + u128::from(count.is_power_of_two() && count > 1);
            let start = |i: u64| u128::from(i) * width;
            let end = |i: u64| if i + 1 == count { u128::MAX } else { start(i + 1) - 1 };
            (0..count)
                .filter_map(|i| HashKeyRange::new(HashKey::new(start(i)), HashKey::new(end(i))))
                .collect()
        }
    };
    let map = ShardMap::new(ranges.into_iter().zip(0_u64..)).map_err(|error| error.to_string())?;
    ensure(map.is_complete(), || "the ranges have holes".to_owned())?;
    for pair in line["shard_of"].as_array().ok_or("no shard_of")? {
        let key = pair[0].as_str().ok_or("no key")?;
        equal("shard_of", map.shard_of(key, None).copied(), &pair[1])?;
    }
    Ok(())
}

fn records(bytes: &Bytes, strictness: Strictness) -> Result<Aggregate<Bytes>, String> {
    match Deaggregator::new().strictness(strictness).deaggregate(bytes.clone()) {
        Ok(Deaggregated::Records(aggregate)) => Ok(aggregate),
        Ok(other) => Err(format!("not split: {other:?}")),
        Err(error) => Err(format!("refused: {}", error.reason())),
    }
}

fn aggregated(line: &Value) -> Result<Bytes, String> {
    if line["aggregated_gzip_base64"].is_null() {
        return decode(&line["aggregated_base64"]).map(Bytes::from);
    }
    let packed = decode(&line["aggregated_gzip_base64"])?;
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    equal("aggregated_len", bytes.len(), &line["aggregated_len"])?;
    equal("aggregated_sha256", hex(&Sha256::digest(&bytes)), &line["aggregated_sha256"])?;
    Ok(bytes.into())
}

fn decode(text: &Value) -> Result<Vec<u8>, String> {
    let text = text.as_str().ok_or("no base64 text")?;
    STANDARD.decode(text).map_err(|error| error.to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn equal(what: &str, got: impl serde::Serialize, expected: &Value) -> Outcome {
    let got = serde_json::to_value(got).map_err(|error| error.to_string())?;
    ensure(got == *expected, || format!("{what} is {got}, expected {expected}"))
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(problem()) }
}
