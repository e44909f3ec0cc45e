//! The stand-alone server as a process.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests
#![cfg(all(feature = "logs", feature = "tls"))]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use aws_sdk_kinesis::Client;
use kinesis_testkit::TestKinesis;

/// Ends the process when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinesis-test-server"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn it_says_where_it_listens_and_ends_on_sigterm() {
    let mut running = Running(server(&["--port", "0", "--stream", "s:3"]).spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let url = line.strip_prefix("listening on ").unwrap().to_owned();

    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_kinesis::config::Builder::from(&TestKinesis::new().sdk_config());
    let client = Client::from_conf(config.http_client(http).endpoint_url(url).build());
    let page = client.list_shards().stream_name("s").send().await.unwrap();
    assert_eq!(page.shards().len(), 3);

    let ended = Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(ended.success());
    assert!(running.0.wait().unwrap().success());
}

#[tokio::test]
async fn it_takes_rules_from_a_file_and_serves_tls() {
    let folder = std::env::temp_dir().join(format!("kinesis-test-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (rules, certificate) = (folder.join("rules.json"), folder.join("certificate.pem"));
    std::fs::write(&rules, r#"[{"operation": "ListStreams", "times": 1, "fault": "internal-failure"}]"#)
        .unwrap();
    let arguments = ["--port", "0", "--tls-port", "0", "--certificate", certificate.to_str().unwrap()];
    let mut command = server(&arguments);
    let mut running = Running(
        command.args(["--rules", rules.to_str().unwrap(), "--without", "retention"]).spawn().unwrap(),
    );
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("listening on https://127.0.0.1:"));
    let line = lines.next().unwrap().unwrap();
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_kinesis::config::Builder::from(&TestKinesis::new().sdk_config());
    let url = line.strip_prefix("listening on ").unwrap();
    let client = Client::from_conf(config.http_client(http).endpoint_url(url).build());
    assert_eq!(support::code(client.list_streams().send().await), "InternalFailure");
    client.list_streams().send().await.unwrap();
    assert!(std::fs::read_to_string(certificate).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn rules_that_cannot_be_read_are_an_error() {
    let mut running = Running(server(&["--port", "0", "--rules", "/nowhere/rules.json"]).spawn().unwrap());
    assert_eq!(running.0.wait().unwrap().code(), Some(1));
    let mut text = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("/nowhere/rules.json: "), "{text}");
}

#[test]
fn a_bad_option_ends_it_with_its_name_and_the_usage() {
    let mut running = Running(server(&["--prot", "1"]).spawn().unwrap());
    assert_eq!(running.0.wait().unwrap().code(), Some(2));
    let mut text = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("kinesis-test-server: --prot is no option\n\nAn Amazon Kinesis for tests"),
        "{text}"
    );
}

#[test]
fn a_port_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut running = Running(server(&["--port", &port]).spawn().unwrap());
    assert_eq!(running.0.wait().unwrap().code(), Some(1));
    let mut text = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("in use"), "{text}");
}

#[test]
fn an_unknown_rule_is_refused_with_the_known_ones() {
    let mut running = Running(server(&["--without", "gravity"]).spawn().unwrap());
    assert_eq!(running.0.wait().unwrap().code(), Some(2));
    let mut text = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("no rule has the name `gravity`; the rules are read-call-rate, "), "{text}");
}

#[test]
fn help_is_printed_and_nothing_is_served() {
    let output = server(&["--port", "0", "--help"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("--memory-limit MIB"), "{text}");
    assert!(text.contains("take-over "), "{text}");
    assert!(!text.contains("listening on http"), "{text}");
}

#[test]
fn the_log_tells_the_start_the_calls_and_the_end() {
    let mut command = server(&["--port", "0", "--stream", "s:1"]);
    let mut running = Running(command.env("RUST_LOG", "debug").spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let addr = line.strip_prefix("listening on http://").unwrap();
    let mut connection = std::net::TcpStream::connect(addr).unwrap();
    let head =
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-amz-target: Kinesis_20131202.DescribeStream";
    let body = r#"{"StreamName":"t"}"#;
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    std::io::Write::write_all(&mut connection, request.as_bytes()).unwrap();
    connection.read_to_end(&mut Vec::new()).unwrap();
    let ended = Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(ended.success() && running.0.wait().unwrap().success());
    let mut log = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    for part in ["ready", "call", "DescribeStream", "ResourceNotFoundException", "ending"] {
        assert!(log.contains(part), "no {part} in {log}");
    }
}
