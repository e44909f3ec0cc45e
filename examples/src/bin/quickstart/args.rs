//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(
    about = "Produces real flights to Kinesis, processes them with several worker processes through a reshard \
                   and a crash, and has an independent reader check that nothing was lost"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) job: Job,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One worker process; started by the program itself.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// What to do, and where.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Job {
    /// How many of the 20,000 flights to publish.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(400..=20_000))]
    pub(crate) events: u32,
    /// How many shards the stream starts with.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(i32).range(3..=64))]
    pub(crate) shards: i32,
    /// How many worker processes share the shards.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) workers: u32,
    /// Kill a worker and start another this often, instead of once, for example `2s`.
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    pub(crate) kill_every: Option<Duration>,
    /// Break one guarantee on purpose; the run must then fail.
    #[arg(long = "break", value_enum)]
    pub(crate) broken: Option<Break>,
    /// Another Kinesis instead of the embedded one, for example `http://localhost:4568`.
    #[arg(long)]
    pub(crate) endpoint_url: Option<String>,
    /// The AWS region; with it (or an endpoint) the usual AWS credentials are used.
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// The stream; it is created when it does not exist.
    #[arg(long, default_value = "quickstart")]
    pub(crate) stream: String,
    /// Keep the lease file and the workers' logs in this folder.
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,
}

/// A guarantee that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Break {
    /// Lease writes of a worker that lost its lease are accepted, and it does not notice by its own clock.
    Fence,
    /// Positions are stored when records are handed out, not when they are finished.
    Watermark,
    /// Child shards do not wait for their parents.
    Parents,
}

impl Break {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Watermark => "watermark",
            Self::Parents => "parents",
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkerArgs {
    /// The worker's name.
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) stream: String,
    #[arg(long)]
    pub(crate) endpoint_url: Option<String>,
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// Whether the endpoint is the embedded Kinesis, which takes any credentials.
    #[arg(long)]
    pub(crate) embedded: bool,
    /// The lease file that all workers share.
    #[arg(long)]
    pub(crate) leases: PathBuf,
    /// How long a silent worker keeps its leases, in milliseconds.
    #[arg(long)]
    pub(crate) expiry_ms: u64,
    /// Where this worker writes down what it did.
    #[arg(long)]
    pub(crate) log: PathBuf,
    #[arg(long = "break", value_enum)]
    pub(crate) broken: Option<Break>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000),
    };
    let number: u64 = digits.trim().parse().map_err(|_| "a duration such as 2s or 500ms".to_owned())?;
    if number == 0 {
        return Err("must be longer than zero".to_owned());
    }
    Ok(Duration::from_millis(number * unit))
}
