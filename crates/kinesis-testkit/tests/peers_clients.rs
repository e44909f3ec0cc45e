//! Other people's clients against the HTTP front, each with its defaults: create, put, read, subscribe, reshard.
//!
//! They find what they need through the variables that `cargo xtask peers` sets.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

use std::path::PathBuf;
use std::time::Duration;

use kinesis_testkit::{Operation, TestClock, TestKinesis};
use tokio::process::Command;

/// How long a client may take, with the compiler of its language on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

fn program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this through `cargo xtask peers`"))
}

/// Runs a client, with the endpoint as its last argument, and checks what it saw and what the service saw.
async fn drive(stream: &str, mut command: Command) {
    let kinesis = TestKinesis::builder().clock(TestClock::system()).build();
    let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
    command.arg(server.url()).kill_on_drop(true);
    let output =
        tokio::time::timeout(LIMIT, command.output()).await.expect("the client ends in time").unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(text.trim(), "read 4 pushed 4 children 2 shards 3", "{errors}");
    assert_eq!(kinesis.records(stream).unwrap().len(), 4);
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
    assert_eq!(kinesis.calls(Operation::SplitShard), 1);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn boto3_with_its_defaults() {
    let mut command = Command::new(variable("PEERS_PYTHON"));
    command.arg(program("client.py"));
    drive("py", command).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn the_node_sdk_with_its_defaults() {
    let mut command = Command::new("node");
    command.env("NODE_PATH", variable("PEERS_NODE_MODULES")).arg(program("client.cjs"));
    drive("node", command).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn the_java_sdk_with_its_defaults() {
    let mut command = Command::new("java");
    command.arg("-cp").arg(format!("{}/*", variable("PEERS_JAVA_LIBRARIES"))).arg(program("Client.java"));
    drive("java", command).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs peers"]
async fn the_go_sdk_with_its_defaults() {
    let mut command = Command::new(variable("PEERS_GO"));
    command.current_dir(program("go")).args(["run", "."]);
    drive("go", command).await;
}
