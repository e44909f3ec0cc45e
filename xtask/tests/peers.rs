//! What `cargo xtask peers` promises to the tests that it runs: a server and a client that can talk.

use std::process::Command;

const SCRIPT: &str = r#"
import os, boto3
client = boto3.client(
    "kinesis", endpoint_url=os.environ["KINESIS_LOCAL_ENDPOINT"], region_name="us-east-1",
    aws_access_key_id="key", aws_secret_access_key="secret")
client.create_stream(StreamName="harness", ShardCount=2)
client.get_waiter("stream_exists").wait(StreamName="harness", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
print(len(client.list_shards(StreamName="harness")["Shards"]))
client.delete_stream(StreamName="harness")
"#;

#[test]
#[ignore = "needs peers"]
fn python_reaches_the_foreign_server() {
    let python = std::env::var_os("PEERS_PYTHON").expect("set by `cargo xtask peers`");
    let output = Command::new(python).args(["-c", SCRIPT]).output().expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2", "{errors}");
}
