//! A stand-alone test server: prints `listening on http://...` when it is ready and runs until it is interrupted.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kinesis_testkit::{Builder, Rule, Server, TestClock, TestKinesis};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
An Amazon Kinesis for tests: all of its data are in memory and gone when it ends.

usage: kinesis-test-server [OPTIONS]

  --port N             port on 127.0.0.1 to listen on; 0 takes a free one (default 4567)
  --tls-port N         a second port, with TLS and a certificate of its own; 0 takes a free one
  --certificate FILE   writes that certificate to a file, for clients to trust it
  --region NAME        region of the ARNs (default us-east-1)
  --account-id ID      account of the ARNs (default 123456789012)
  --seed N             seed of the sequence numbers (default 0)
  --stream NAME:N      makes an active stream of N shards; may be given again
  --without RULE       switches a rule of the service off, `throughput` all quotas per second; may be given again
  --rules FILE         scripts the faults of a JSON file, see the documentation of `Faults::add_json`
  --memory-limit MIB   the most that all records may hold; beyond it the oldest ones go (default 2048)
  --help               prints this text

It prints a line `listening on URL` for each port on the standard output when it is ready, the plain one last. Any AWS SDK
takes that URL as its endpoint, with any credentials. What happens is told on the standard error; RUST_LOG=debug tells
each call, RUST_LOG=off nothing. It ends on SIGTERM and SIGINT, after the calls in flight.
";

/// What stands for all rules of throughput.
const THROUGHPUT: &str = "throughput";

/// The port if none is given.
const DEFAULT_PORT: u16 = 4567;

#[derive(Debug)]
struct Options {
    port: u16,
    tls_port: Option<u16>,
    certificate: Option<PathBuf>,
    builder: Builder,
    streams: Vec<(String, usize)>,
    rules: Vec<PathBuf>,
}

/// The usage and the rules with the documentation that they come from.
fn help() -> String {
    let width = Rule::ALL.iter().map(|rule| rule.name().len()).max().unwrap_or_default();
    let line = |rule: Rule| format!("  {:width$}  {}\n", rule.name(), rule.documentation());
    format!(
        "{USAGE}\nRULE is one of these, each with the page of the AWS documentation that it comes from:\n\n{}",
        Rule::ALL.map(line).concat()
    )
}

/// What the command line asks for.
#[derive(Debug)]
enum Command {
    Help,
    Serve(Box<Options>),
}

fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut options = Options {
        port: DEFAULT_PORT,
        tls_port: None,
        certificate: None,
        builder: TestKinesis::builder(),
        streams: Vec::new(),
        rules: Vec::new(),
    };
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        if name == "--help" || name == "-h" {
            return Ok(Command::Help);
        }
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--port" => options.port = number(&name, &value()?)?,
            "--tls-port" => options.tls_port = Some(number(&name, &value()?)?),
            "--certificate" => options.certificate = Some(value()?.into()),
            "--region" => options.builder = options.builder.region(value()?),
            "--account-id" => options.builder = options.builder.account_id(value()?),
            "--seed" => options.builder = options.builder.seed(number(&name, &value()?)?),
            "--stream" => {
                let value = value()?;
                let (stream, shards) = value.rsplit_once(':').ok_or("--stream wants NAME:SHARDS")?;
                options.streams.push((stream.to_owned(), number(&name, shards)?));
            }
            "--rules" => options.rules.push(value()?.into()),
            "--memory-limit" => {
                let mib: u32 = number(&name, &value()?)?;
                options.builder = options.builder.memory_limit(u64::from(mib) << 20);
            }
            "--without" => {
                let value = value()?;
                if value == THROUGHPUT {
                    options.builder = options.builder.without_throughput_limits();
                    continue;
                }
                let rule: Rule = value.parse().map_err(|error| {
                    let rules = Rule::ALL.map(Rule::name).join(", ");
                    format!("--without: {error}; the rules are {rules}, and {THROUGHPUT} for all quotas per second")
                })?;
                options.builder = options.builder.without(rule);
            }
            _ => return Err(format!("{name} is no option")),
        }
    }
    Ok(Command::Serve(Box::new(options)))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}: `{value}` is not a number in its range"))
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let kinesis = options.builder.clock(TestClock::system()).build();
    for (name, shards) in &options.streams {
        kinesis.create_stream(name, *shards)?;
    }
    for file in &options.rules {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let count =
            kinesis.faults().add_json(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        tracing::info!(file = %file.display(), count, "faults are scripted");
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = kinesis.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port))).await?;
    let tls = match options.tls_port {
        Some(port) => Some(serve_tls(&kinesis, port, options.certificate.as_deref()).await?),
        None => None,
    };
    if let Some(tls) = &tls {
        writeln!(io::stdout(), "listening on {}", tls.url())?;
    }
    // Last, so that it means that everything is ready.
    writeln!(io::stdout(), "listening on {}", server.url())?;
    tracing::info!(streams = options.streams.len(), "ready");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending");
    server.shutdown().await;
    if let Some(tls) = tls {
        tls.shutdown().await;
    }
    Ok(())
}

async fn serve_tls(
    kinesis: &TestKinesis,
    port: u16,
    certificate: Option<&Path>,
) -> Result<Server, Box<dyn std::error::Error>> {
    let options = kinesis_testkit::ServeOptions::new().tls();
    let server = kinesis.serve_with((Ipv4Addr::LOCALHOST, port), options).await?;
    if let Some(file) = certificate {
        std::fs::write(file, server.certificate_pem().unwrap_or_default())
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(server)
}

/// What happens is told on the standard error: `RUST_LOG` says how much, by default what is worth knowing.
fn start_logging() {
    use tracing_subscriber::EnvFilter;

    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
}

#[tokio::main]
async fn main() -> ExitCode {
    let (text, code) = match parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            // A reader that is gone needs no usage.
            let _ = io::stdout().write_all(help().as_bytes());
            return ExitCode::SUCCESS;
        }
        Ok(Command::Serve(options)) => {
            start_logging();
            match serve(*options).await {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => (error.to_string(), ExitCode::FAILURE),
            }
        }
        Err(text) => (format!("{text}\n\n{USAGE}"), ExitCode::from(2)),
    };
    let _ = writeln!(io::stderr(), "kinesis-test-server: {text}");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read() {
        let line = "--port 9 --tls-port 0 --rules f.json --stream a:2 --stream b:c:3 --without read-call-rate --seed 4";
        let Ok(Command::Serve(options)) = parse_words(line) else { panic!("a valid line") };
        assert_eq!((options.port, options.tls_port), (9, Some(0)));
        assert_eq!(options.rules, [PathBuf::from("f.json")]);
        assert_eq!(options.streams, [("a".to_owned(), 2), ("b:c".to_owned(), 3)]);
    }

    #[test]
    fn mistakes_name_the_option() {
        for (line, message) in [
            ("--port", "--port needs a value"),
            ("--port 70000", "--port: `70000` is not a number in its range"),
            ("--memory-limit lots", "--memory-limit: `lots` is not a number in its range"),
            ("--port -1", "--port: `-1` is not a number in its range"),
            ("--stream a", "--stream wants NAME:SHARDS"),
            ("--tls", "--tls is no option"),
            ("--tls-port x", "--tls-port: `x` is not a number in its range"),
        ] {
            assert_eq!(parse_words(line).unwrap_err(), message);
        }
        assert!(parse_words("--without x").unwrap_err().contains("the rules are read-call-rate"));
        assert!(parse_words("--without throughput --memory-limit 64").is_ok());
    }

    #[test]
    fn the_help_names_every_rule_with_its_documentation() {
        for rule in Rule::ALL {
            assert!(help().contains(rule.name()) && help().contains(rule.documentation()), "{rule}");
        }
    }
}
