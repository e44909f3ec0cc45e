//! How fast the service reads, pushes and stores.
//!
//! `cargo bench -p kinesis-testkit [-- --quick]` prints one JSON line per row: `name`, `mb_per_s` and `records_per_s` of
//! the fastest turn, and `peak_mb`, the most memory that the process held during the row. MB are 10^6 bytes of the
//! records' data, not of their base64. Started in any other way it takes one turn of each.
//!
//! Rows named `..._http` go over a loopback socket: the server has one thread, and the client has its own and only
//! counts bytes. All others call the in-process connector, with the service and the caller on one thread; `..._cbor`
//! is the second body format. Every row is JSON unless it says otherwise.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark speaks to its caller"
)]

#[path = "support/doors.rs"]
mod doors;
#[path = "support/rows.rs"]
mod rows;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doors::{Door, Service};
use rows::{Effort, measure};

const MIB: usize = 1 << 20;
/// The sizes of records, as rows call them.
const SIZES: [(&str, usize); 4] = [("100b", 100), ("1kb", 1_000), ("10kb", 10_000), ("50kb", 50_000)];
/// Below the size of any event with records.
const LAST_BYTES: usize = 256;
const JSON: &str = "application/x-amz-json-1.1";
const CBOR: &str = "application/x-amz-cbor-1.1";

/// What a page or a replay holds.
struct Backlog {
    records: usize,
    bytes: usize,
}

/// Stores as much as one page holds: ten mebibytes or 10,000 records.
fn fill(service: &Service, size: usize) -> Backlog {
    let records = (10 * MIB / size).min(10_000);
    for number in 0..records {
        let data: Vec<u8> = (0..size - 1).map(|byte| (byte ^ number) as u8).collect();
        service.kinesis.put("s", "k", data).unwrap();
    }
    Backlog { records, bytes: records * (size - 1) }
}

fn body(format: &str, members: &serde_json::Value) -> Vec<u8> {
    if format == JSON {
        return members.to_string().into_bytes();
    }
    let mut body = Vec::new();
    ciborium::into_writer(members, &mut body).unwrap();
    body
}

fn get_records(name: &str, size: usize, format: &str, http: bool, effort: Effort) {
    let service = Service::new();
    let backlog = fill(&service, size);
    let mut door = Door::open(&service, http);
    let start = serde_json::json!({
        "StreamName": "s", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"
    });
    let iterator = door.call("GetShardIterator", JSON, body(JSON, &start));
    let iterator: serde_json::Value = serde_json::from_slice(&iterator).unwrap();
    let request = body(format, &iterator);
    measure(name, backlog.records, backlog.bytes, effort, || {
        let read = door.read("GetRecords", format, request.clone(), usize::MAX);
        assert!(read > backlog.bytes);
    });
}

fn events(name: &str, size: usize, format: &str, http: bool, effort: Effort) {
    let service = Service::new();
    let backlog = fill(&service, size);
    let consumer = service.kinesis.register_consumer("s", "app").unwrap();
    let mut door = Door::open(&service, http);
    let request = serde_json::json!({
        "ConsumerARN": consumer,
        "ShardId": "shardId-000000000000",
        "StartingPosition": {"Type": "TRIM_HORIZON"}
    });
    let request = body(format, &request);
    // How long the whole replay is, but for the digits of the lag that its last event tells: any byte of that is all of
    // it, in process, and heartbeats are far off.
    let whole = door.replay_length(&service, format, request.clone(), backlog.records) - LAST_BYTES;
    measure(name, backlog.records, backlog.bytes, effort, || {
        assert!(door.read("SubscribeToShard", format, request.clone(), whole) >= whole);
    });
}

fn put_records(name: &str, size: usize, http: bool, effort: Effort) {
    let service = Service::new();
    let mut door = Door::open(&service, http);
    let count = 500.min(9 * MIB / size);
    let data = STANDARD.encode(vec![0xa5; size]);
    let entries: Vec<_> = (0..count)
        .map(|key| serde_json::json!({"Data": data, "PartitionKey": format!("key-{key}")}))
        .collect();
    let request = body(JSON, &serde_json::json!({"StreamName": "s", "Records": entries}));
    measure(name, count, count * size, effort, || {
        assert!(door.read("PutRecords", JSON, request.clone(), usize::MAX) > count);
        // Memory stays bounded however long the turns last.
        service.kinesis.clear_records("s").unwrap();
    });
}

fn main() {
    let effort = Effort::from_arguments();
    for (label, size) in SIZES {
        for (suffix, format, http) in [("", JSON, false), ("_cbor", CBOR, false), ("_http", JSON, true)] {
            get_records(&format!("get_records_{label}{suffix}"), size, format, http, effort);
            events(&format!("events_{label}{suffix}"), size, format, http, effort);
        }
        for (suffix, http) in [("", false), ("_http", true)] {
            put_records(&format!("put_records_{label}{suffix}"), size, http, effort);
        }
    }
}
