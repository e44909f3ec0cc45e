//! How fast the service reads, pushes and stores, over a loopback socket to a client that only counts bytes.
//!
//! The client runs on a core of its own, so the numbers are those of one core of the server. Throughput counts the
//! payload of the records, not their base64.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kinesis_testkit::{Rule, Server, TestClock, TestKinesis};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

const MIB: usize = 1 << 20;
const RECORD_SIZES: [usize; 3] = [100, 1_000, 50_000];

struct Setup {
    /// Runs the server on one thread.
    _server_runtime: Runtime,
    _server: Server,
    kinesis: TestKinesis,
    addr: SocketAddr,
    client: Runtime,
}

fn setup() -> Setup {
    let server_runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (kinesis, server) = server_runtime.block_on(async {
        let kinesis = TestKinesis::builder()
            .clock(TestClock::system())
            .without_throughput_limits()
            .without(Rule::IteratorLife)
            .without(Rule::SubscribeInUse)
            .without(Rule::SubscribeCallRate)
            .build();
        let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
        (kinesis, server)
    });
    kinesis.create_stream("s", 1).unwrap();
    let client = Builder::new_current_thread().enable_all().build().unwrap();
    Setup { addr: server.addr(), _server_runtime: server_runtime, _server: server, kinesis, client }
}

/// Stores ten mebibytes of records.
fn fill(kinesis: &TestKinesis, size: usize) -> usize {
    let count = (10 * MIB / size).min(10_000);
    for _ in 0..count {
        kinesis.put("s", "k", vec![0xa5; size - 1]).unwrap();
    }
    count * (size - 1)
}

struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    async fn open(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn call(&mut self, operation: &str, body: Bytes) -> Incoming {
        let request = Request::post("http://localhost/")
            .header("x-amz-target", format!("Kinesis_20131202.{operation}"))
            .header("content-type", "application/x-amz-json-1.1")
            .body(Full::new(body))
            .unwrap();
        self.0.ready().await.unwrap();
        let reply = self.0.send_request(request).await.unwrap();
        assert_eq!(reply.status(), 200);
        reply.into_body()
    }
}

/// Reads a body until so many bytes have come; returns how many.
async fn count(mut body: Incoming, wanted: usize) -> usize {
    let mut read = 0;
    while read < wanted {
        let Some(frame) = body.frame().await else { break };
        read += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    read
}

fn get_records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get-records");
    for size in RECORD_SIZES {
        let setup = setup();
        let payload = fill(&setup.kinesis, size);
        let (mut connection, body) = setup.client.block_on(async {
            let mut connection = Connection::open(setup.addr).await;
            let input =
                r#"{"StreamName":"s","ShardId":"shardId-000000000000","ShardIteratorType":"TRIM_HORIZON"}"#;
            let reply = connection.call("GetShardIterator", Bytes::from_static(input.as_bytes())).await;
            (connection, reply.collect().await.unwrap().to_bytes())
        });
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                setup.client.block_on(async {
                    let reply = connection.call("GetRecords", body.clone()).await;
                    assert!(count(reply, usize::MAX).await > payload);
                });
            });
        });
    }
    group.finish();
}

fn subscribe_to_shard(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("subscribe-to-shard");
    for size in RECORD_SIZES {
        let setup = setup();
        let payload = fill(&setup.kinesis, size);
        let arn = setup.kinesis.register_consumer("s", "app").unwrap();
        let body = Bytes::from(format!(
            r#"{{"ConsumerARN":"{arn}","ShardId":"shardId-000000000000","StartingPosition":{{"Type":"TRIM_HORIZON"}}}}"#
        ));
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                setup.client.block_on(async {
                    let mut connection = Connection::open(setup.addr).await;
                    let reply = connection.call("SubscribeToShard", body.clone()).await;
                    // The records in base64 alone are more; the stream itself goes on.
                    count(reply, payload / 3 * 4).await;
                });
            });
        });
    }
    group.finish();
}

fn put_records(criterion: &mut Criterion) {
    use base64::Engine as _;

    let mut group = criterion.benchmark_group("put-records");
    for size in [100, 10_000] {
        let setup = setup();
        let data = base64::engine::general_purpose::STANDARD.encode(vec![0xa5; size]);
        let entry = format!(r#"{{"Data":"{data}","PartitionKey":"k"}}"#);
        let entries = vec![entry; 500].join(",");
        let body = Bytes::from(format!(r#"{{"StreamName":"s","Records":[{entries}]}}"#));
        let mut connection = setup.client.block_on(Connection::open(setup.addr));
        group.throughput(Throughput::Bytes(500 * size as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                setup.client.block_on(async {
                    let reply = connection.call("PutRecords", body.clone()).await;
                    count(reply, usize::MAX).await;
                });
                // Memory stays bounded however long the bench runs.
                setup.kinesis.clear_records("s").unwrap();
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(4));
    targets = get_records, subscribe_to_shard, put_records
}
criterion_main!(benches);
